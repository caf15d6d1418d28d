"""Predicted beside measured: what earlier runs of the same job took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.execute.compare import Line, figures
from advisor.plan import Plan, PlanStep
from advisor.record import RunRecord
from advisor.units import format_bytes, format_seconds

# A run counts as the plan's when these settings are the same: they are what the prediction depends on most.
_SAME = (
    "task", "strategy", "method", "precision", "quantization", "micro_batch_size", "sequence_length", "max_new_tokens",
    "gradient_checkpointing", "gpus", "nodes", "offload_optimizer", "offload_param",
)  # fmt: skip
_WORDS = {
    "gpu_allocated": "peak allocated, fullest GPU",
    "gpu_reserved": "peak reserved, fullest GPU",
    "gpu_used": "GPU memory used (NVML)",
    "host_ram": "host RAM",
    "load_seconds": "load",
    "step_seconds": "optimizer step",
    "prefill_seconds": "prefill",
    "decode_tokens_per_second": "decode",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One record of the plan's job, figure by figure."""

    name: str
    where: str
    outcome: str
    rows: tuple[tuple[str, str, str, str], ...]  # figure, predicted, measured, error


def runs(plan: Plan, records: Iterable[RunRecord]) -> tuple[Run, ...]:
    """The runs among ``records`` that did what the plan does, newest last."""
    found = []
    for record in records:
        if record.model != plan.model.name:
            continue
        for step in plan.steps:
            if _same(step, record):
                lines = figures(step.promise, record.measured)
                rows = tuple(_row(line) for line in lines if line.measured is not None)
                found.append(Run(record.id, record.hardware, record.measured.outcome, rows))
    return tuple(found)


def _same(step: PlanStep, record: RunRecord) -> bool:
    job = record.job()
    return all(getattr(job, name) == getattr(step.job, name) for name in _SAME)


def _row(line: Line) -> tuple[str, str, str, str]:
    error = "" if line.error is None else f"{line.error:+.1%}"
    return _WORDS[line.name], _amount(line.name, line.predicted), _amount(line.name, line.measured), error


def _amount(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    if name.endswith("_seconds"):
        return format_seconds(value)
    return f"{value:.3g} tokens/s" if name.endswith("_per_second") else format_bytes(int(value))
