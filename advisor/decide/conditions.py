"""Conditions of the rules: short comparisons over declared facts.

A condition is parsed by Python's ``ast`` and held against a whitelist: facts, numbers, strings, comparisons,
``+ - * /``, ``and or not``, ``in`` with a tuple of constants. It is typed when loaded (a comparison of bytes with
tokens a second is an error) and evaluated by walking the tree. Nothing is ever compiled or run.
"""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.decide.facts import FACTS, Value, show
from advisor.decide.types import Condition

MAX_LENGTH = 160
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


class ConditionError(ValueError):
    """What is wrong with a condition, in one sentence; the loader adds file and node."""


@dataclass(frozen=True, slots=True)
class _Type:
    kind: str  # flag | number | text
    unit: str | None = ""  # None: a plain number, which goes with every unit


@dataclass(frozen=True, slots=True)
class Compiled:
    """A checked condition: its text, its tree and the facts that it reads, in order.

    A comparison with an unknown number is false, so ``not a > b`` reads "a is not known to be more than b".
    """

    text: str
    tree: ast.expr = field(compare=False)
    facts: tuple[str, ...]

    def evaluate(self, facts: Mapping[str, Value]) -> Condition:
        """Whether it holds, with the values that it saw."""
        seen = tuple((name, show(name, facts[name])) for name in self.facts)
        return Condition(text=self.text, holds=_value(self.tree, facts) is True, values=seen)


def compile_condition(text: str) -> Compiled:
    """Parse and type a condition. Raises ConditionError saying what is wrong with it."""
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"is longer than {MAX_LENGTH} characters: split it, all of `when` must hold")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConditionError(f"is no condition ({getattr(error, 'msg', None) or error})") from error
    names: dict[str, None] = {}
    kind = _type(tree, names).kind
    if kind != "flag":
        raise ConditionError(f"is a {kind}, which neither holds nor fails: compare it with something")
    if not names:
        raise ConditionError("asks about no fact")
    return Compiled(text, tree, tuple(names))


def _fact_name(node: ast.Name | ast.Attribute) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    raise ConditionError(f"has {ast.unparse(node)}, which is no name of a fact")


def _type(node: ast.expr, names: dict[str, None]) -> _Type:
    match node:
        case ast.Name() | ast.Attribute():
            return _fact_type(_fact_name(node), names)
        case ast.Constant(value=bool()):
            return _Type("flag")
        case ast.Constant(value=int() | float()):
            return _Type("number", None)
        case ast.Constant(value=str()):
            return _Type("text")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _demand(operand, "flag", names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _demand(operand, "number", names)
        case ast.BoolOp(values=values):
            for value in values:
                _demand(value, "flag", names)
            return _Type("flag")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _arithmetic(op, _demand(left, "number", names), _demand(right, "number", names), node)
        case ast.Compare():
            return _comparison(node, names)
    raise ConditionError(f"has {ast.unparse(node)}, which conditions do not know")


def _fact_type(name: str, names: dict[str, None]) -> _Type:
    fact = FACTS.get(name)
    if fact is None:
        near = difflib.get_close_matches(name, list(FACTS), n=3)
        raise ConditionError(f"asks about {name}, which is no fact" + (f" (near: {', '.join(near)})" if near else ""))
    names[name] = None
    return _Type(fact.type, None if fact.unit in ("", "ratio") else fact.unit)


def _demand(node: ast.expr, kind: str, names: dict[str, None]) -> _Type:
    found = _type(node, names)
    if found.kind != kind:
        raise ConditionError(f"has {ast.unparse(node)}, a {found.kind}, where a {kind} belongs")
    return found


def _arithmetic(op: ast.operator, left: _Type, right: _Type, node: ast.expr) -> _Type:
    if isinstance(op, ast.Add | ast.Sub):
        _same_unit(left, right, node)
        return left if left.unit is not None else right
    if isinstance(op, ast.Div) and left.unit == right.unit:
        return _Type("number", None)
    if isinstance(op, ast.Mult) and left.unit is None:
        return right
    if right.unit is None:
        return left
    raise ConditionError(f"has {ast.unparse(node)}, whose unit no fact has")


def _same_unit(left: _Type, right: _Type, node: ast.expr) -> None:
    if left.unit is not None and right.unit is not None and left.unit != right.unit:
        raise ConditionError(f"compares {left.unit} with {right.unit} in {ast.unparse(node)}")


def _comparison(node: ast.Compare, names: dict[str, None]) -> _Type:
    if len(node.ops) != 1:
        raise ConditionError(f"has {ast.unparse(node)}: one comparison at a time")
    op, right = node.ops[0], node.comparators[0]
    left_type = _type(node.left, names)
    if isinstance(op, ast.In | ast.NotIn):
        if not isinstance(right, ast.Tuple) or not right.elts:
            raise ConditionError(f"has {ast.unparse(node)}: `in` wants constants in parentheses")
        for element in right.elts:
            if not isinstance(element, ast.Constant):
                raise ConditionError(f"has {ast.unparse(element)} behind `in`, which is no constant")
            _demand(element, left_type.kind, names)
        return _Type("flag")
    if type(op) not in _COMPARE:
        raise ConditionError(f"has {ast.unparse(node)}, a comparison that conditions do not know")
    right_type = _demand(right, left_type.kind, names)
    if left_type.kind != "number" and isinstance(op, _ORDER):
        raise ConditionError(f"orders {left_type.kind}s in {ast.unparse(node)}")
    _same_unit(left_type, right_type, node)
    return _Type("flag")


def _value(node: ast.expr, facts: Mapping[str, Value]) -> Value:
    """A checked tree's value; None for a number that hangs on something unknown."""
    match node:
        case ast.Name() | ast.Attribute():
            return facts[_fact_name(node)]
        case ast.Constant(value=value) if isinstance(value, bool | int | float | str):
            return value
        case ast.UnaryOp(op=op, operand=operand):
            inner = _value(operand, facts)
            if isinstance(op, ast.Not):
                return not inner
            return None if inner is None else -_number(inner)
        case ast.BoolOp(op=op, values=values):
            found = [bool(_value(value, facts)) for value in values]
            return any(found) if isinstance(op, ast.Or) else all(found)
        case ast.BinOp(left=left, op=op, right=right):
            first, second = _value(left, facts), _value(right, facts)
            if first is None or second is None or (isinstance(op, ast.Div) and second == 0):
                return None
            return _ARITHMETIC[type(op)](_number(first), _number(second))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compare(_value(left, facts), op, right, facts)
    raise AssertionError(f"unchecked condition {ast.dump(node)}")


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value


def _compare(first: Value, op: ast.cmpop, right: ast.expr, facts: Mapping[str, Value]) -> bool:
    if first is None:
        return False
    if isinstance(right, ast.Tuple):
        inside = first in [_value(element, facts) for element in right.elts]
        return inside if isinstance(op, ast.In) else not inside
    second = _value(right, facts)
    return second is not None and _COMPARE[type(op)](first, second)
