"""Predicted beside measured: what the plan promised, what the run took, and the record of it."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.cache import version_of
from advisor.corrections import fingerprint
from advisor.execute.supervise import Outcome
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.plan import Plan, PlanStep, Promise
from advisor.record import Measurement, Prediction, RunRecord
from advisor.timing.corrected import correction


@dataclass(frozen=True, slots=True)
class Line:
    """One figure: bytes, seconds or tokens a second by its name's ending. None where it is not known."""

    name: str
    predicted: float | None
    measured: float | None

    @property
    def error(self) -> float | None:
        """Signed fraction: predicted over measured, less one."""
        if not self.predicted or not self.measured:
            return None
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures of a run, and the measurement they came from."""

    lines: tuple[Line, ...]
    measurement: Measurement
    rehearsed: bool = False
    job: Job | None = None  # what really ran, where the user's prompts were others than planned

    def record(
        self, plan: Plan, step: PlanStep, machine: HardwareProfile, load_from: Path | None = None
    ) -> RunRecord:  # fmt: skip
        """The run as a record for ``advisor validate``; ``load_from``: a folder that was read instead of the plan's."""
        from advisor.execute.task import allocator_cap

        packages = ("torch", "transformers", "accelerate", "deepspeed", "bitsandbytes", "peft")
        software = {name: version for name in packages if (version := version_of(name))}
        return RunRecord.of(
            self.job or step.job,
            self.measurement,
            id=f"{plan.model.name.split('/')[-1]}-{step.job.strategy}-{time.strftime('%Y%m%dT%H%M%S')}",
            model=plan.model.name,
            hardware=machine.name,
            gpu_memory_cap=allocator_cap(plan, step),
            software=software,
            load_from=None if self.rehearsed else str(load_from or plan.model.path or plan.model.loader_repo),
            predicted=_said(self.lines, plan.hardware, step) if self.job is None else None,
            machine=fingerprint(machine),
        )


def _said(lines: tuple[Line, ...], machine: HardwareProfile, step: PlanStep) -> Prediction:
    """The promise as it was before own runs corrected it."""
    factor, _ = correction(machine, step.job)
    said = {line.name: line.predicted for line in lines if line.predicted is not None}
    for name in ("step_seconds", "prefill_seconds"):
        if name in said:
            said[name] /= factor
    if "decode_tokens_per_second" in said:
        said["decode_tokens_per_second"] *= factor
    return Prediction.model_validate({name: said[name] for name in Prediction.model_fields if name in said})


def compare(step: PlanStep, outcome: Outcome, *, rehearsed: bool = False) -> Comparison:
    """Hold an outcome against the step's promise.

    A rehearsal reads no checkpoint, so its load says nothing. Prompts of the user's own have other lengths than planned
    and come one at a time, so no promise was made about their speed.
    """
    measured = measure(step, outcome)
    if rehearsed:
        measured = measured.model_copy(update={"load_seconds": None})
    job = _answered(step.job, outcome.events)
    silent = ("load_seconds",) if rehearsed else ()
    unpromised = () if job is None else ("prefill_seconds", "decode_tokens_per_second")
    lines = tuple(
        replace(line, predicted=None) if line.name in unpromised else line
        for line in figures(step.promise, measured)
        if line.name not in silent
    )
    return Comparison(lines, measured, rehearsed, job)


def _answered(job: Job, events: tuple[dict[str, Any], ...]) -> Job | None:
    """The job as the user's prompts made it; None when there were none."""
    lengths = [event["prompt_tokens"] for event in events if event.get("prompt_tokens")]
    if not lengths:
        return None
    new = [event["tokens"] for event in events if event["event"] == "decode"]
    return replace(job, micro_batch_size=1, sequence_length=max(lengths), max_new_tokens=max(new, default=1))


