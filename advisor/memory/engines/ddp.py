"""DistributedDataParallel: the whole model on every rank, and flat buckets that are one more copy of the gradients.

Source: torch 2.11 torch/csrc/distributed/c10d/reducer.cpp (buckets of 25 MiB, a first one of 1 MiB; gradients are not
views of the buckets unless asked).
"""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.memory.engines.alike import budget_of_alike_ranks
from advisor.memory.engines.host import process_host_ram
from advisor.memory.figures import figures, kept
from advisor.memory.optimizer import managed_bytes
from advisor.memory.single import is_hopper
from advisor.memory.timeline import Event, Timeline
from advisor.models.spec import ModelSpec

BUCKET = 25 << 20


def budget_ddp(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The memory of ``job`` on each card. Raises ValueError for an optimizer without a memory model."""
    hopper = is_hopper(machine)

    def compute() -> Any:
        from advisor.memory.assemble import timeline

        line = timeline(model, job, hopper=hopper)
        found = figures(with_buckets(line), expandable=job.expandable_segments)
        return found | {"managed": managed_bytes(job, line.parameters)}

    found = kept(model, job, {"hopper": hopper}, compute)
    host = process_host_ram(job)
    return budget_of_alike_ranks(found, machine, job, host_ram=host, host_ram_load=host)


def with_buckets(line: Timeline) -> tuple[Event, ...]:
    """The timeline with the reducer's buckets, made when the model is wrapped: after load, before the first step."""
    sizes: list[int] = []
    room = 0
    for parameter in line.parameters:
        if parameter.trainable:
            room += parameter.numel * parameter.dtype_bytes
            if room >= BUCKET:
                sizes.append(room)
                room = 0
    if room:
        sizes.append(room)
    first = next(index for index, event in enumerate(line.events) if event.kind == "phase" and event.part != "load")
    made = tuple(Event("alloc", -1 - number, size, "buffers") for number, size in enumerate(sizes))
    return (*line.events[:first], *made, *line.events[first:])
