"""Values of Python expressions, read off the syntax tree and never run.

Sound by refusal: a name counts only when its scope binds it exactly once, to something known. Everything else is
`UNKNOWN`, on which a rule must stay silent. Not followed yet: a container changed through another name of it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Final

MAX_DEPTH: Final = 60  # deeper expressions are UNKNOWN: no input may exhaust Python's stack
MAX_STEPS: Final = 20_000  # b = [a, a]; c = [b, b]; … doubles with every line, so work is bounded, not only depth
MAX_TEXT: Final = 10_000  # characters that an f-string may build


class Unknown:
    """The value of an expression that cannot be told without running it. There is one: `UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


def single_bindings(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """Names that one scope's statements bind exactly once, by a plain top-level assignment, with the expression bound.

    A name that is bound a second time anywhere in the tree (loop, branch, `with`, `global`, `del`, import, parameter,
    augmented or subscript assignment, method call on it) is left out, since which value holds then depends on the run.
    """
    bound: dict[str, ast.expr] = {}
    times: dict[str, int] = {}

    def count(name: str | None, by: int = 1) -> None:
        if name is not None:
            times[name] = times.get(name, 0) + by

    for statement in body:
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        ):
            bound[statement.targets[0].id] = statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            bound[statement.target.id] = statement.value
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                count(node.id)
            elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.value, ast.Name):
                # d["k"] = …, d.update(…): the object may no longer be what it was bound to.
                touched = not isinstance(node.ctx, ast.Load) or isinstance(node, ast.Attribute)
                count(node.value.id, 2 if touched else 0)
            elif isinstance(node, ast.arg):
                count(node.arg)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                count(node.name)
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                for name in node.names:
                    count(name, 2)
            elif isinstance(node, ast.alias):
                count((node.asname or node.name).split(".")[0])
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
                count(node.name)
            elif isinstance(node, ast.MatchMapping):
                count(node.rest)
    return {name: value for name, value in bound.items() if times.get(name) == 1}


def evaluate(node: ast.expr, names: Mapping[str, ast.expr]) -> object:
    """The value of `node`, or `UNKNOWN`; containers may hold `UNKNOWN` inside. Never raises on a parsed tree."""
    return _Evaluator(names).value(node, 0)


class _Evaluator:
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names
        self.steps = 0

    def value(self, node: ast.expr, depth: int) -> object:
        self.steps += 1
        if depth > MAX_DEPTH or self.steps > MAX_STEPS:
            return UNKNOWN
        match node:
            case ast.Constant(value=constant):
                return constant
            case ast.Name(id=name):
                return self.value(self.names[name], depth + 1) if name in self.names else UNKNOWN
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self.value(operand, depth + 1)
                return -number if isinstance(number, (int, float)) and not isinstance(number, bool) else UNKNOWN
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                if any(isinstance(element, ast.Starred) for element in elements):
                    return UNKNOWN
                return [self.value(element, depth + 1) for element in elements]
            case ast.Dict():
                return self.mapping(node, depth)
            case ast.JoinedStr(values=parts):
                return self.text(parts, depth)
        return UNKNOWN

    def text(self, parts: list[ast.expr], depth: int) -> object:
        """An f-string of plain strings and ints alone, since a format or conversion changes the text."""
        text = ""
        for part in parts:
            if isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion == -1:
                found = self.value(part.value, depth + 1)
            else:
                found = part.value if isinstance(part, ast.Constant) else UNKNOWN
            if not isinstance(found, (str, int)):
                return UNKNOWN
            try:
                text += str(found)
            except ValueError:  # an int of more than 4300 digits has no decimal text by default
                return UNKNOWN
            if len(text) > MAX_TEXT:
                return UNKNOWN
        return text

    def mapping(self, node: ast.Dict, depth: int) -> object:
        """A dict display; `**other` is merged when known. An unknown key or merge could be any: all is `UNKNOWN`."""
        result: dict[object, object] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            found = self.value(item, depth + 1)
            if key is None:
                if not isinstance(found, dict):
                    return UNKNOWN
                result.update(found)
                continue
            name = self.value(key, depth + 1)
            if not isinstance(name, (str, int, float, bool, bytes, type(None))):
                return UNKNOWN
            result[name] = found
        return result
