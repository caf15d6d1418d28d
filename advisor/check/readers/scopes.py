"""Which names a Python scope binds, how often, and to what. No values here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from advisor.check.readers.trees import children, walk

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
CHANGING = frozenset(
    {"update", "pop", "popitem", "setdefault", "clear", "append", "extend", "insert", "remove", "sort"}
)

# Most nodes of a tree: they bind nothing, call nothing and open no block.
_PLAIN = frozenset(
    {ast.Name, ast.Constant, ast.Attribute, ast.Expr, ast.keyword, ast.Tuple, ast.List, ast.Dict, ast.Return, ast.BinOp,
     ast.UnaryOp, ast.Compare, ast.JoinedStr, ast.FormattedValue, ast.Subscript, ast.Slice, ast.Starred, ast.With}
)  # fmt: skip


@dataclass(slots=True)
class Store:
    """``name["a"]["b"] = value``: one entry is set after the name was bound. ``keys`` is None when they are computed."""

    keys: tuple[object, ...] | None
    value: ast.expr | None
    line: int
    block: int


@dataclass(frozen=True, slots=True)
class Straight:
    """One plain binding: its expression, the place in a call's unpacked result if any, the block, and where it ends."""

    value: ast.expr
    index: int | None
    block: int
    end: tuple[int, int]


@dataclass(slots=True)
class Binding:
    """What one name of a scope is bound to. ``times`` counts bindings; ``value`` is the last plain one's expression.

    ``index`` is set when the name is one of several that a call's result is unpacked into.
    """

    times: int = 0
    value: ast.expr | None = None
    index: int | None = None
    imported: str | None = None
    defined: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None = None
    parameter: ast.arg | None = None
    line: int = 0
    block: int = 0
    straight: list[Straight] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    changed: bool = False  # by a method, or by a store that nested code makes


@dataclass(slots=True)
class Scope:
    """A module or a function. ``node`` is None for the module."""

    node: Function | None
    parent: Scope | None
    names: dict[str, Binding] = field(default_factory=dict)
    outer: set[str] = field(default_factory=set)  # declared global or nonlocal here
    calls: list[tuple[ast.Call, bool]] = field(default_factory=list)  # and whether in a branch or loop
    assigned: list[tuple[ast.Attribute | ast.Subscript, ast.expr]] = field(default_factory=list)
    owner: str = ""  # the class whose method this is
    rebound_before: int = 0  # names bound above this line may have been bound again, out of sight (exec, import *)

    def binding(self, name: str) -> Binding:
        """The entry of ``name``, made when there is none."""
        found = self.names.get(name)
        if found is None:
            found = self.names[name] = Binding()
        return found

    def find(self, name: str) -> tuple[Scope, Binding] | None:
        """The scope that binds ``name`` for code of this one, from the inside out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and name not in scope.outer:
                return scope, scope.names[name]
            scope = scope.parent
        return None


def scopes(tree: ast.Module) -> list[Scope]:
    """The module's scope, then those of its functions, each with its bindings, in order of the text."""
    walker = _Walker()
    module = Scope(node=None, parent=None)
    walker.todo.append((module, list(tree.body)))
    done: list[Scope] = []
    while walker.todo:
        scope, body = walker.todo.pop(0)
        walker.fill(scope, body)
        done.append(scope)
    for scope in done:
        _outer_changes(scope)
    return done


def _outer_changes(scope: Scope) -> None:
    """Bindings and changes that this scope makes to names of the scopes around it."""
    for name, binding in scope.names.items():
        if name in scope.outer:
            around = scope.parent.find(name) if scope.parent else None
            if around is not None:
                around[1].times += 2
        elif binding.times == 0 and scope.parent is not None:  # only stored into or changed, not bound here
            around = scope.parent.find(name)
            if around is not None:
                around[1].changed = True
    for name in [name for name, binding in scope.names.items() if binding.times == 0 or name in scope.outer]:
        if scope.parent is not None or scope.names[name].times == 0:
            del scope.names[name]


