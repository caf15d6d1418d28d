"""ADV001: a file that was to be checked and could not be read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import PurePath

from advisor.check.project import Project
from advisor.check.readers.python import refusal
from advisor.check.sources import Unread
from advisor.check.types import Doubt, Finding, Rule, Severity

# In a folder, these are code that somebody runs; data files of any size and form are passed over in silence.
_CODE = (".py", ".ipynb", ".sh", ".bash", ".slurm", ".sbatch")
# Forms that a version of Python brought: generics, type statements and any quotes in f-strings; t-strings and bare excepts.
_SINCE = {
    (3, 12): re.compile(r"^\s*(?:async\s+)?(?:def|class)\s+\w+\s*\[|^\s*type\s+\w+|\b[rR]?[fF][rR]?['\"]"),
    (3, 14): re.compile(r"\b[tT]['\"]|^\s*except\s+[^(:]+,"),
}


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Files that were named, or lie in a named folder and speak of training, and were not checked."""
    for path, unread in sorted(project.read.unread.items()):
        newer = unread.relevant and _newer(project.read.texts.get(path, ""), unread.line)
        severity = "info" if newer else _severity(path, unread, path in project.named)
        if severity is not None:
            yield _finding(path, unread, severity)
    for path in sorted(project.named & project.read.texts.keys() - project.read.unread.keys()):
        # Without a word that rules look for it was not even parsed; who names a file wants to hear that it is broken.
        script = project.read.scripts.get(path)
        if path.endswith(".py") and script is not None and not script.imports and not script.calls:
            reason, line, column = refusal(project.read.texts[path])
            if reason:
                yield _finding(path, Unread(reason, line, column), "error")


def _newer(text: str, line: int) -> bool:
    """Whether a line that does not parse may be right for a newer Python than the one that checks."""
    lines = text.split("\n")
    return 0 < line <= len(lines) and any(
        sys.version_info < since and form.search(lines[line - 1]) for since, form in _SINCE.items()
    )


def _severity(path: str, unread: Unread, named: bool) -> Severity | None:
    if named:
        return "error"
    suffix = PurePath(path).suffix.lower()
    if unread.relevant:
        return "info" if suffix in (".yaml", ".yml") else "warning"  # YAML is a template more often than not
    return "info" if suffix in _CODE else None


def _finding(path: str, unread: Unread, severity: Severity) -> Finding:
    return Finding(
        code=RULE.code, severity=severity, path=path, line=unread.line, column=unread.column,
        message=f"{PurePath(path).name} was not checked: it {unread.reason}", fix=RULE.fix,
    )  # fmt: skip


RULE = Rule(
    code="ADV001",
    name="cannot-be-read",
    severity="error",
    what="A file could not be read, so nothing in it was checked.",
    why="A check that passes over a file in silence says that it is right. A file that was named is an error; "
    "one found in a folder is a warning when it speaks of training and cannot be parsed, and information "
    "otherwise, also where the line that stops the parser may be right for a newer Python than the one that checks.",
    fix="mend the file, or leave it out with exclude",
    since="any version",
    check=check,
)
