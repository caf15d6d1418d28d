"""DeepSpeed ZeRO-2 and ZeRO-3: a rank's card by :mod:`zero2` or :mod:`zero3`, a node's RAM by :mod:`host`."""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.memory.engines.alike import budget_of_alike_ranks
from advisor.memory.engines.host import zero_host_ram
from advisor.memory.engines.zero2 import Zero2
from advisor.memory.engines.zero3 import Zero3
from advisor.memory.figures import figures, kept
from advisor.memory.single import is_hopper
from advisor.models.spec import ModelSpec


def budget_zero(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The memory of ZeRO ``job`` on each card and in a node's RAM."""
    hopper = is_hopper(machine)

    def compute() -> Any:
        from advisor.memory.assemble import timeline

        line = timeline(model, job, optimizer=False, hopper=hopper)
        engine = Zero3(line, job) if job.strategy == "zero3" else Zero2(line, job)
        found = figures(engine.events(), expandable=job.expandable_segments)
        found["parameters"] = sum(parameter.numel for parameter in line.parameters)
        # Small parameters stay on the card.
        found["partitions"] = [
            -(-parameter.numel // job.world_size)
            for parameter in line.parameters
            if parameter.numel > job.zero.param_persistence_threshold
        ]
        found["trainable"] = sum(parameter.numel for parameter in line.parameters if parameter.trainable)
        return found

    found = kept(model, job, {"hopper": hopper}, compute)
    host = zero_host_ram(job, found["parameters"], found["trainable"], found["partitions"])
    nvme = 0
    if job.offload_optimizer == "nvme":
        nvme += 16 * found["trainable"] // max(1, job.nodes)
    if job.offload_param == "nvme":
        nvme += 2 * found["parameters"] // max(1, job.nodes)
    return budget_of_alike_ranks(
        found, machine, job, host_ram=host.peak, host_ram_load=host.load, host_pinned=host.pinned, disk=nvme
    )


def plan_buckets(hidden_size: int) -> dict[str, int]:
    """Concrete bucket sizes, in elements, for a plan: accelerate's formulas of the hidden size (case A11)."""
    return {
        "reduce_bucket_size": hidden_size * hidden_size,
        "stage3_prefetch_bucket_size": int(0.9 * hidden_size * hidden_size),
        "stage3_param_persistence_threshold": 10 * hidden_size,
    }
