"""What the predictions must reach: groups of runs, the figure looked at, and the bar for it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.job import Job
from advisor.validate.runs import Run

# Speeds of two ways to do one job that differ by less cannot be told apart: repeats of the same run differ by as much.
PAIR_DIFFERENCE = 0.20


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs of one kind and the largest errors allowed; None where no bar is set. All are fractions."""

    name: str
    title: str
    figures: tuple[str, ...]
    select: Callable[[Job], bool]
    median: float | None = None
    p90: float | None = None
    worst: float | None = None
    under: float | None = None  # worst under-prediction alone


def _spills(job: Job) -> bool:
    """Whether part of the model or its states lies in host RAM."""
    places = {str(place) for place in job.device_map.values()} if isinstance(job.device_map, dict) else set()
    return bool(job.offload_optimizer or job.offload_param or "cpu" in places | set(job.max_memory or ()))


def _one_process(job: Job) -> bool:
    return job.strategy in ("single", "device_map")


GROUPS: tuple[Group, ...] = (
    Group(name="allocated_one", title="Peak allocated, one GPU and device_map", figures=("gpu_allocated",),
          select=_one_process, median=0.006, p90=0.025, worst=0.05),
    Group(name="allocated_ranks", title="Peak allocated, DDP, ZeRO and tensor parallel", figures=("gpu_allocated",),
          select=lambda job: not _one_process(job), median=0.025, worst=0.08),
    Group(name="used_expandable", title="Used (NVML), expandable segments", figures=("gpu_used",),
          select=lambda job: job.expandable_segments, median=0.02, worst=0.06),
    Group(name="used_default", title="Used (NVML), default allocator", figures=("gpu_used",),
          select=lambda job: not job.expandable_segments, median=0.06, under=0.03),
    Group(name="host_ram", title="Host RAM, offload runs", figures=("host_ram",), select=_spills, worst=0.15),
    Group(name="time", title="Step time or tokens/s", figures=("step_seconds", "decode_tokens_per_second"),
          select=lambda _: True, median=0.20),
    Group(name="prefill", title="Prefill time", figures=("prefill_seconds",), select=lambda _: True),
    Group(name="load", title="Load time of a checkpoint", figures=("load_seconds",), select=lambda _: True),
    Group(name="load_allocated", title="Peak allocated until loaded", figures=("gpu_load_allocated",),
          select=lambda _: True),
)  # fmt: skip
FALSE_FITS = 0
FALSE_REFUSALS = 2
PAIRS_IN_ORDER = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One group's result: absolute median and 90th percentile, signed worst errors, and the runs outside the bar."""

    group: Group
    errors: tuple[tuple[str, str, float], ...]  # (run id, figure, signed error), worst first
    outside: tuple[str, ...] = field(default=())  # runs beyond the bar for a single run

    @property
    def sizes(self) -> list[float]:
        """Absolute errors, smallest first."""
        return sorted(abs(error) for _, _, error in self.errors)

    @property
    def median(self) -> float | None:
        """Median absolute error; None without runs."""
        return statistics.median(self.sizes) if self.errors else None

    @property
    def p90(self) -> float | None:
        """The absolute error that nine of ten runs stay within (nearest rank)."""
        sizes = self.sizes
        return sizes[math.ceil(0.9 * len(sizes)) - 1] if sizes else None

    @property
    def under(self) -> float | None:
        """Worst under-prediction (negative), 0 when none was under."""
        return min((0.0, *(error for _, _, error in self.errors))) if self.errors else None

    @property
    def over(self) -> float | None:
        """Worst over-prediction, 0 when none was over."""
        return max((0.0, *(error for _, _, error in self.errors))) if self.errors else None

    @property
    def met(self) -> bool | None:
        """Whether every bar is met; None when none is set or no run counts."""
        group = self.group
        if not self.errors or (group.median, group.p90, group.worst, group.under) == (None,) * 4:
            return None
        median_ok = group.median is None or (self.median or 0.0) <= group.median
        p90_ok = group.p90 is None or (self.p90 or 0.0) <= group.p90
        return median_ok and p90_ok and not self.outside


