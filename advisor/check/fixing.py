"""Safe fixes: a file's edits as one new text, shown as a diff and written whole.

A finding's edits are made together or not at all; one that overlaps what an earlier finding changes waits for the next
run. Line ends, a byte-order mark and permissions stay as they are, and a link keeps pointing to its file.
"""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.check.types import Edit, Finding
from advisor.errors import InputError
from advisor.files import write_whole

_LINE = re.compile("[^\n]*\n|[^\n]+\\Z")  # what patch calls a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """One file before and after; ``findings`` are those that the new text mends."""

    path: str
    before: str
    after: str
    findings: tuple[Finding, ...]


def fixed(findings: Iterable[Finding]) -> tuple[Fixed, ...]:
    """The files that findings with edits change, in order of their paths.

    A finding whose edits lie in several files is mended in all of them or in none.
    """
    texts: dict[str, str | None] = {}
    taken: dict[str, list[Edit]] = {}
    mended: dict[str, list[Finding]] = {}
    for finding in findings:
        for edit in finding.edits:
            if edit.path not in texts:
                texts[edit.path] = _read(edit.path)
        new = [edit for edit in finding.edits if edit not in taken.get(edit.path, ())]
        if not finding.edits or not all(_stands(edit, texts[edit.path], taken.get(edit.path, [])) for edit in new):
            continue
        for edit in new:
            taken.setdefault(edit.path, []).append(edit)
        for path in {edit.path for edit in finding.edits}:
            mended.setdefault(path, []).append(finding)
    found = []
    for path, edits in sorted(taken.items()):
        before = texts[path]
        assert before is not None  # or no edit of it would stand
        after = _edited(before, edits)
        if after != before:
            found.append(Fixed(path=path, before=before, after=after, findings=tuple(mended[path])))
    return tuple(found)


def diff(files: Iterable[Fixed]) -> str:
    """One unified diff of all files, as ``git apply`` and ``patch -p1`` take it."""
    return "".join(line for file in files for line in _diff(file))


def write(file: Fixed) -> None:
    """Write the new text. Raises InputError when the file changed since it was read, or cannot be written."""
    path = Path(file.path).resolve()  # a rename over a link would cut it off from its file
    if _read(str(path)) != file.before:
        raise InputError(file.path, "changed while it was checked, so it is left alone", expected="another run")
    write_whole(path, file.after, mode=stat.S_IMODE(path.stat().st_mode))


def _stands(edit: Edit, text: str | None, taken: list[Edit]) -> bool:
    """Whether an edit lies in the text and touches nothing that is changed already."""
    if text is None or not 0 <= edit.start <= edit.end <= len(text):
        return False
    return not any((edit.start < other.end and other.start < edit.end) or edit.start == other.start for other in taken)


def _edited(text: str, edits: list[Edit]) -> str:
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _read(path: str) -> str | None:
    """The text as it lies there, line ends and mark included; None when it is no UTF-8 text."""
    try:
        return Path(path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _diff(file: Fixed) -> Iterator[str]:
    path = Path(file.path)
    name = (path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path).as_posix().lstrip("/")
    before, after = _LINE.findall(file.before), _LINE.findall(file.after)
    for line in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
