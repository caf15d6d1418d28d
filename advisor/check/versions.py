"""What the pins of a project admit: questions about every version that could be installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from advisor.check.facts import Pin


class Versions:
    """The pins of a project, all of which hold together."""

    def __init__(self, pins: Iterable[Pin]) -> None:
        self.pins: dict[str, list[Pin]] = {}
        for pin in pins:
            if pin.specifier:
                self.pins.setdefault(pin.package, []).append(pin)

    @cached_property
    def _sets(self) -> dict[str, SpecifierSet]:
        found: dict[str, SpecifierSet] = {}
        for package, pins in self.pins.items():
            try:
                found[package] = SpecifierSet(",".join(pin.specifier for pin in pins))
            except InvalidSpecifier:
                continue
        return found

    def within(self, package: str, specifier: str) -> bool:
        """Whether every version that the pins admit fits ``specifier``. False without a pin, and for pins that exclude
        each other."""
        pinned = self._sets.get(package)
        if pinned is None:
            return False
        asked = SpecifierSet(specifier)
        admitted = [version for version in _around(pinned, asked) if pinned.contains(version, prereleases=True)]
        return bool(admitted) and all(asked.contains(version, prereleases=True) for version in admitted)

    def pin(self, package: str) -> Pin | None:
        """The first pin of a package."""
        found = self.pins.get(package)
        return found[0] if found else None


def _around(*sets: SpecifierSet) -> Iterator[Version]:
    """Versions at and beside every bound of the sets, and far ends: between two of these nothing changes."""
    yield from (Version("0.0.1"), Version("99999"))
    for specifiers in sets:
        for specifier in specifiers:
            text = specifier.version.removesuffix(".*")
            try:
                version = Version(text)
            except InvalidVersion:
                continue
            release = [*version.release, 0, 0][: max(3, len(version.release))]
            yield version
            for place in range(len(release)):
                above = [*release[: place + 1]]
                above[place] += 1
                yield Version(".".join(map(str, above)))
                if release[place] > 0:
                    below = [*release[:place], release[place] - 1, 99999]
                    yield Version(".".join(map(str, below)))
            yield Version(".".join(map(str, [*release, 1])))
