"""Values of Python expressions, read off the syntax tree and never run.

Sound by refusal: a name counts only when its scope binds it exactly once, to something known, and entries that are set
later make that entry unknown unless the store surely ran before. Not followed: a container changed through another name.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from advisor.check.readers.scopes import Binding, Scope
from advisor.check.readers.trees import children
from advisor.check.values import ANY, MAX_DEPTH, MAX_STEPS, UNKNOWN, Called, Dotted, Node, Option, Rank

MAX_BINDINGS: Final = 40  # a name bound more often is not followed from one to the next
MAX_TEXT: Final = 10_000  # characters that an f-string or sum may build
_RANK_WORDS = {"LOCAL_RANK": "LOCAL_RANK", "RANK": "RANK", "SLURM_LOCALID": "SLURM_LOCALID", "SLURM_PROCID": "SLURM_PROCID",
               "OMPI_COMM_WORLD_LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK"}  # fmt: skip
_RANK_NAMES = frozenset({"local_rank", "local_process_index", "process_index", "LOCAL_RANK", "global_rank"})
_RANK_CALLS = frozenset({"current_device", "get_rank", "get_local_rank", "get_device", "get_kbit_device_map"})
_READS_ENVIRONMENT = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})
_PARSERS = frozenset(
    {"parse_args_into_dataclasses", "parse_json_file", "parse_yaml_file", "parse_args_and_config", "parse_dict"}
)
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_ENDS = (ast.Return, ast.Yield, ast.YieldFrom)
MAX_STORES = 200  # entries set one by one; each use of the name looks at all of them
_SCALARS = (str, int, float, bool, bytes, type(None))


class Evaluator:
    """Values of expressions of one file. ``lines`` gives a notebook's own line for each line of its code."""

    def __init__(self, path: str, text: str, lines: Sequence[int] | None = None) -> None:
        self.path = path
        self.own = lines
        self.text_lines = _split(text.removeprefix("\ufeff"))
        # A byte order mark counts in offsets, and ast knows nothing of it.
        self.starts = [int(text.startswith("\ufeff"))]
        for line in self.text_lines:
            self.starts.append(self.starts[-1] + len(line))
        self.steps = 0
        self.attributes: dict[str, set[str]] = {}  # name to attributes that the file sets on it; "?" for the rest
        self.options: dict[str, Node | None] = {}  # arguments that parsers of this file define; None: defined twice
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[int, Scope] = {}  # id of a function's node to its scope
        self.arguments: dict[int, tuple[ast.Call, Scope] | None] = {}  # id of a function's node to its only call
        self.ends: dict[int, list[ast.AST]] = {}  # id of a function's node to where it returns or yields

    def node(self, expression: ast.expr, scope: Scope) -> Node:
        """The value of ``expression`` as code of ``scope`` sees it. Never raises on a parsed tree."""
        self.steps = 0
        return self.value(expression, scope, 0)

    def at(self, of: ast.AST, value: object) -> Node:
        """A node that stands where ``of`` stands."""
        line, column = getattr(of, "lineno", 1), getattr(of, "col_offset", 0)
        last, stop = getattr(of, "end_lineno", None) or line, getattr(of, "end_col_offset", None) or column
        return Node(value, self.path, self.line(line), column + 1, self.offset(line, column), self.offset(last, stop))

    def line(self, line: int) -> int:
        """The file's own line."""
        return self.own[line - 1] if self.own is not None and 0 < line <= len(self.own) else line

    def offset(self, line: int, column: int) -> int:
        """Characters before a place that ast names in UTF-8 bytes of a line."""
        if self.own is not None or not 0 < line <= len(self.text_lines):
            return -1
        whole = self.text_lines[line - 1]
        if not whole.isascii():
            column = len(whole.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace"))
        return self.starts[line - 1] + column

    def value(self, node: ast.expr, scope: Scope, depth: int) -> Node:
        self.steps += 1
        if depth > MAX_DEPTH or self.steps > MAX_STEPS:
            return self.at(node, UNKNOWN)
        if isinstance(node, (ast.Attribute, ast.Name)):
            word = node.attr if isinstance(node, ast.Attribute) else node.id
            if word in _RANK_NAMES:
                return self.at(node, Rank(word))
        match node:
            case ast.Constant(value=constant):
                return self.at(node, constant)
            case ast.Name():
                return self.name(node, scope, depth)
            case ast.Attribute():
                return self.attribute(node, scope, depth)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self.value(operand, scope, depth + 1).value
                negative = -number if isinstance(number, (int, float)) and not isinstance(number, bool) else UNKNOWN
                return self.at(node, negative)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = self.value(operand, scope, depth + 1).value
                return self.at(node, not found if isinstance(found, _SCALARS) else UNKNOWN)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                if any(isinstance(element, ast.Starred) for element in elements):
                    return self.at(node, UNKNOWN)
                return self.at(node, tuple(self.value(element, scope, depth + 1) for element in elements))
            case ast.Dict():
                return self.mapping(node, scope, depth)
            case ast.DictComp(value=item):
                return self.at(node, {ANY: self.value(item, scope, depth + 1)})
            case ast.JoinedStr(values=parts):
                return self.at(node, self.text(parts, scope, depth))
            case ast.BinOp():
                return self.arithmetic(node, scope, depth)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                found = self.value(test, scope, depth + 1).value
                if isinstance(found, _SCALARS):
                    return self.value(body if found else orelse, scope, depth + 1)
            case ast.Subscript(value=base, slice=key):
                return self.subscript(node, base, key, scope, depth)
            case ast.Call():
                return self.call(node, scope, depth)
        return self.at(node, UNKNOWN)

    def name(self, node: ast.Name, scope: Scope, depth: int) -> Node:
        if node.id in ("__file__", "__name__"):
            return self.at(node, UNKNOWN)
        found = scope.find(node.id)
        if found is None:
            return self.at(node, Dotted(node.id))  # a builtin, or what `import *` brought
        where, binding = found
        if binding.imported is None and binding.line and binding.line < where.rebound_before:
            return self.at(node, UNKNOWN)
        if binding.times != 1:
            return self.rebound(node, where, binding, scope, depth)
        if binding.imported is not None:
            return self.at(node, Dotted(binding.imported))
        if binding.defined is not None:
            return self.at(node, Dotted(binding.defined.name))
        if binding.parameter is not None:
            return self.parameter(node, where, binding, depth)
        if binding.value is None:
            return self.at(node, UNKNOWN)
        value = self.value(binding.value, where, depth + 1)
        if binding.index is not None:
            value = self.unpacked(node, value, binding.index)
        return self.stored(node, value, where, binding, scope, depth)

    def rebound(self, node: ast.Name, where: Scope, binding: Binding, scope: Scope, depth: int) -> Node:
        """A name that one straight line of code binds again and again: the last binding before this use counts."""
        straight = binding.straight
        if len(straight) > MAX_BINDINGS:
            return self.at(node, UNKNOWN)
        before = [one for one in straight if one.end <= (node.lineno, node.col_offset)]
        if where is not scope or binding.times != len(straight) or any(one.block for one in straight) or not before:
            return self.at(node, UNKNOWN)
        value = self.value(before[-1].value, where, depth + 1)
        if before[-1].index is not None:
            value = self.unpacked(node, value, before[-1].index)
        touched = isinstance(value.value, (dict, tuple)) and (binding.stores or binding.changed)
        return self.at(node, UNKNOWN) if touched or node.id in self.attributes else value

    def stored(self, node: ast.Name, value: Node, where: Scope, binding: Binding, scope: Scope, depth: int) -> Node:
        """A container's value after the stores into it; an object whose attributes are set keeps the others."""
        if isinstance(value.value, Called) and node.id in self.attributes:
            made, lost = value.value, {name: self.at(node, UNKNOWN) for name in self.attributes[node.id]}
            return replace(value, value=replace(made, kwargs={**made.kwargs, **lost}))
        if not isinstance(value.value, (dict, tuple)):
            return value
        if binding.changed or len(binding.stores) > MAX_STORES:
            return self.at(node, UNKNOWN)
        for store in binding.stores:
            ran = where is scope and store.block == binding.block and store.line < node.lineno
            entry = self.value(store.value, where, depth + 1) if ran and store.value is not None else None
            if not ran and where is scope and store.block == binding.block and store.line > node.lineno:
                continue  # after this use, on the same straight way
            if store.keys is None and store.value is not None and isinstance(value.value, dict):
                # d[k] = v in a loop: any entry may be this one now.
                entries: dict[object, Node] = {key: self.at(node, UNKNOWN) for key in value.value if key is not ANY}
                entries[ANY] = self.value(store.value, where, depth + 1)
                value = self.at(node, entries)
                continue
            changed = _with(value, store.keys, entry or self.at(node, UNKNOWN)) if store.keys else None
            if changed is None:
                return self.at(node, UNKNOWN)
            value = changed
        return value

    def unpacked(self, node: ast.Name, value: Node, index: int) -> Node:
        """One of the names that a tuple or a parser's dataclasses are unpacked into."""
        if isinstance(value.value, tuple):
            return value.value[index] if index < len(value.value) else self.at(node, UNKNOWN)
        if isinstance(value.value, Called) and value.value.last == "parsed":
            kinds = value.value.args
            if index < len(kinds):
                return self.at(node, Called("parsed.one", (kinds[index],), {}, False))
        return self.at(node, UNKNOWN)

    def parameter(self, node: ast.Name, where: Scope, binding: Binding, depth: int) -> Node:
        """A parameter's value when the file calls its function exactly once and mentions it nowhere else.

        `fire.Fire(f)` and the like make options of the parameters instead.
        """
        call = self.arguments.get(id(where.node))
        function, argument = where.node, binding.parameter
        if call is None or function is None or argument is None or isinstance(function, ast.Lambda):
            return self.at(node, UNKNOWN)
        positional = [*function.args.posonlyargs, *function.args.args]
        site, around = call
        if isinstance(site.func, ast.Name) and site.func.id == function.name:
            if any(isinstance(a, ast.Starred) for a in site.args) or any(k.arg is None for k in site.keywords):
                return self.at(node, UNKNOWN)
            for keyword in site.keywords:
                if keyword.arg == argument.arg:
                    return self.value(keyword.value, around, depth + 1)
            if argument in positional and positional.index(argument) < len(site.args):
                return self.value(site.args[positional.index(argument)], around, depth + 1)
            default = _default(function, argument)
            return self.value(default, where, depth + 1) if default is not None else self.at(node, UNKNOWN)
        default = _default(function, argument)
        if default is None:
            return self.at(node, Option(argument.arg, self.at(node, UNKNOWN)))
        return self.at(node, Option(argument.arg, self.value(default, where.parent or where, depth + 1)))

    def attribute(self, node: ast.Attribute, scope: Scope, depth: int) -> Node:
        base = self.value(node.value, scope, depth + 1)
        name = node.value.id if isinstance(node.value, ast.Name) else "?"
        if node.attr in self.attributes.get(name, ()) and not isinstance(base.value, Dotted):
            return self.at(node, UNKNOWN)
        match base.value:
            case Dotted(name=name) if name in self.classes and node.attr not in self.attributes.get(name, ()):
                return self.field(node, base, depth, given=False)
            case Dotted(name=name):
                return self.at(node, Dotted(f"{name}.{node.attr}"))
            case Called(last="parse_args" | "parse_known_args") if self.options:
                found = self.options.get(node.attr)
                return self.at(node, UNKNOWN if found is None else found.value)
            case Called(last="Accelerator" | "PartialState" | "TrainingArguments" | "SFTConfig") if (
                node.attr == "device"
            ):
                return self.at(node, Rank("device"))
            case Called(name="parsed.one", args=(kind,)):
                return self.field(node, kind, depth)
            case Called(kwargs=kwargs) if node.attr in kwargs:
                return kwargs[node.attr]
            case Called(name=name) if name in self.classes:
                return self.field(node, self.at(node, Dotted(name)), depth, given=False)
        return self.at(node, UNKNOWN)

    def field(self, node: ast.Attribute, kind: Node, depth: int, given: bool = True) -> Node:
        """A dataclass's field: its default, and with ``given`` an option that the command line may set."""
        known = self.classes.get(kind.value.name) if isinstance(kind.value, Dotted) else None
        default = self.at(node, UNKNOWN)
        for statement in known.body if known is not None else ():
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), value=value) if name == node.attr and value is not None:
                    default = self.default(value, depth)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == node.attr:
                    default = self.default(value, depth)
        return self.at(node, Option(node.attr, default)) if given else default

    def default(self, value: ast.expr, depth: int) -> Node:
        module = Scope(node=None, parent=None)
        if isinstance(value, ast.Call) and isinstance(value.func, (ast.Name, ast.Attribute)):
            word = value.func.id if isinstance(value.func, ast.Name) else value.func.attr
            if word == "field":
                for keyword in value.keywords:
                    if keyword.arg == "default":
                        return self.value(keyword.value, module, depth + 1)
                return self.at(value, UNKNOWN)
        return self.value(value, module, depth + 1)

    def subscript(self, node: ast.Subscript, base: ast.expr, key: ast.expr, scope: Scope, depth: int) -> Node:
        container, index = self.value(base, scope, depth + 1), self.value(key, scope, depth + 1).value
        match container.value:
            case dict():
                found = container.get(index)
                return found if found is not None else self.at(node, UNKNOWN)
            case tuple() as entries if isinstance(index, int) and -len(entries) <= index < len(entries):
                entry = entries[index]
                return entry if isinstance(entry, Node) else self.at(node, UNKNOWN)
            case Dotted(name="os.environ" | "environ") if isinstance(index, str) and index in _RANK_WORDS:
                return self.at(node, Rank(index))
        return self.at(node, UNKNOWN)

    def arithmetic(self, node: ast.BinOp, scope: Scope, depth: int) -> Node:
        left = self.value(node.left, scope, depth + 1)
        right = self.value(node.right, scope, depth + 1)
        a, b, compute = left.value, right.value, _ARITHMETIC.get(type(node.op))
        if isinstance(node.op, ast.Div) and isinstance(b, str):  # Path(__file__).parent / "ds.json"
            return self.at(node, Called("os.path.join", (left, right)))
        if isinstance(node.op, ast.BitOr) and isinstance(a, dict) and isinstance(b, dict):
            return self.at(node, {**a, **b})
        if isinstance(node.op, ast.Add) and isinstance(a, str) and isinstance(b, str) and len(a) + len(b) <= MAX_TEXT:
            return self.at(node, a + b)
        if (
            isinstance(node.op, ast.Pow)
            and isinstance(a, int)
            and isinstance(b, int)
            and 0 <= b <= 64
            and abs(a) <= 4096
        ):
            return self.at(node, a**b)
        numbers = all(isinstance(n, (int, float)) and not isinstance(n, bool) and abs(n) < 2**80 for n in (a, b))
        if compute is None or not numbers or (b == 0 and not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult))):
            return self.at(node, UNKNOWN)
        return self.at(node, compute(a, b))  # type: ignore[arg-type]

    def text(self, parts: list[ast.expr], scope: Scope, depth: int) -> object:
        """An f-string of plain strings and ints alone, since a format or conversion changes the text."""
        text = ""
        for part in parts:
            if isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion == -1:
                found = self.value(part.value, scope, depth + 1).value
            else:
                found = part.value if isinstance(part, ast.Constant) else UNKNOWN
            if isinstance(found, Rank) and text.endswith("cuda:"):
                return found
            if not isinstance(found, (str, int)):
                return UNKNOWN
            try:
                text += str(found)
            except ValueError:  # an int of more than 4300 digits has no decimal text by default
                return UNKNOWN
            if len(text) > MAX_TEXT:
                return UNKNOWN
        return text

    def mapping(self, node: ast.Dict, scope: Scope, depth: int) -> Node:
        """A dict display; `**other` is merged when known. An unknown key or merge could be any: all is `UNKNOWN`."""
        result: dict[object, Node] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            found = self.value(item, scope, depth + 1)
            if key is None:
                if not isinstance(found.value, dict):
                    return self.at(node, UNKNOWN)
                result.update(found.value)
                continue
            name = self.value(key, scope, depth + 1).value
            if not isinstance(name, _SCALARS):
                return self.at(node, UNKNOWN)
            result[name] = found
        return self.at(node, result)

    def made(self, node: ast.Call, scope: Scope) -> Node:
        """A call itself, whatever its value is."""
        self.steps = 0
        name = self.callee(node.func, scope, 0)
        return self.at(node, UNKNOWN) if name is None else self.at(node, self.made_of(node, name, scope, 0))

    def call(self, node: ast.Call, scope: Scope, depth: int) -> Node:
        name = self.callee(node.func, scope, depth)
        if name is None:
            return self.at(node, UNKNOWN)
        last = name.rpartition(".")[2]
        if last in _RANK_CALLS or (last == "device" and node.args and self.is_rank(node.args[0], scope, depth)):
            return self.at(node, Rank(f"{last}()"))
        if name in _READS_ENVIRONMENT and node.args:
            key = self.value(node.args[0], scope, depth + 1).value
            return self.at(node, Rank(key) if isinstance(key, str) and key in _RANK_WORDS else UNKNOWN)
        if last in ("deepcopy", "copy", "int", "str", "abs") and len(node.args) == 1 and not node.keywords:
            return self.converted(node, last, self.value(node.args[0], scope, depth + 1))
        if last == "copy" and isinstance(node.func, ast.Attribute) and not node.args:
            return self.value(node.func.value, scope, depth + 1)
        returned = self.returned(node, scope, depth)
        if returned is not None:
            return returned
        called = self.made_of(node, name, scope, depth)
        if name == "dict" and not node.args:
            return self.at(node, dict(called.kwargs) if called.whole else UNKNOWN)
        return self.at(node, called)

    def made_of(self, node: ast.Call, name: str, scope: Scope, depth: int) -> Called:
        """A call's arguments. ``name`` is what is called."""
        if name.rpartition(".")[2] in _PARSERS:
            return Called("parsed", self.dataclasses(node, scope, depth), {}, False)
        kwargs: dict[str, Node] = {}
        whole = True
        for keyword in node.keywords:
            value = self.value(keyword.value, scope, depth + 1)
            if keyword.arg is not None:
                kwargs[keyword.arg] = self.keyword(keyword, value)
            elif isinstance(value.value, dict) and all(isinstance(key, str) for key in value.value):
                kwargs.update({str(key): item for key, item in value.value.items()})
            else:
                whole = False
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        args = () if starred else tuple(self.value(argument, scope, depth + 1) for argument in node.args)
        return Called(name, args, kwargs, whole and not starred)

    def keyword(self, keyword: ast.keyword, value: Node) -> Node:
        """The value as the call's argument: it stands in the call even when it was computed elsewhere."""
        return Node(value.value, self.path, self.line(keyword.lineno), keyword.col_offset + 1,
                    self.offset(keyword.value.lineno, keyword.value.col_offset),
                    self.offset(keyword.value.end_lineno or 0, keyword.value.end_col_offset or 0),
                    self.line(keyword.lineno), self.offset(keyword.lineno, keyword.col_offset))  # fmt: skip

    def converted(self, node: ast.Call, last: str, value: Node) -> Node:
        found = value.value
        if last in ("deepcopy", "copy") or isinstance(found, Rank):
            return value
        if last == "str" and isinstance(found, (str, int)) and (isinstance(found, str) or abs(found) < 2**64):
            return self.at(node, str(found))
        if last == "int" and isinstance(found, str) and len(found) < 30:
            try:
                return self.at(node, int(found))
            except ValueError:
                return self.at(node, UNKNOWN)
        if last == "int" and isinstance(found, int):
            return self.at(node, found)
        return self.at(node, UNKNOWN)

    def is_rank(self, node: ast.expr, scope: Scope, depth: int) -> bool:
        return isinstance(self.value(node, scope, depth + 1).value, Rank)

    def callee(self, function: ast.expr, scope: Scope, depth: int = 0) -> str | None:
        """The dotted name that is called; the last part alone for a method of something unknown: ``?.save_model``."""
        match function:
            case ast.Name():
                found = self.value(function, scope, depth + 1).value
                return found.name if isinstance(found, Dotted) else f"?{function.id}"
            case ast.Attribute(value=base, attr=attr):
                found = self.value(base, scope, depth + 1).value
                if isinstance(found, Dotted):
                    return f"{found.name}.{attr}"
                if isinstance(found, Called):
                    return f"{found.name}.().{attr}"
                return f"?.{attr}"
        return None

    def dataclasses(self, node: ast.Call, scope: Scope, depth: int) -> tuple[Node, ...]:
        """The classes that a HfArgumentParser was made for."""
        if not isinstance(node.func, ast.Attribute):
            return ()
        parser = self.value(node.func.value, scope, depth + 1).value
        if not isinstance(parser, Called):
            return ()
        kinds = parser.args[0] if parser.args else parser.kwargs.get("dataclass_types")
        if kinds is None:
            return ()
        return kinds.value if isinstance(kinds.value, tuple) else (kinds,)

    def returned(self, node: ast.Call, scope: Scope, depth: int) -> Node | None:
        """What a function of this file returns, when it has a single return; parameters count as `parameter` says."""
        if not isinstance(node.func, ast.Name):
            return None
        found = scope.find(node.func.id)
        function = found[1].defined if found is not None and found[1].times == 1 else None
        if not isinstance(function, ast.FunctionDef) or function.decorator_list:
            return None
        inner = self.functions.get(id(function))
        if id(function) not in self.ends:
            self.ends[id(function)] = [one for one in _own(function) if isinstance(one, _ENDS)]
        returns = self.ends[id(function)]
        if inner is None or len(returns) != 1 or not isinstance(returns[0], ast.Return) or returns[0].value is None:
            return None
        return self.value(returns[0].value, inner, depth + 1)