def score(group: Group, runs: Iterable[Run]) -> Score:
    """Hold the runs that belong to a group against its bar."""
    errors = []
    for run in runs:
        if run.job is not None and group.select(run.job):
            errors += [(run.record.id, name, run.errors[name]) for name in group.figures if name in run.errors]
    errors.sort(key=lambda item: -abs(item[2]))
    limit_over = math.inf if group.worst is None else group.worst
    limit_under = min(limit_over, math.inf if group.under is None else group.under)
    outside = tuple(name for name, _, error in errors if error > limit_over or error < -limit_under)
    return Score(group=group, errors=tuple(errors), outside=outside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The two by two table of runs under a memory cap, as run ids."""

    fits_and_ran: tuple[str, ...] = ()
    fits_but_died: tuple[str, ...] = ()  # false "fits"
    refused_but_ran: tuple[str, ...] = ()  # false refusals
    refused_and_died: tuple[str, ...] = ()

    @property
    def met(self) -> bool:
        """No false "fits", and no more false refusals than allowed."""
        return len(self.fits_but_died) <= FALSE_FITS and len(self.refused_but_ran) <= FALSE_REFUSALS


def verdicts(runs: Iterable[Run]) -> Verdicts:
    """Compare the verdict with the outcome of every predicted run that was capped."""
    table: dict[tuple[bool, bool], list[str]] = {(a, b): [] for a in (True, False) for b in (True, False)}
    for run in runs:
        if run.capped and run.job is not None:
            table[bool(run.predicted["fits"]), run.survived].append(run.record.id)
    return Verdicts(
        fits_and_ran=tuple(table[True, True]),
        fits_but_died=tuple(table[True, False]),
        refused_but_ran=tuple(table[False, True]),
        refused_and_died=tuple(table[False, False]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """How often the faster of two ways to do the same job was predicted to be the faster."""

    right: int
    wrong: tuple[tuple[str, str], ...]  # (measured faster, measured slower)

    @property
    def count(self) -> int:
        """Pairs that were looked at."""
        return self.right + len(self.wrong)

    @property
    def share(self) -> float | None:
        """Fraction in the right order; None without pairs."""
        return self.right / self.count if self.count else None

    @property
    def met(self) -> bool | None:
        """Whether enough are in order; None without pairs."""
        return None if self.share is None else self.share >= PAIRS_IN_ORDER


def pairs(runs: Sequence[Run]) -> Pairs:
    """All pairs of runs of the same job whose measured speed differs by over a fifth.

    The same job is the same model and task on the same machine, the same samples a step and tokens a sample, and the same
    kind of training (all weights, or adapters). Runs that differ in nothing that a plan chooses for speed (allocator setting
    and cap alone) are repeats of one measurement, not a pair.
    """
    right, wrong = 0, []
    timed = [(run, speed) for run in runs if (speed := _seconds(run)) is not None]
    for index, (first, (measured_a, predicted_a)) in enumerate(timed):
        for second, (measured_b, predicted_b) in timed[index + 1 :]:
            if _same_job(first) != _same_job(second) or _choice(first) == _choice(second):
                continue
            if max(measured_a, measured_b) / min(measured_a, measured_b) <= 1 + PAIR_DIFFERENCE:
                continue
            if (measured_a < measured_b) == (predicted_a < predicted_b) and predicted_a != predicted_b:
                right += 1
            else:
                ids = (first.record.id, second.record.id)
                wrong.append(ids if measured_a < measured_b else ids[::-1])
    return Pairs(right=right, wrong=tuple(wrong))


def _seconds(run: Run) -> tuple[float, float] | None:
    """(measured, predicted) seconds a step, or a token."""
    measured = run.record.measured
    if measured.step_seconds and run.predicted.get("step_seconds"):
        return measured.step_seconds, run.predicted["step_seconds"]
    if measured.decode_tokens_per_second and run.predicted.get("decode_tokens_per_second"):
        return 1 / measured.decode_tokens_per_second, 1 / run.predicted["decode_tokens_per_second"]
    return None


def _same_job(run: Run) -> tuple[Any, ...]:
    job = run.job
    assert job is not None  # only predicted runs have a speed
    adapters = job.method in ("lora", "qlora")
    return run.record.hardware, run.record.model, job.task, job.global_batch_size, job.sequence_length, adapters


def _choice(run: Run) -> str:
    work, how = run.record.workload, run.record.strategy
    return work.model_dump_json() + how.model_dump_json(exclude={"alloc_conf"})
