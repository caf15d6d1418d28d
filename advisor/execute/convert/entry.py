"""A tensor that can be read later: what every source of a conversion is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["zero2", "zero3", "adapter", "whole"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: its name, shape, torch's dtype name ("float32"), and how to get it on the CPU.

    ``read(dtype)`` gives it in another floating-point dtype; nothing is in memory before and nothing stays.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    read: Callable[[Any], Any]

    @property
    def numel(self) -> int:
        """Elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Source:
    """What a checkpoint holds. ``shared`` maps a tied name to the name it is stored under."""

    kind: Kind
    where: Path
    entries: Mapping[str, Entry]
    shared: Mapping[str, str]
    ranks: int = 1
