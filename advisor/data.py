"""Where the shipped rules and hardware profiles lie: inside the wheel, or beside the package in a source checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def data_dir(name: str) -> Path:
    """The folder ``rules`` or ``hardware_profiles``."""
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
