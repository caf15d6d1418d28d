"""The cases beside the rules: for each answer of each node, facts that lead there and the leaf where the walk ends.

``rules/NAME.cases.toml`` holds a list of cases a node. Facts that a case leaves out keep their quietest value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.decide.facts import FACTS, Value, neutral
from advisor.decide.rules import Tree, read_toml
from advisor.decide.walk import walk
from advisor.errors import InputError

_KEYS = ("answer", "leaf", "facts")
_PYTHON: dict[str, type | tuple[type, ...]] = {"flag": bool, "number": (int, float), "text": str}


@dataclass(frozen=True, slots=True)
class Case:
    """``code`` answers ``answer`` under ``facts``, and the walk ends at ``leaf``."""

    code: str
    answer: bool
    leaf: str
    facts: dict[str, Value]
    file: Path


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases of one file. Raises InputError naming file and node for an unknown key, fact or type."""
    return tuple(case for code, rows in read_toml(path).items() for case in _cases(path, code, rows))


def _cases(path: Path, code: str, rows: object) -> Iterator[Case]:
    if not isinstance(rows, list):
        raise InputError(str(path), "is no list of cases", field=code, expected=f"[[{code}]]")
    for row in rows:
        if set(row) != set(_KEYS):
            raise InputError(str(path), "has other keys", field=code, found=sorted(row), expected=", ".join(_KEYS))
        if row["answer"] not in ("yes", "no"):
            raise InputError(
                str(path), "is no answer", field=f"{code}.answer", found=row["answer"], expected="yes or no"
            )
        yield Case(code, row["answer"] == "yes", row["leaf"], _facts(path, code, row["facts"]), path)


def _facts(path: Path, code: str, given: dict[str, Value]) -> dict[str, Value]:
    facts = neutral()
    for name, value in given.items():
        fact = FACTS.get(name)
        if fact is None:
            raise InputError(str(path), "is no fact", field=f"{code}.facts", found=name)
        if not isinstance(value, _PYTHON[fact.type]) or (fact.type == "number" and isinstance(value, bool)):
            raise InputError(str(path), f"is no {fact.type}", field=f"{code}.facts.{name}", found=value)
        facts[name] = value
    return facts


def complaint(tree: Tree, case: Case) -> str | None:
    """What a case finds wrong with a tree, in one sentence; None when the tree does what the case says."""
    taken = walk(tree, case.facts)
    trace = " ".join(f"{step.code}:{'yes' if step.answer else 'no'}" for step in taken.path)
    answers = {step.code: step.answer for step in taken.path}
    if case.code not in answers:
        return f"{case.file.name}: the case of {case.code} does not pass it: {trace} -> {taken.leaf}"
    if answers[case.code] != case.answer:
        return f"{case.file.name}: {case.code} answers {'no' if case.answer else 'yes'}: {trace} -> {taken.leaf}"
    if taken.leaf != case.leaf:
        return f"{case.file.name}: a case of {case.code} ends at {taken.leaf}, not {case.leaf}: {trace}"
    return None


def missing(tree: Tree, cases: tuple[Case, ...]) -> list[str]:
    """Answers without a case, as "CODE yes"."""
    there = {(case.code, case.answer) for case in cases}
    return [f"{code} {'yes' if a else 'no'}" for code in tree.nodes for a in (True, False) if (code, a) not in there]
