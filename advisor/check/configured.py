"""Settings from ``pyproject.toml``: ``[tool.advisor]``, and ``[tool.advisor.check]`` which comes before it.

The nearest pyproject.toml with such a table counts, looked for from the checked paths upward to the repository's root.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.check.toml import table
from advisor.errors import InputError

KEYS = ("select", "ignore", "per-file-ignores", "exclude", "strict", "hardware", "min-headroom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """What a pyproject.toml says; ``root`` is its folder, which the patterns are relative to."""

    root: Path
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    strict: bool = False
    hardware: str | None = None
    min_headroom: float | None = None


def configured(paths: Sequence[Path]) -> Configured:
    """The settings that hold for ``paths``; the defaults where no file has any.

    Raises InputError for a pyproject.toml that is no TOML, and for unknown keys or wrong values in our tables.
    """
    try:
        places = [path.absolute() for path in paths] or [Path.cwd()]
    except OSError as error:
        raise InputError(".", "is gone", expected="a folder that is there") from error
    start = Path(os.path.commonpath(places))
    start = start if start.is_dir() else start.parent
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        ours = _table(file) if _there(file) and not file.is_dir() else None
        if ours is not None:
            return _read(ours, file)
        if _there(folder / ".git"):
            break
    return Configured(root=start)


def _there(path: Path) -> bool:
    """Whether it is there; above the checked folders may lie one that nobody may look into."""
    try:
        return path.exists()
    except OSError:
        return False


def share(where: str, value: object) -> float:
    """A share of memory: "10%", or a number from 0 up to 1. Raises InputError for anything else."""
    amount: float | None = None
    if isinstance(value, str):
        text = value.strip()
        try:
            amount = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            amount = None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        amount = float(value)
    if amount is None or not 0 <= amount < 1:
        raise InputError(where, "is no share of memory", found=value, expected='such as "10%", or a number below 1')
    return amount


def _table(file: Path) -> dict[str, Any] | None:
    """Our tables merged, or None when the file has none."""
    try:
        whole = table(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(str(file), f"cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(file), f"is not valid TOML ({error})") from error
    tool = whole.get("tool")
    ours = tool.get("advisor") if isinstance(tool, dict) else None
    if ours is None:
        return None
    if not isinstance(ours, dict):
        raise InputError(str(file), "is no table", field="tool.advisor", found=ours)
    check = ours.get("check", {})
    if not isinstance(check, dict):
        raise InputError(str(file), "is no table", field="tool.advisor.check", found=check)
    _known(file, "tool.advisor", [key for key in ours if key != "check"])
    _known(file, "tool.advisor.check", list(check))
    return {**{key: value for key, value in ours.items() if key != "check"}, **check}


def _known(file: Path, table: str, keys: list[str]) -> None:
    for key in keys:
        if key not in KEYS:
            near = difflib.get_close_matches(key.replace("_", "-"), KEYS, n=1)
            expected = f"{near[0]}?" if near else f"one of {', '.join(KEYS)}"
            raise InputError(str(file), "is not known", field=f"{table}.{key}", expected=expected)


def _read(table: dict[str, Any], file: Path) -> Configured:
    where = str(file)
    ignores = table.get("per-file-ignores", {})
    if not isinstance(ignores, dict):
        raise InputError(where, "is no table", field="per-file-ignores", found=ignores, expected="pattern = [codes]")
    strict = table.get("strict", False)
    if not isinstance(strict, bool):
        raise InputError(where, "is neither true nor false", field="strict", found=strict)
    hardware = table.get("hardware")
    if hardware is not None and not isinstance(hardware, str):
        raise InputError(where, "is no text", field="hardware", found=hardware, expected="a profile's name or path")
    headroom = table.get("min-headroom")
    return Configured(
        root=file.parent,
        select=_texts(where, "select", table.get("select", [])),
        ignore=_texts(where, "ignore", table.get("ignore", [])),
        per_file_ignores={
            pattern: _texts(where, f'per-file-ignores."{pattern}"', codes) for pattern, codes in ignores.items()
        },
        exclude=_texts(where, "exclude", table.get("exclude", [])),
        strict=strict,
        hardware=hardware,
        min_headroom=None if headroom is None else share(f"{where}: min-headroom", headroom),
    )


def _texts(where: str, field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(where, "is no list of texts", field=field, found=value, expected='such as ["ADV101"]')
    return tuple(value)
