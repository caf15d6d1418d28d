"""Lint: files to facts, facts to runs, runs through every rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.check.combine import Combiner
from advisor.check.project import Project
from advisor.check.rules import RULES
from advisor.check.settings import Settings
from advisor.check.sources import Read, files
from advisor.check.suppress import Suppressions
from advisor.check.types import Doubt, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a lint came to; ``files`` counts the files that were read."""

    findings: tuple[Finding, ...]
    doubts: tuple[Doubt, ...]
    files: int


def lint(paths: Sequence[Path], settings: Settings) -> Report:
    """Every finding in the files and folders of ``paths``, in order of path and line. Never imports or runs what it reads."""
    read = Read()
    given = list(files(paths, settings))
    for path in given:
        read.take(path)
    count = len(read.texts)
    combiner = Combiner(read, settings)
    runs, orphans = combiner.runs()
    project = Project(
        settings=settings, read=read, given=frozenset(given), named=frozenset(str(path) for path in paths),
        runs=tuple(runs), orphans=tuple(orphans),
    )  # fmt: skip
    said: list[Finding | Doubt] = [*combiner.doubts]
    for rule in RULES:
        if settings.wants(rule.code):
            said += rule.check(project)
    hides = Suppressions(read.texts, settings).hides
    findings = [
        one
        for one in said
        if isinstance(one, Finding) and one.path in project.given and not hides(one.path, one.line, one.code)
    ]
    doubts = [one for one in said if isinstance(one, Doubt) and one.path in project.given] if settings.strict else []
    return Report(findings=tuple(_shown(findings)), doubts=tuple(_unlike(doubts)), files=count)


def _shown(findings: Iterable[Finding]) -> list[Finding]:
    """In order, each once. Advice on a line that holds an error is left out: the error is what counts there."""
    found = sorted(findings, key=lambda one: (one.path, one.line, one.column, one.code, one.message))
    wrong = {(one.path, one.line) for one in found if one.severity != "info"}
    kept: dict[tuple[str, str, int, int], Finding] = {}
    for one in found:
        if one.severity != "info" or (one.path, one.line) not in wrong:
            kept.setdefault((one.code, one.path, one.line, one.column), one)
    return list(kept.values())


def _unlike(doubts: Iterable[Doubt]) -> list[Doubt]:
    return sorted(dict.fromkeys(doubts), key=lambda one: (one.path, one.line, one.message))
