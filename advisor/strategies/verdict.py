"""The one place that says whether a job fits: on every card, in host RAM, on disk, and by what margin.

A job fits when allocator capacity and runtime bytes are within what the card may give, less the memory model's typical
error: with less to spare it would as likely run out as not. Where what is left is less than the error that nine of ten
runs stay within, it is "tight": it fits by the prediction, and says so.
Host RAM under DeepSpeed's offload is counted as its estimator does, half above the states; runs were killed below a
quarter above, so between the two the verdict is "tight" (case C04).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.decide.types import Verdict
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName
from advisor.memory.budget import Budget, GpuBudget
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


def judge(machine: HardwareProfile, job: Job, budget: Budget) -> Judgement:
    """Hold a budget against the machine."""
    capacities = machine.capacities
    pairs = list(zip(budget.gpus, capacities, strict=False))
    gpu, capacity = max(pairs, key=lambda pair: pair[0].needed - pair[1])
    headroom = min((room - one.needed) / room for one, room in pairs)
    limit = int(capacity * (1 - TYPICAL[job.strategy]))
    if gpu.needed > limit:
        over = gpu.needed - capacity
        gap = f"{format_bytes(over)} more than" if over > 0 else f"within {TYPICAL[job.strategy]:.1%} of"
        return Judgement(
            verdict="does_not_fit",
            reason=f"{_need(gpu, budget)}, {gap} the {format_bytes(capacity)} of the card"
            + ("" if over > 0 else ", which is the prediction's typical error"),
            shortfall=gpu.needed - limit,
            headroom=headroom,
        )
    host = _host(machine, job, budget)
    if host is not None and host.verdict == "does_not_fit":
        return Judgement(verdict=host.verdict, reason=host.reason, shortfall=host.shortfall, headroom=headroom)
    free = machine.disk.free
    if free is not None and budget.disk > free:
        return Judgement(
            verdict="does_not_fit",
            reason=f"{format_bytes(budget.disk)} go to disk, where {format_bytes(free)} are free",
            shortfall=budget.disk - free,
            headroom=headroom,
        )
    text = f"{format_bytes(gpu.needed)} of {format_bytes(capacity)} a GPU"
    if budget.host_ram > machine_share(machine):
        text += f", {format_bytes(max(budget.host_ram, budget.host_ram_load))} of host RAM"
    if headroom < ERROR[job.strategy]:
        return Judgement(
            verdict="tight",
            reason=f"needs {text}: within the {ERROR[job.strategy]:.1%} that the prediction may be wrong by",
            headroom=headroom,
        )
    if host is not None:
        return Judgement(verdict="tight", reason=f"needs {text}: {host.reason}", headroom=headroom)
    return Judgement(verdict="fits", reason=f"needs {text}", headroom=headroom)


def host_available(machine: HardwareProfile) -> int | None:
    """Bytes of one node's RAM that a job may take: what is available, or what is there."""
    host = machine.host
    return host.memory_total if host.memory_available is None else host.memory_available


def machine_share(machine: HardwareProfile) -> int:
    """Host RAM from which a job's need is worth a word: a tenth of it."""
    available = host_available(machine)
    return available // 10 if available is not None else 8 << 30


def _host(machine: HardwareProfile, job: Job, budget: Budget) -> Judgement | None:
    """None when host RAM is ample or unknown."""
    available = host_available(machine)
    if available is None:
        return None
    need = int(max(budget.host_ram, budget.host_ram_load) * (1 + HOST_RESERVE))
    if need <= available:
        return None
    offloads = "cpu" in (job.offload_optimizer, job.offload_param)
    least = int(need * HOST_LEAST / HOST_ESTIMATE) if offloads else need
    text = f"host RAM of {format_bytes(available)} is less than the {format_bytes(need)} that are needed"
    if least <= available:
        return Judgement(verdict="tight", reason=f"{text}, though runs lived with {format_bytes(least)}: at risk")
    return Judgement(verdict="does_not_fit", reason=text, shortfall=need - available)


def _need(gpu: GpuBudget, budget: Budget) -> str:
    largest = sorted(gpu.parts.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in largest if size)
    phase = f" in {budget.peak_phase}" if budget.peak_phase else ""
    return f"needs {format_bytes(gpu.needed)}{phase} ({parts})"
