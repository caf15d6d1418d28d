"""Host RAM of ranks, and of DeepSpeed's offload, a node.

Page-locked blocks are rounded up to powers of two by torch's host allocator (aten/src/ATen/core/CachingHostAllocator.h), which
keeps what was given back. What lies there follows DeepSpeed 0.19.8, runtime/zero/stage3.py, stage_1_and_2.py and
partition_parameters.py. With n trained elements a rank:

- ZeRO-3 moves its trained partitions into one buffer by way of the host: 2n for a moment;
- offloaded optimizer, stage 3: master weights 4n, Adam's states 8n, and, page-locked, 16-bit gradients 2n and fp32 gradients a
  sub group; stage 2: page-locked master weights 4n, a 16-bit copy 2n and fp32 gradients 4n, states 8n. torch's AdamW works with
  two fp32 copies of what it steps, DeepSpeed's CPUAdam with none;
- offloaded parameters: every partition page-locked by itself while the model is built, and then one buffer of them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from advisor.job import Job
from advisor.units import GIB

# A rank's process with the libraries and their communicators: the fall of available memory over the runs of
# measurements/h200.jsonl that offload nothing, less what is counted above.
_PROCESS = {
    "zero2": int(1.45 * GIB),
    "zero3": int(0.9 * GIB),
    "ddp": int(1.15 * GIB),
    "tensor_parallel": int(1.5 * GIB),
}


class HostRam(NamedTuple):
    """Bytes of one node: the peak of the run, the peak until the model is loaded, and what of the former is page-locked."""

    peak: int
    load: int
    pinned: int


def process_host_ram(job: Job) -> int:
    """What the ranks' processes take in one node, whatever the model."""
    return _PROCESS[job.strategy] * (job.gpus // max(1, job.nodes))


def power_of_two(size: int) -> int:
    """The page-locked block that holds ``size`` bytes."""
    return 1 << max(0, size - 1).bit_length() if size > 0 else 0


def _groups(elements: int, group: int) -> list[int]:
    whole, rest = divmod(elements, group)
    return [group] * whole + ([rest] if rest else [])


def zero_host_ram(job: Job, parameters: int, trainable: int, partitions: Sequence[int] = ()) -> HostRam:
    """Host RAM of ZeRO ``job`` with so many parameters.

    ``partitions`` are the elements of a rank's share of each parameter; without them (a quick look) offloaded parameters
    count as one block.
    """
    ranks = job.gpus // max(1, job.nodes)
    process, share = process_host_ram(job), -(-trainable // job.world_size)

    def locked(size: int) -> int:
        return power_of_two(size) if job.zero.pin_memory else size

    loading = 0 if job.zero_init else 2 * parameters
    pinned = 0
    if job.offload_param == "cpu":
        held = partitions or [-(-parameters // job.world_size)]
        pinned += sum(locked(2 * elements) for elements in held)
        loading += pinned
        if job.trains:
            pinned += locked(2 * share)
    pageable = moment = 0
    if job.trains and job.offload_optimizer == "cpu":
        groups = _groups(share, job.zero.sub_group_size if job.strategy == "zero3" else max(1, share))
        pageable += 8 * share
        if job.strategy == "zero3":
            pageable += 4 * share
            pinned += locked(2 * share) + sum(locked(4 * group) for group in groups)
        else:
            pinned += 2 * locked(4 * share) + locked(2 * share)
        if job.zero_optimizer != "deepspeed":
            moment = 2 * 4 * max(groups, default=0)
    elif job.trains and job.strategy == "zero3" and job.offload_param is None:
        moment = (2 if job.method == "full" else 4) * share  # adapters are in fp32
    run = ranks * max(pageable + pinned + moment, loading)
    return HostRam(process + run, process + ranks * loading, ranks * pinned)
