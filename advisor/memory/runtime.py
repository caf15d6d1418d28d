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
_INT8 = int(0.065 * GIB)  # bitsandbytes' own cuBLASLt handle and kernels
# What a process group adds on a card, in GiB: (inference, training). With two ranks; and DeepSpeed's group of one.
_GROUP = {"ddp": (0.82, 0.83), "tensor_parallel": (0.82, 0.83), "zero3": (0.75, 1.02), "zero2": (0.75, 1.30)}
_GROUP_OF_ONE = {"zero3": (0.55, 0.55), "zero2": (0.55, 0.94)}


def runtime_bytes(machine: HardwareProfile, job: Job) -> int:
    """Bytes outside the allocator on each card that ``job`` uses."""
    alone = _TRAINING if job.trains else _INFERENCE
    added = (_GROUP if job.world_size > 1 else _GROUP_OF_ONE).get(job.strategy, (0.0, 0.0))
    group = int(added[job.trains] * GIB)
    measured = machine.measured
    if measured is not None and measured.context_bytes is not None:
        # The test runs products alone: the kernels of a backward and of an optimizer come on top.
        alone = measured.context_bytes + (_TRAINING - _INFERENCE if job.trains else 0)
    if measured is not None and measured.nccl_bytes is not None and job.world_size > 1:
        group = measured.nccl_bytes
    return alone + group + (_INT8 if job.quantization == "int8" else 0)


def runtime_note(machine: HardwareProfile) -> str | None:
    """Where the runtime bytes come from when they were measured on another card; None when they need no word."""
    measured = machine.measured is not None and machine.measured.context_bytes is not None
    if measured or all("H200" in card.name for card in machine.gpus):
        return None
    return "runtime bytes outside the allocator were measured on an H200; `advisor probe --measure` finds this card's"
