"""A whole copy of the model on every GPU; gradients are averaged."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies import launch, limits
from advisor.strategies.advice import advice
from advisor.strategies.base import PlanParts
from advisor.strategies.common import Common, cards_of_node, job_of, methods


class DataParallel(Common):
    """torch's DistributedDataParallel."""

    name: StrategyName = "ddp"
    title = "a copy on every GPU (DDP)"

    def refuses(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> str | None:
        """One GPU, MIG, or nothing to train."""
        if workload.task == "inference":
            return "DDP averages gradients: to serve, start one single-GPU process a card"
        return (
            limits.no_cards(machine)
            or limits.one_card(machine, "DDP puts one copy on each of several")
            or limits.mig(machine)
        )

    def jobs(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterator[Job]:
        """Each method on all cards of a node, then over all nodes."""
        for method in methods(workload):
            for gpus, nodes in spans(machine):
                yield job_of(model, machine, workload, self.name, method, gpus=gpus, nodes=nodes)

    def plan(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> PlanParts:
        """One process a card by torchrun. A quantized model lies whole on each rank's own card (case A08)."""
        return PlanParts(
            launch=launch.torchrun(machine, job),
            accelerate=launch.accelerate_yaml(job),
            steps=advice(model, machine, job),
        )


def spans(machine: HardwareProfile, least: int = 2) -> Iterator[tuple[int, int]]:
    """(GPUs, nodes) that a job with one process a card may take: all of one node, then all nodes."""
    each = cards_of_node(machine)
    if each >= least:
        yield each, 1
    if machine.nodes > 1:
        yield each * machine.nodes, machine.nodes
