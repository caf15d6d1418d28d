"""What a lint run is asked to do. Filled from pyproject.toml and the command line by whoever calls the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The target machine as far as rules ask: lowest compute capability of its cards, and GPUs over all nodes."""

    name: str
    compute_capability: tuple[int, int] | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``select`` holds whole codes (None: every code); ``ignore`` takes away from it.

    ``exclude`` and the patterns of ``per_file_ignores`` are globs against the path relative to ``root``, its name, or a
    folder above it.
    """

    select: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    strict: bool = False
    exclude: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, frozenset[str]] = field(default_factory=dict)
    root: Path = Path()
    hardware: Hardware | None = None

    def wants(self, code: str) -> bool:
        """Whether a code is asked for at all."""
        return (self.select is None or code in self.select) and code not in self.ignore
