"""Tensor parallelism: every layer's matrices split over the GPUs, by transformers' own plan."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.cache import cached, version_of
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies import launch, limits
from advisor.strategies.advice import advice
from advisor.strategies.base import PlanParts
from advisor.strategies.common import Common, cards_of_node, job_of, powers_of_two


class TensorParallel(Common):
    """``tp_plan="auto"`` under torchrun, for 16-bit inference inside one node."""

    name: StrategyName = "tensor_parallel"
    title = "layers split over GPUs (tensor parallel)"

    def refuses(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> str | None:
        """Training, one GPU, MIG, mixed cards, no plan for the architecture, heads that cannot be split."""
        if workload.task == "finetune":
            return "transformers' tp_plan is used here to serve; the Trainer does not train with it"
        if workload.quantization not in (None, "none"):
            return f"{workload.quantization} layers of bitsandbytes cannot be split by tp_plan"
        reason = (
            limits.no_cards(machine)
            or limits.one_card(machine, "tensor parallelism splits layers over several")
            or limits.mig(machine)
            or limits.mixed_cards(machine)
        )
        if reason:
            return reason
        if any(card.vendor not in ("nvidia", "amd") for card in machine.gpus):
            return "tensor parallelism needs NCCL or RCCL between the GPUs"
        if cards_of_node(machine) < 2:
            return "each node has one GPU, and tensor parallelism over a network waits for it at every layer"
        if not has_tp_plan(model):
            return f"transformers has no tensor-parallel plan for {model.model_type}"
        if not self._worlds(model, machine):
            return limits.heads_split(model, 2)
        return None

    def jobs(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterator[Job]:
        """All cards of a node first, then fewer."""
        for world in reversed(self._worlds(model, machine)):
            yield job_of(model, machine, workload, self.name, None, gpus=world)

    def plan(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> PlanParts:
        """One process a card; each loads its part of every matrix."""
        return PlanParts(launch=launch.torchrun(machine, job), steps=advice(model, machine, job))

    @staticmethod
    def _worlds(model: ModelSpec, machine: HardwareProfile) -> tuple[int, ...]:
        counts = powers_of_two(2, cards_of_node(machine))
        return tuple(world for world in counts if limits.heads_split(model, world) is None)


def has_tp_plan(model: ModelSpec) -> bool:
    """Whether the installed transformers knows how to split this architecture."""

    def look() -> bool:
        from advisor.memory.trace.build import full_config

        return bool(getattr(full_config(model), "base_model_tp_plan", None))

    key = {"model_type": model.model_type, "transformers": version_of("transformers")}
    return bool(cached("tp_plan", key, look))