def _own(function: ast.FunctionDef) -> list[ast.AST]:
    """Nodes of a function without those of functions inside it."""
    found: list[ast.AST] = []
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            stack += children(node)
    return found


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, argument: ast.arg) -> ast.expr | None:
    positional = [*function.args.posonlyargs, *function.args.args]
    if argument in positional:
        at = positional.index(argument) - len(positional) + len(function.args.defaults)
        return function.args.defaults[at] if at >= 0 else None
    if argument in function.args.kwonlyargs:
        return function.args.kw_defaults[function.args.kwonlyargs.index(argument)]
    return None


def _with(node: Node, keys: tuple[object, ...] | None, value: Node) -> Node | None:
    """``node`` with one entry set; None when that cannot be told."""
    if not keys:
        return value
    if not isinstance(node.value, dict) or (len(keys) > 1 and keys[0] not in node.value):
        return None
    inner = value if len(keys) == 1 else _with(node.value[keys[0]], keys[1:], value)
    if inner is None:
        inner = Node(UNKNOWN, node.path, node.line)
    return Node({**node.value, keys[0]: inner}, node.path, node.line, node.column, node.start, node.end)


def _split(text: str) -> list[str]:
    """Lines as Python counts them, with their ends: unlike `str.splitlines`, not at form feeds and the like."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)
