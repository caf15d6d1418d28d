"""The one place that says whether a job fits: on every card, in host RAM, on disk, and by what margin.

A job fits when allocator capacity and runtime bytes are within what the card may give, less the memory model's typical
error: with less to spare it would as likely run out as not. Where what is left is less than the error that nine of ten
runs stay within, it is "tight": it fits by the prediction, and says so.
Host RAM under DeepSpeed's offload is counted as its estimator does, half above the states; runs were killed below a
quarter above, so between the two the verdict is "tight" (case C04).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.decide.types import Verdict
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName
from advisor.memory.budget import Budget, GpuBudget
from advisor.models.spec import ModelSpec
from advisor.strategies.common import parameter_count
from advisor.units import format_bytes

# Typical (median) error of the memory model, and what nine of ten runs stay within; ``advisor validate`` holds it to them.
# Communicators were measured between two cards, and over more of them they grow: a hundredth of the card for that.
TYPICAL: Mapping[StrategyName, float] = {
    "single": 0.006, "device_map": 0.006, "tensor_parallel": 0.035, "ddp": 0.035, "zero2": 0.035, "zero3": 0.035,
}  # fmt: skip
ERROR: Mapping[StrategyName, float] = {
    "single": 0.025, "device_map": 0.025, "tensor_parallel": 0.06, "ddp": 0.06, "zero2": 0.06, "zero3": 0.06,
}  # fmt: skip
# What DeepSpeed's estimate has over the states, and the least that runs lived with.
HOST_ESTIMATE, HOST_LEAST = 1.5, 1.25
# Page tables and page cache that a machine full of pinned memory keeps for itself.
HOST_RESERVE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its numbers; ``shortfall`` in bytes, 0 when it fits; ``headroom`` of the fullest card."""

    verdict: Verdict
    reason: str
    shortfall: int = 0
    headroom: float | None = None


def judge(model: ModelSpec, machine: HardwareProfile, job: Job, budget: Budget) -> Judgement:
    """Hold a budget against the machine."""
    pairs = list(zip(budget.gpus, machine.capacities, strict=False))
    if not pairs:
        reason = "no card has room for a module beside the runtime's own bytes"
        return Judgement(verdict="does_not_fit", reason=reason, shortfall=2 * parameter_count(model))
    gpu, capacity = max(pairs, key=lambda pair: pair[0].needed - pair[1])
    headroom = min((room - one.needed) / room for one, room in pairs)
    lack = (
        _card(job, budget, gpu, capacity)
        or _deepspeed_states(model, job, capacity)
        or _host(model, machine, job, budget)
        or _disk(machine, budget)
    )
    if lack is not None and lack.verdict == "does_not_fit":
        return replace(lack, headroom=headroom)
    text = f"needs {format_bytes(gpu.needed)} of {format_bytes(capacity)} a GPU"
    host = max(budget.host_ram, budget.host_ram_load)
    if host > _worth_a_word(machine):
        text += f", {format_bytes(host)} of host RAM"
    if budget.disk:
        known = "" if machine.disk.free is not None else " (the profile does not say what is free)"
        text += f", {format_bytes(budget.disk)} of disk{known}"
    if lack is not None:
        return replace(lack, reason=f"{text}: {lack.reason}", headroom=headroom)
    if headroom < ERROR[job.strategy]:
        text += f": within the {ERROR[job.strategy]:.1%} that the prediction may be wrong by"
        return Judgement(verdict="tight", reason=text, headroom=headroom)
    return Judgement(verdict="fits", reason=text, headroom=headroom)


def _card(job: Job, budget: Budget, gpu: GpuBudget, capacity: int) -> Judgement | None:
    limit = int(capacity * (1 - TYPICAL[job.strategy]))
    if gpu.needed <= limit:
        return None
    over = gpu.needed - capacity
    gap = f"{format_bytes(over)} more than the {format_bytes(capacity)} of the card"
    if over <= 0:
        share = f"{TYPICAL[job.strategy]:.1%}"
        gap = f"within {share} of the {format_bytes(capacity)} of the card, which is the prediction's typical error"
    return Judgement(verdict="does_not_fit", reason=f"{_need(gpu, budget)}, {gap}", shortfall=gpu.needed - limit)


def _deepspeed_states(model: ModelSpec, job: Job, capacity: int) -> Judgement | None:
    """ZeRO-3's states as DeepSpeed counts them: 18 bytes a parameter, with fp32 gradients of all sub-groups.

    The memory model has those of one sub-group, as the code does; a card that lacks room for all is on the brink.
    """
    if job.strategy != "zero3" or job.method != "full" or job.offload_optimizer or job.offload_param:
        return None
    need = 18 * parameter_count(model) // job.gpus
    if need <= capacity:
        return None
    return Judgement(
        verdict="does_not_fit",
        reason=f"DeepSpeed counts {format_bytes(need)} of states on each card, which has {format_bytes(capacity)}",
        shortfall=need - capacity,
    )


def _disk(machine: HardwareProfile, budget: Budget) -> Judgement | None:
    free = machine.disk.free
    if free is None or budget.disk <= free:
        return None
    reason = f"{format_bytes(budget.disk)} go to disk, where {format_bytes(free)} are free"
    return Judgement(verdict="does_not_fit", reason=reason, shortfall=budget.disk - free)


def host_available(machine: HardwareProfile) -> int | None:
    """Bytes of one node's RAM that a job may take: what is available, or what is there."""
    host = machine.host
    return host.memory_total if host.memory_available is None else host.memory_available


def _worth_a_word(machine: HardwareProfile) -> int:
    """Host RAM from which a job's need is worth a word: a tenth of it."""
    available = host_available(machine)
    return available // 10 if available is not None else 8 << 30


def _host(model: ModelSpec, machine: HardwareProfile, job: Job, budget: Budget) -> Judgement | None:
    """None when host RAM is ample or unknown."""
    available = host_available(machine)
    if available is None:
        return None
    need = max(budget.host_ram, budget.host_ram_load)
    ample = least = int(need * (1 + HOST_RESERVE))
    states = _host_states(model, job)
    if states:
        ample, least = max(ample, int(HOST_ESTIMATE * states)), int(HOST_LEAST * states * (1 + HOST_RESERVE))
    if ample <= available:
        return None
    text = f"host RAM of {format_bytes(available)} is less than the {format_bytes(ample)} that are safe"
    if states:
        text += f" ({format_bytes(states)} of states, and half as much again)"
    if least <= available:
        return Judgement(verdict="tight", reason=f"{text}; with less than {format_bytes(least)} such runs are killed")
    return Judgement(verdict="does_not_fit", reason=text, shortfall=least - available)


def _host_states(model: ModelSpec, job: Job) -> int:
    """Bytes of full fine-tuning's states in one node's RAM, as DeepSpeed counts them; 0 for other jobs.

    16 bytes a parameter, and the 16-bit weights: under parameter offload always, else while they are loaded and saved.
    """
    if job.method != "full" or job.offload_optimizer != "cpu":
        return 0
    return 18 * parameter_count(model) // max(1, job.nodes)


def _need(gpu: GpuBudget, budget: Budget) -> str:
    largest = sorted(gpu.parts.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in largest if size)
    phase = f" in {budget.peak_phase}" if budget.peak_phase else ""
    return f"needs {format_bytes(gpu.needed)}{phase} ({parts})"
