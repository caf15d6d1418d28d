"""Everything that was read, and how it combines: what a rule looks through."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.check.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The facts of all files under the given paths."""

    settings: Settings
