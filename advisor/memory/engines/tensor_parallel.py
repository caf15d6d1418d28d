"""Tensor parallel inference (transformers' tp_plan): linear layers and the cache are cut over the ranks.

The embedding stays whole on each rank; measured on a Llama-2-7B over two cards (measurements/h200-load.jsonl).
"""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.memory.engines.alike import budget_of_alike_ranks
from advisor.memory.engines.host import process_host_ram
from advisor.memory.figures import figures, kept
from advisor.memory.optimizer import is_embedding
from advisor.memory.single import is_hopper
from advisor.models.spec import ModelSpec


def budget_tensor_parallel(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The memory of ``job`` on each card."""
    hopper, world = is_hopper(machine), job.world_size

    def compute() -> Any:
        from advisor.memory.assemble import timeline

        line = timeline(model, job, hopper=hopper)
        whole = {
            index + 1 for index, parameter in enumerate(line.parameters) if is_embedding(parameter.name)
        }  # the builder numbers weights by parameter
        events = tuple(
            event._replace(size=-(-event.size // world))
            if event.kind in ("alloc", "free")
            and (event.part == "kv_cache" or (event.part == "weights" and event.key not in whole))
            else event
            for event in line.events
        )
        return figures(events, expandable=job.expandable_segments)

    found = kept(model, job, {"hopper": hopper, "world": world}, compute)
    host = process_host_ram(job)
    return budget_of_alike_ranks(found, machine, job, host_ram=host, host_ram_load=host)
