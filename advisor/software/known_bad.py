"""Rows of ``known_bad.toml`` that hold for installed versions. Standard library and ``packaging`` only."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

TABLE = Path(__file__).with_name("known_bad.toml")


@dataclass(frozen=True)
class KnownBad:
    """A combination that is known not to work; ``when`` are tags of the job that must all apply, ``card`` is a part of
    the GPU's name where only some cards are concerned."""

    id: str
    packages: Mapping[str, str]
    when: tuple[str, ...]
    happens: str
    fix: str
    source: str
    card: str | None = None

    def holds(
        self, installed: Mapping[str, str], tags: Collection[str] | None = None, cards: Collection[str] = ()
    ) -> bool:
        """Whether the versions match, and the cards where the row names one; with ``tags`` also whether the job is such
        a one."""
        if tags is not None and not set(self.when) <= set(tags):
            return False
        if self.card is not None and not any(self.card in name for name in cards):
            return False
        return all(
            name in installed and _admits(specifier, installed[name]) for name, specifier in self.packages.items()
        )


@cache
def table() -> tuple[KnownBad, ...]:
    """Every row."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["known_bad"]
    return tuple(KnownBad(**{**row, "when": tuple(row["when"])}) for row in rows)


def find(
    installed: Mapping[str, str], tags: Collection[str] | None = None, cards: Collection[str] = ()
) -> tuple[KnownBad, ...]:
    """Rows that hold for ``installed`` (package name to version) on GPUs named ``cards``; without ``tags`` for any
    job."""
    return tuple(row for row in table() if row.holds(installed, tags, cards))


def _admits(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(Version(version).public, prereleases=True)
    except InvalidVersion:
        return False
