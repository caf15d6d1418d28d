"""``--find-batch``: rehearse the plan with ever larger micro batches, up to the edge of the card's memory.

Doubling until one fails, then halving the gap. Each size is a run of its own: an allocator that once ran full is no
fair judge of the next size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.execute.apply import Result, apply_step
from advisor.execute.options import Hooks, Options
from advisor.hardware.profile import HardwareProfile
from advisor.plan import Plan, PlanStep, Promise, PromisedGpu
from advisor.planning import spec_of

LARGEST = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One size and how it ended; ``samples_per_second`` over all GPUs (sequences, for inference prompts too)."""

    micro_batch_size: int
    result: Result
    samples_per_second: float | None

    @property
    def ok(self) -> bool:
        """Whether it ran."""
        return self.result.outcome.ok


def find_batch(
    plan: Plan, path: Path, options: Options, machine: HardwareProfile, hooks: Hooks | None = None
) -> Iterator[Tried]:
    """Rehearse sizes from the plan's own upward; yields each. The last that ran is the largest.

    Raises InputError for a user's script, whose batch is its own affair.
    """
    if options.script:
        raise InputError("--find-batch", "rehearses the built-in recipe, so it takes no script")
    options = replace(options, rehearse=True, force=True)
    size, failed, good = plan.main.job.micro_batch_size, None, 0
    while size <= LARGEST:
        tried = _try(plan, path, options, machine, hooks, size)
        yield tried
        if tried.result.outcome.ending not in ("ok", "oom", "host_oom"):
            return
        if tried.ok:
            good = size
        else:
            failed = size
        if failed is None:
            size *= 2
        elif failed - good > max(1, good // 8):  # an eighth more is not worth another run
            size = (failed + good) // 2
        else:
            return


def _try(
    plan: Plan, path: Path, options: Options, machine: HardwareProfile, hooks: Hooks | None, size: int
) -> Tried:  # fmt: skip
    step = resized(plan, size)
    result = apply_step(plan, path, step, options, machine, hooks)
    measured = result.record.measured
    seconds = measured.step_seconds or measured.prefill_seconds
    rate = None
    if result.outcome.ok and seconds:
        rate = size * step.job.gradient_accumulation_steps * step.job.data_parallel_size / seconds
    return Tried(micro_batch_size=size, result=result, samples_per_second=rate)


def resized(plan: Plan, size: int) -> PlanStep:
    """The plan's first step with another micro batch size, its DeepSpeed json and its promise with it."""
    from advisor.strategies.registry import STRATEGIES

    step = plan.main
    if size == step.job.micro_batch_size:
        return step
    job = replace(step.job, micro_batch_size=size)
    changes: dict[str, Any] = {"job": job}
    if step.deepspeed is not None:
        changes["deepspeed"] = {**step.deepspeed, "train_micro_batch_size_per_gpu": size}
        if "train_batch_size" in step.deepspeed:
            changes["deepspeed"]["train_batch_size"] = job.global_batch_size
    if step.promise.gpus:  # a plan for GPUs: what it promises changes, too
        strategy, spec = STRATEGIES[job.strategy], spec_of(plan)
        budget, time = strategy.budget(spec, plan.hardware, job), strategy.time(spec, plan.hardware, job)
        changes["promise"] = Promise(
            gpus=tuple(
                PromisedGpu(
                    parts={str(name): amount for name, amount in gpu.parts.items()}, allocated=gpu.allocated,
                    reserved=gpu.reserved, required=gpu.required, runtime=gpu.runtime,
                    load_allocated=gpu.load_allocated,
                )
                for gpu in budget.gpus
            ),
            host_ram=budget.host_ram, host_ram_load=budget.host_ram_load, host_pinned=budget.host_pinned,
            disk=budget.disk, peak_phase=budget.peak_phase, load_seconds=time.load_seconds,
            step_seconds=time.step_seconds, prefill_seconds=time.prefill_seconds,
            decode_tokens_per_second=time.decode_tokens_per_second, tokens_per_second=time.tokens_per_second,
            time_error=time.error,
        )  # fmt: skip
    return step.model_copy(update=changes)
