"""TOML tables, in bounded time."""

from __future__ import annotations

import tomllib
from typing import Any

# tomllib's time grows with the square of a dotted key's parts; nobody writes this many.
MAX_PARTS = 2000


def table(text: str) -> dict[str, Any]:
    """The whole document as a table. Raises ``tomllib.TOMLDecodeError`` (a ValueError) for what is none, however nested."""
    if any(line.partition("=")[0].count(".") > MAX_PARTS for line in text.splitlines()):
        raise tomllib.TOMLDecodeError(f"A key has more than {MAX_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise tomllib.TOMLDecodeError("Nested too deep") from error
