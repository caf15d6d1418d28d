"""What several formats say alike: counts, and paths and texts that any encoder takes."""

from __future__ import annotations

from pathlib import Path, PurePath

from advisor.check.checked import SEVERITIES, Checked


def counted(checked: Checked) -> str:
    """ "2 errors and 1 warning in 12 files"."""
    parts = [
        f"{number} {name}{'s' if number != 1 and name != 'info' else ''}"
        for name in SEVERITIES
        if (number := checked.count(name))
    ]
    found = " and ".join(", ".join(parts).rsplit(", ", 1)) if parts else "nothing found"
    if not checked.files and (checked.findings or checked.fits):
        return found  # a plan or job alone was checked
    return f"{found} in {checked.files} file{'s' if checked.files != 1 else ''}"


def shown_path(path: str) -> str:
    """A path as reports show it: forward slashes, and text that any encoder takes (names may hold any bytes)."""
    return clean(PurePath(path).as_posix() if path else "")


def clean(text: str) -> str:
    """``text`` without lone surrogates, which stand for undecodable bytes of file names and break encoders."""
    return text.encode("utf-8", "replace").decode("utf-8")


def from_here(path: str) -> str | None:
    """A path relative to this folder, with forward slashes; None for one that lies outside."""
    plain = PurePath(path)
    if not plain.is_absolute() and ".." not in plain.parts:
        return plain.as_posix()
    absolute, here = Path(path).resolve(), Path.cwd().resolve()
    return absolute.relative_to(here).as_posix() if absolute.is_relative_to(here) else None
