"""Every lint rule, by hand: one module each, in the order of their codes."""

from __future__ import annotations

from advisor.check.types import Rule

RULES: tuple[Rule, ...] = ()