def figures(promise: Promise, measured: Measurement) -> tuple[Line, ...]:
    """What was promised beside what was measured, where either is known."""
    fullest = max(promise.gpus, key=lambda gpu: gpu.required + gpu.runtime) if promise.gpus else None

    def top(values: tuple[int, ...] | None) -> int | None:
        return max(values) if values else None

    lines = (
        Line("gpu_allocated", fullest.allocated if fullest else None, top(measured.gpu_allocated)),
        Line("gpu_reserved", fullest.reserved if fullest else None, top(measured.gpu_reserved)),
        Line("gpu_used", fullest.reserved + fullest.runtime if fullest else None, top(measured.gpu_used)),
        Line("host_ram", promise.host_ram, measured.host_ram),
        Line("load_seconds", promise.load_seconds, measured.load_seconds),
        Line("step_seconds", promise.step_seconds, measured.step_seconds),
        Line("prefill_seconds", promise.prefill_seconds, measured.prefill_seconds),
        Line("decode_tokens_per_second", promise.decode_tokens_per_second, measured.decode_tokens_per_second),
    )
    return tuple(line for line in lines if line.predicted or line.measured)


def measure(step: PlanStep, outcome: Outcome) -> Measurement:
    """What a run's events and the watcher's peaks say, in the record's terms."""
    events = outcome.events
    allocated, reserved, runtime = _peaks(step, events)
    steps = [event["seconds"] for event in events if event["event"] == "step" and event["rank"] == 0]
    timed = [seconds for seconds in steps if seconds is not None]
    loaded = [event for event in events if event["event"] == "loaded"]
    used = tuple(outcome.peaks.gpu_used[: len(allocated)]) if allocated else tuple(outcome.peaks.gpu_used)
    return Measurement(
        outcome="oom" if outcome.ending == "oom" else "ok" if outcome.ok else "failed",
        gpu_allocated=allocated or None,
        gpu_reserved=reserved or None,
        gpu_used=used or None,
        gpu_load_allocated=_load_peaks(step, loaded) or None,
        runtime_overhead=runtime,
        host_ram=outcome.peaks.host_ram,
        load_seconds=max((event["seconds"] for event in loaded), default=None),
        step_seconds=statistics.median(timed) if timed else None,
        prefill_seconds=_median(events, "prefill", "seconds"),
        decode_tokens_per_second=_median(events, "decode", "tokens_per_second"),
        wall_seconds=outcome.seconds,
        parameters=loaded[0]["parameters"] if loaded else None,
    )


def _median(events: tuple[dict[str, Any], ...], name: str, field: str) -> float | None:
    values = [event[field] for event in events if event["event"] == name and event["rank"] == 0]
    return statistics.median(values) if values else None


def _peaks(step: PlanStep, events: tuple[dict[str, Any], ...]) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """(allocated, reserved) by GPU and the runtime bytes, from each rank's last word."""
    last = {event["rank"]: event["peaks"] for event in events if event.get("peaks")}
    if not last:
        return (), (), None
    runtime = max(peaks["runtime"] for peaks in last.values())
    if step.job.world_size == 1:
        peaks = last[min(last)]
        cards = max(1, step.job.gpus)
        return tuple(peaks["allocated"][:cards]), tuple(peaks["reserved"][:cards]), runtime
    ordered = [last[rank] for rank in sorted(last)]
    return (
        tuple(peaks["allocated"][peaks["device"]] for peaks in ordered),
        tuple(peaks["reserved"][peaks["device"]] for peaks in ordered),
        runtime,
    )


def _load_peaks(step: PlanStep, loaded: list[dict[str, Any]]) -> tuple[int, ...]:
    if not loaded or not loaded[0]["allocated"]:
        return ()
    if step.job.world_size == 1:
        return tuple(loaded[0]["allocated"][: max(1, step.job.gpus)])
    ordered = sorted(loaded, key=lambda event: event["rank"])
    return tuple(max(event["allocated"]) for event in ordered)
