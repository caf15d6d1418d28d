"""What a check came to, in the one shape that every format renders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from advisor.check.types import Doubt, Finding, Rule

if TYPE_CHECKING:
    from advisor.check.fit.codes import FitRule

SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Findings in the order they are shown, the doubts if asked for, and the rules that the codes belong to.

    ``files`` counts the files that were read; ``fits`` are sentences of the fit half that are no finding ("needs 22.1
    of 80 GiB").
    """

    findings: tuple[Finding, ...]
    files: int
    doubts: tuple[Doubt, ...] = ()
    strict: bool = False
    rules: Mapping[str, Rule | FitRule] = field(default_factory=dict)
    fits: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the check fails: an error or a warning was found. Information never fails it."""
        return any(finding.severity != "info" for finding in self.findings)

    def count(self, severity: str) -> int:
        """Findings of one severity."""
        return sum(finding.severity == severity for finding in self.findings)
