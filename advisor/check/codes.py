"""Codes: what there is to find, which of it was asked for, and each in words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache

from advisor.check.fit.codes import FIT_RULES, FitRule
from advisor.check.rules import RULES
from advisor.check.types import Rule
from advisor.errors import InputError


@cache
def all_rules() -> dict[str, Rule | FitRule]:
    """Every code of both halves, in order."""
    rules: list[Rule | FitRule] = [*RULES, *FIT_RULES]
    return {rule.code: rule for rule in sorted(rules, key=lambda rule: rule.code)}


def expanded(where: str, asked: Iterable[str]) -> frozenset[str]:
    """The codes meant by codes and beginnings of codes, several in one text separated by commas or not.

    Raises InputError for one that means nothing, with the nearest codes; ``where`` is the flag or file to name.
    """
    known = all_rules()
    found: set[str] = set()
    for part in (piece.strip() for text in asked for piece in text.split(",")):
        if not part:
            continue
        meant = {code for code in known if code.startswith(part.upper())}
        if not meant:
            near = difflib.get_close_matches(part.upper(), known, n=3, cutoff=0.5)
            hint = f"near: {', '.join(near)}" if near else f"a code such as {next(iter(known))}, or its beginning"
            raise InputError(where, "is no code", found=part, expected=hint)
        found |= meant
    return frozenset(found)


def explain(code: str) -> str | None:
    """A rule's text for ``advisor explain``; None for a code that is none of ours."""
    rule = all_rules().get(code.upper())
    if rule is None:
        return None
    return "\n".join(
        [
            f"{rule.code}  {rule.name}  ({rule.severity})", "", rule.what, "", f"why    {rule.why}", f"fix    {rule.fix}",
            f"since  {rule.since}",
        ]
    )  # fmt: skip
