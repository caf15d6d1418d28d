"""The whole comparison: runs, scores, verdicts and pairs, and the JSON that holds them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.validate.bars import (
    FALSE_FITS,
    FALSE_REFUSALS,
    GROUPS,
    PAIR_DIFFERENCE,
    PAIRS_IN_ORDER,
    Pairs,
    Score,
    Verdicts,
    pairs,
    score,
    verdicts,
)
from advisor.validate.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Everything that ``advisor validate`` shows."""

    runs: tuple[Run, ...]  # as the files had them
    scores: tuple[Score, ...]
    verdicts: Verdicts
    pairs: Pairs
    reasons: Mapping[str, str] = field(default_factory=dict)  # why a run lies outside its bar, by id, where it is known

    @property
    def worst_first(self) -> list[Run]:
        """Unpredicted runs, wrong verdicts, then the others by their largest error in a barred figure."""
        wrong = {*self.verdicts.fits_but_died, *self.verdicts.refused_but_ran}
        largest: dict[str, float] = {}
        for result in self.scores:
            for name, _, error in result.errors if result.met is not None else ():
                largest[name] = max(largest.get(name, 0.0), abs(error))
        return sorted(
            self.runs,
            key=lambda run: (run.reason is None, run.record.id not in wrong, -largest.get(run.record.id, 0.0)),
        )

    @property
    def unpredicted(self) -> list[Run]:
        """Runs that could not be predicted."""
        return [run for run in self.runs if run.reason is not None]

    @property
    def met(self) -> bool:
        """Whether every bar is met and every run could be predicted."""
        judged = [result.met for result in self.scores] + [self.pairs.met, self.verdicts.met]
        return not self.unpredicted and all(verdict is not False for verdict in judged)

    def _run_json(self, run: Run) -> dict[str, Any]:
        known = self.reasons.get(run.record.id)
        return run.as_json() | ({"known_reason": known} if known else {})

    def as_json(self) -> dict[str, Any]:
        """``runs``, worst first, and ``summary``."""
        table = self.verdicts
        return {
            "format": "advisor-validation",
            "version": 1,
            "runs": [self._run_json(run) for run in self.worst_first],
            "summary": {
                "met": self.met,
                "groups": {result.group.name: _score_json(result) for result in self.scores},
                "verdicts": {
                    "fits_and_ran": len(table.fits_and_ran),
                    "fits_but_died": list(table.fits_but_died),
                    "refused_but_ran": list(table.refused_but_ran),
                    "refused_and_died": len(table.refused_and_died),
                    "bar": {"fits_but_died": FALSE_FITS, "refused_but_ran": FALSE_REFUSALS},
                    "met": table.met,
                },
                "pairs": {
                    "difference": PAIR_DIFFERENCE,
                    "count": self.pairs.count,
                    "in_order": self.pairs.share,
                    "wrong": [list(pair) for pair in self.pairs.wrong],
                    "bar": {"in_order": PAIRS_IN_ORDER},
                    "met": self.pairs.met,
                },
                "unpredicted": {run.record.id: run.reason for run in self.unpredicted},
            },
        }


def score_runs(runs: Sequence[Run], reasons: Mapping[str, str] | None = None) -> Validation:
    """Score predicted runs against the bars."""
    return Validation(
        runs=tuple(runs),
        scores=tuple(score(group, runs) for group in GROUPS),
        verdicts=verdicts(runs),
        pairs=pairs(runs),
        reasons=dict(reasons or {}),
    )


def read_reasons(files: Sequence[Path]) -> dict[str, str]:
    """Why runs lie outside their bar: ``reasons.toml`` beside files of records, run ids to sentences.

    Raises InputError for a file that holds anything else.
    """
    reasons: dict[str, str] = {}
    for path in sorted({file.parent / "reasons.toml" for file in files}):
        if not path.is_file():
            continue
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(str(path), f"is not valid TOML ({error})") from error
        for name, reason in found.items():
            if not isinstance(reason, str):
                raise InputError(str(path), "is no sentence", field=name, found=type(reason).__name__)
        reasons |= found
    return reasons


def _score_json(result: Score) -> dict[str, Any]:
    group = result.group
    bar = {"median": group.median, "p90": group.p90, "worst": group.worst, "worst_under": group.under}
    return {
        "title": group.title,
        "figures": list(group.figures),
        "count": len(result.errors),
        "median": result.median,
        "p90": result.p90,
        "worst_under": result.under,
        "worst_over": result.over,
        "bar": {name: value for name, value in bar.items() if value is not None},
        "met": result.met,
        "outside": list(result.outside),
    }
