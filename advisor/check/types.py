"""What a check says: findings with their safe edits, doubts, and the rules that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from advisor.check.project import Project

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A safe change of one file: the characters from ``start`` up to ``end`` become ``text``.

    Offsets count characters of the file read as UTF-8 (a byte order mark is the first) with its line ends untouched.
    """

    path: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault at one place; ``line`` and ``column`` count from 1, 0 where there is no place.

    ``message`` is one sentence with the values found, ``fix`` says what to write instead. ``edits`` are there only when
    the change keeps what the author meant whatever the rest of the program does.
    """

    code: str
    severity: Severity
    path: str
    line: int
    column: int
    message: str
    fix: str | None
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What could not be told without running the code; ``line`` counts from 1, 0 where there is no place."""

    path: str
    line: int
    message: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One lint rule. ``since`` names the versions that it holds for, ``check`` looks through everything that was read."""

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    fix: str
    since: str
    check: Callable[[Project], Iterator[Finding | Doubt]]
