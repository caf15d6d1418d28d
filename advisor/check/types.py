"""The nouns of a check: what a rule is, what it finds, what it cannot tell, and how it would mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A safe change: the text from (line, column) up to (end_line, end_column) of ``path`` becomes ``text``.

    Lines and columns count from 1, columns in characters; the end is not included.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong. ``line`` and ``column`` count from 1; 0 (and an empty path) where there is no place."""

    code: str
    severity: Severity
    path: str
    line: int
    column: int
    message: str
    fix: str | None = None
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What cannot be told without running the code, and where; ``--strict`` shows it."""

    code: str
    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that is looked for; ``since`` says which library versions it holds for."""

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    fix: str
    since: str
    check: Callable[[Any], Any]
