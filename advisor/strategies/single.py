"""The whole model on one GPU, in one process."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies import launch, limits
from advisor.strategies.advice import advice
from advisor.strategies.base import PlanParts
from advisor.strategies.common import Common, job_of, methods, quantizations


class Single(Common):
    """One device: nothing is sent anywhere."""

    name: StrategyName = "single"
    title = "one GPU"

    def refuses(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> str | None:
        """No GPU."""
        return limits.no_cards(machine)

    def jobs(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterator[Job]:
        """Each method, or each storage of the weights, most faithful first."""
        if workload.task == "finetune":
            for method in methods(workload):
                yield job_of(model, machine, workload, self.name, method)
        else:
            for quantization in quantizations(workload):
                yield job_of(model, machine, workload, self.name, None, quantization=quantization)

    def plan(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> PlanParts:
        """``python script`` with the other GPUs hidden."""
        return PlanParts(launch=launch.one_process(machine, job), steps=advice(model, machine, job))
