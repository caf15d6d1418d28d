"""The user's own runs as a correction of the time model: what they took over what was said."""

from __future__ import annotations

from dataclasses import replace

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.timing.estimate import TimeEstimate


def correction(machine: HardwareProfile, job: Job) -> tuple[float, int]:
    """(seconds taken over seconds said, number of runs) for jobs like this one; (1.0, 0) without own runs."""
    for found in machine.corrections:
        if (found.task, found.strategy, found.offload) == (job.task, job.strategy, offloads(job)):
            return found.time, found.runs
    return 1.0, 0


def offloads(job: Job) -> bool:
    """Whether the host takes part in every step, which sets another pace."""
    return job.offload_optimizer is not None or job.offload_param is not None


def corrected(estimate: TimeEstimate, machine: HardwareProfile, job: Job) -> TimeEstimate:
    """``estimate`` with its steps, prefill and tokens corrected by own runs, and a note that says so."""
    factor, runs = correction(machine, job)
    if not runs:
        return estimate

    def slower(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * factor

    def fewer(rate: float | None) -> float | None:
        return None if rate is None else rate / factor

    return replace(
        estimate,
        step_seconds=slower(estimate.step_seconds),
        prefill_seconds=slower(estimate.prefill_seconds),
        decode_tokens_per_second=fewer(estimate.decode_tokens_per_second),
        tokens_per_second=fewer(estimate.tokens_per_second),
        parts={name: seconds * factor for name, seconds in estimate.parts.items()},
        notes=(
            *estimate.notes,
            f"corrected by {runs} run{'s' if runs > 1 else ''} on this machine ({factor - 1:+.0%})",
        ),
    )
