"""ADV001: a file that was to be checked and could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from advisor.check.project import Project
from advisor.check.readers.python import refusal
from advisor.check.sources import Unread
from advisor.check.types import Doubt, Finding, Rule, Severity

# In a folder, these are code that somebody runs; data files of any size and form are passed over in silence.
_CODE = (".py", ".ipynb", ".sh", ".bash", ".slurm", ".sbatch")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Files that were named, or lie in a named folder and speak of training, and were not checked."""
    for path, unread in sorted(project.read.unread.items()):
        severity = _severity(path, unread, path in project.named)
        if severity is not None:
            yield _finding(path, unread, severity)
    for path in sorted(project.named & project.read.texts.keys() - project.read.unread.keys()):
        # Without a word that rules look for it was not even parsed; who names a file wants to hear that it is broken.
        script = project.read.scripts.get(path)
        if path.endswith(".py") and script is not None and not script.imports and not script.calls:
            reason, line, column = refusal(project.read.texts[path])
            if reason:
                yield _finding(path, Unread(reason, line, column), "error")


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
    "otherwise.",
    fix="mend the file, or leave it out with exclude",
    since="any version",
    check=check,
)
