"""One door to every strategy's memory."""

from __future__ import annotations

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.models.spec import ModelSpec


def predict_memory(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The memory of ``job`` on ``machine``.

    Raises InputError for a config that transformers cannot read and ValueError for an optimizer without a memory model.
    """
    if job.strategy == "single":
        from advisor.memory.single import budget_single

        return budget_single(model, machine, job)
    if job.strategy == "device_map":
        from advisor.memory.device_map import budget_device_map

        return budget_device_map(model, machine, job)
    from advisor.memory import engines

    if job.strategy == "ddp":
        return engines.budget_ddp(model, machine, job)
    if job.strategy in ("zero2", "zero3"):
        return engines.budget_zero(model, machine, job)
    return engines.budget_tensor_parallel(model, machine, job)