class _Walker:
    def __init__(self) -> None:
        self.todo: list[tuple[Scope, list[ast.stmt]]] = []
        self.blocks = 0

    def fill(self, scope: Scope, body: list[ast.stmt]) -> None:
        if scope.node is not None:
            for argument in _parameters(scope.node):
                found = scope.binding(argument.arg)
                found.times += 1
                found.parameter = argument
        # Each entry: a node, whether it may not run or run often, and the number of its block.
        stack: list[tuple[ast.AST, bool, int]] = [(statement, False, 0) for statement in reversed(body)]
        while stack:
            node, maybe, block = stack.pop()
            if type(node) in _PLAIN:
                below = [(child, maybe, block) for child in children(node)]
            else:
                below = list(self.visit(scope, node, maybe, block))
            stack += below[::-1]
        scope.calls.sort(key=lambda call: (call[0].end_lineno or 0, call[0].end_col_offset or 0))

    def inner(self, scope: Scope, node: Function, owner: str = "") -> None:
        body: list[ast.stmt] = [ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body
        self.todo.append((Scope(node=node, parent=scope, owner=owner), body))

    def visit(self, scope: Scope, node: ast.AST, maybe: bool, block: int) -> Iterator[tuple[ast.AST, bool, int]]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.bind(scope, node.name, node).defined = node
                self.inner(scope, node)
                outside = [*node.decorator_list, *node.args.defaults, *[d for d in node.args.kw_defaults if d]]
                yield from ((child, maybe, block) for child in outside)
                return
            case ast.Lambda():
                self.inner(scope, node)
                return
            case ast.ClassDef():
                self.bind(scope, node.name, node).defined = node
                for statement in node.body:  # methods see the scopes around the class, not its body
                    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        self.inner(scope, statement, node.name)
                    elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                        yield statement.value, maybe, block
                return
            case ast.Import() | ast.ImportFrom():
                self.imports(scope, node)
                return
            case ast.Assign(targets=[target], value=value):
                self.assign(scope, target, value, block)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign(scope, target, value, block)
            case ast.NamedExpr(target=target, value=value):
                self.assign(scope, target, value, block)
            case ast.AnnAssign():
                return
            case ast.Assign(targets=targets):
                for target in targets:
                    self.targets(scope, target)
            case ast.AugAssign(target=target):
                self.targets(scope, target, 2)
            case ast.Delete(targets=targets):
                for target in targets:
                    self.targets(scope, target, 2)
            case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
                self.targets(scope, target, 2)
            case ast.withitem(
                optional_vars=ast.Name() as target, context_expr=ast.Call(func=ast.Name(id="open")) as opened
            ):
                self.assign(scope, target, opened, block)
            case ast.withitem(optional_vars=target) if target is not None:
                self.targets(scope, target, 2)
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name) if name:
                scope.binding(name).times += 2
            case ast.MatchMapping(rest=name) if name:
                scope.binding(name).times += 2
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                for name in names:
                    scope.outer.add(name)
                    scope.binding(name).times += 2
            case ast.Call():
                self.call(scope, node, maybe)
        if isinstance(node, ast.If):
            main = _is_main(node.test)
            yield node.test, maybe, block
            self.blocks += 2
            first, second = (block if main else self.blocks), self.blocks + 1
            yield from ((child, maybe or not main, first) for child in node.body)
            yield from ((child, True, second) for child in node.orelse)
            return
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.IfExp, ast.ListComp, ast.DictComp,
                             ast.SetComp, ast.GeneratorExp, ast.BoolOp)) or type(node).__name__ == "TryStar":  # fmt: skip
            maybe = True
            self.blocks += 1
            block = self.blocks
        yield from [(child, maybe, block) for child in children(node)]

    def bind(self, scope: Scope, name: str, node: ast.AST) -> Binding:
        found = scope.binding(name)
        found.times += 1
        found.line = getattr(node, "lineno", 0)
        return found

    def imports(self, scope: Scope, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                scope.rebound_before = max(scope.rebound_before, node.lineno)
                continue
            if isinstance(node, ast.ImportFrom):
                name, dotted = alias.asname or alias.name, f"{node.module or ''}.{alias.name}".lstrip(".")
            elif alias.asname:
                name, dotted = alias.asname, alias.name
            else:
                name = dotted = alias.name.split(".")[0]
            found = scope.binding(name)
            # The same name imported again (in two branches, of two packages) still names that thing.
            if found.imported is None or found.times != 1:
                found.times += 1
            found.imported = found.imported or dotted
            found.line = node.lineno

    def assign(self, scope: Scope, target: ast.expr, value: ast.expr, block: int) -> None:
        if isinstance(target, ast.Name):
            found = self.bind(scope, target.id, target)
            found.value, found.block = value, block
            found.straight.append(Straight(value, None, block, _end(value)))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, element in enumerate(target.elts):
                if isinstance(element, ast.Name):
                    found = self.bind(scope, element.id, element)
                    found.value, found.index, found.block = value, index, block
                    found.straight.append(Straight(value, index, block, _end(value)))
                else:
                    self.targets(scope, element)
        elif isinstance(target, (ast.Subscript, ast.Attribute)):
            scope.assigned.append((target, value))
            self.store(scope, target, value, block)

    def store(self, scope: Scope, target: ast.Subscript | ast.Attribute, value: ast.expr | None, block: int) -> None:
        """A name's object is changed by a store into it; attributes of objects are kept apart (`Scope.assigned`)."""
        keys: list[object] | None = []
        base: ast.expr = target
        while isinstance(base, ast.Subscript):
            if keys is not None:
                keys = [base.slice.value, *keys] if isinstance(base.slice, ast.Constant) else None
            base = base.value
        if isinstance(base, ast.Name):
            found = scope.binding(base.id)
            found.stores.append(Store(None if keys is None else tuple(keys), value, target.lineno, block))

    def targets(self, scope: Scope, target: ast.expr, times: int = 1) -> None:
        """Names that a target binds in a way that is not followed."""
        for node in walk(target):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                scope.binding(node.id).times += max(times, 2)
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                self.store(scope, node, None, -1)

    def call(self, scope: Scope, node: ast.Call, maybe: bool) -> None:
        scope.calls.append((node, maybe))
        match node.func:
            case ast.Name(id="exec" | "globals" | "locals" | "vars"):
                scope.rebound_before = max(scope.rebound_before, node.lineno)
            case ast.Attribute(value=ast.Name(id=name), attr=method) if method in CHANGING:
                scope.binding(name).changed = True
            case ast.Attribute(value=ast.Subscript() as inner, attr=method) if method in CHANGING:
                self.store(scope, inner, None, -1)


def _parameters(node: Function) -> list[ast.arg]:
    arguments = node.args
    extra = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _is_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
    )
