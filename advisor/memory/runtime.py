"""Bytes of a process on its card that lie outside torch's allocator: CUDA context, kernel modules, NCCL, streams.

Measured on H200 (driver 580, torch 2.11; the 107 runs of ``measurements/h200.jsonl``, ``runtime_overhead``). They vary
by card and driver: what ``advisor probe --measure`` found on the machine comes first. Other cards take the
H200's values, for want of their own, and the budget says so.
"""

from __future__ import annotations

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.units import GIB

_INFERENCE, _TRAINING = int(0.68 * GIB), int(0.75 * GIB)
# One communicator over two cards, context included.
_DISTRIBUTED = {"ddp": int(1.58 * GIB), "zero3": int(1.77 * GIB), "zero2": int(2.05 * GIB)}


def runtime_bytes(machine: HardwareProfile, job: Job) -> int:
    """Bytes outside the allocator on each card that ``job`` uses."""
    alone = _TRAINING if job.trains else _INFERENCE
    together = _DISTRIBUTED.get(job.strategy, _DISTRIBUTED["ddp"]) if job.world_size > 1 else alone
    measured = machine.measured
    if measured is None:
        return together
    # The test runs products alone: the kernels of a backward and of an optimizer come on top.
    more = _TRAINING - _INFERENCE if job.trains else 0
    context = alone if measured.context_bytes is None else measured.context_bytes + more
    nccl = together - alone if measured.nccl_bytes is None else measured.nccl_bytes
    return context + (nccl if job.world_size > 1 else 0)


def runtime_note(machine: HardwareProfile) -> str | None:
    """Where the runtime bytes come from when they were measured on another card; None when they need no word."""
    measured = machine.measured is not None and machine.measured.context_bytes is not None
    if measured or all("H200" in card.name for card in machine.gpus):
        return None
    return "runtime bytes outside the allocator were measured on an H200; `advisor probe --measure` finds this card's"
