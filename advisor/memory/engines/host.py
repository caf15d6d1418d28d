"""Host RAM of DeepSpeed's offload, a node.

Page-locked blocks are rounded up to powers of two by torch's host allocator (aten/src/ATen/core/CachingHostAllocator.h).
What lies there follows DeepSpeed 0.19 runtime/zero/stage3.py and stage_1_and_2.py; that there are four bytes a parameter
beyond master weights, gradients and Adam's two states was read off the 1B and 7B runs of measurements/h200.jsonl.
"""

from __future__ import annotations

from advisor.job import Job
from advisor.memory.single import HOST_PROCESS

_COMMUNICATOR = 500_000_000  # a rank's process grows by NCCL's and DeepSpeed's own host buffers


def power_of_two(size: int) -> int:
    """The page-locked block that holds ``size`` bytes."""
    return 1 << max(0, size - 1).bit_length() if size > 0 else 0


def _pinned(elements: int, width: int, group: int, pin: bool) -> int:
    """Bytes of a rank's flat buffers of ``elements`` values, cut into groups, each locked for itself."""
    whole, rest = divmod(elements, group)
    sizes = [group * width] * whole + ([rest * width] if rest else [])
    return sum(power_of_two(size) if pin else size for size in sizes)


def offload_host_ram(job: Job, parameters: int, trainable: int) -> tuple[int, int]:
    """(host RAM, page-locked part) in bytes of one node for ZeRO ``job``."""
    ranks = job.gpus // max(1, job.nodes)
    plain = ranks * (HOST_PROCESS + _COMMUNICATOR)
    share = -(-trainable // job.world_size)
    pin = job.zero.pin_memory
    pinned = pageable = 0
    group = job.zero.sub_group_size if job.strategy == "zero3" else max(1, share)
    if job.offload_optimizer == "cpu":
        pinned += 2 * _pinned(share, 4, group, pin)  # master weights and gradients in fp32
        pageable += 12 * share  # two states, and one more fp32 copy
        if job.strategy == "zero2":
            pinned += _pinned(share, 2, group, pin)
    if job.offload_param == "cpu":
        held = -(-parameters // job.world_size)
        pinned += 2 * _pinned(held, 2, max(1, held), pin)
    return plain + ranks * (pinned + pageable), ranks * pinned
