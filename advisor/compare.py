"""``advisor compare``: models against machines, what each would do and how well; "what do I need to buy or rent"."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from advisor.decide.facts import speed_of, way_of
from advisor.decide.types import Candidate
from advisor.deciding import decide
from advisor.errors import InputError
from advisor.hardware.load import load_profile, profile_paths
from advisor.hardware.profile import HardwareProfile
from advisor.job import Workload
from advisor.models.spec import ModelSpec

_MILLION = 1_000_000
_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model on one machine. Amounts in bytes, times in seconds; None where unknown or where nothing fits."""

    model: str
    hardware: str
    fits: bool
    verdict: str
    way: str | None
    strategy: str | None
    method: str | None
    gpus: int | None
    gpu_peak: int | None
    headroom: float | None
    host_ram: int | None
    tokens_per_second: float | None
    step_seconds: float | None
    decode_tokens_per_second: float | None
    price_per_hour: float | None
    currency: str | None
    cost_per_million_tokens: float | None
    note: str


def machines(asked: str) -> tuple[HardwareProfile, ...]:
    """Profiles by "all" or by names and files with commas between. Raises InputError for an unknown one."""
    names = list(profile_paths()) if asked == "all" else [name.strip() for name in asked.split(",") if name.strip()]
    if not names:
        raise InputError("--hardware", "names no machine", found=asked, expected="all, or names with commas between")
    return tuple(load_profile(name) for name in names)


def compare(
    models: Sequence[ModelSpec],
    profiles: Sequence[HardwareProfile],
    workload: Workload,
    rules_dir: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Row, ...]:
    """The grid: for each model what fits first, fastest first; what does not fit by what is missing."""
    rows: list[Row] = []
    for model in models:
        found = list(_rows(model, profiles, workload, rules_dir, progress))
        rows += sorted(found, key=lambda row: (not row.fits, -(row.tokens_per_second or 0.0), -(row.headroom or -9.0)))
    return tuple(rows)


def _rows(
    model: ModelSpec, profiles: Sequence[HardwareProfile], workload: Workload, rules_dir: Path | None,
    progress: Callable[[str], None],
) -> Iterator[Row]:  # fmt: skip
    for number, profile in enumerate(profiles, 1):
        progress(f"{model.name} on {profile.name} ({number} of {len(profiles)})")
        decision = decide(model, profile, workload, rules_dir)
        if decision.chosen is None:
            yield _row(model, profile, None, decision.sentence)
        else:
            yield _row(model, profile, decision.chosen, decision.chosen.reason)


def _row(model: ModelSpec, profile: HardwareProfile, chosen: Candidate | None, note: str) -> Row:
    time = chosen.time if chosen else None
    speed = speed_of(chosen) if chosen else None
    job, budget = (chosen.job, chosen.budget) if chosen else (None, None)
    return Row(
        model=model.name,
        hardware=profile.name,
        fits=chosen is not None,
        verdict=chosen.verdict if chosen else "does_not_fit",
        way=way_of(chosen) if chosen else None,
        strategy=chosen.strategy if chosen else None,
        method=chosen.method if chosen else None,
        gpus=job.gpus if job else None,
        gpu_peak=budget.fullest.needed if budget and budget.gpus else None,
        headroom=chosen.headroom if chosen else None,
        host_ram=budget.host_ram if budget else None,
        tokens_per_second=speed,
        step_seconds=time.step_seconds if time else None,
        decode_tokens_per_second=time.decode_tokens_per_second if time else None,
        price_per_hour=profile.price_per_hour,
        currency=profile.price_currency if profile.price_per_hour is not None else None,
        cost_per_million_tokens=cost(profile, speed),
        note=note,
    )


def cost(profile: HardwareProfile, speed: float | None) -> float | None:
    """Price of a million tokens at ``speed`` tokens a second on the whole machine (all nodes)."""
    if profile.price_per_hour is None or not speed:
        return None
    return profile.price_per_hour * profile.nodes / _HOUR / speed * _MILLION


def as_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Rows as plain objects."""
    return [asdict(row) for row in rows]


def as_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV with a header; empty where unknown."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()
