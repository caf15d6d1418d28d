"""What ZeRO-2 and ZeRO-3 share: DeepSpeed's files, launch and estimators, and the refusals of even shards."""

from __future__ import annotations

from dataclasses import replace

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName, Workload, ZeroTuning
from advisor.memory.engines.zero import plan_buckets
from advisor.models.spec import ModelSpec
from advisor.strategies import deepspeed_json, launch, limits
from advisor.strategies.advice import advice
from advisor.strategies.base import PlanParts
from advisor.strategies.common import Common
from advisor.strategies.estimators import estimators


class Zero(Common):
    """DeepSpeed."""

    name: StrategyName

    def refuses(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> str | None:
        """No CUDA or ROCm card, MIG, mixed cards."""
        vendors = {card.vendor for card in machine.gpus} - {"nvidia", "amd"}
        return (
            limits.no_cards(machine)
            or (f"DeepSpeed does not run on {', '.join(sorted(vendors))} GPUs" if vendors else None)
            or (limits.mig(machine) if machine.gpu_count > 1 else None)
            or limits.mixed_cards(machine)
        )

    def settle(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> Job | str:
        """Bucket sizes by the model's width; under WSL, where Windows limits it, nothing is pinned."""
        return replace(job, zero=replace(tuning(model), pin_memory=not machine.host.wsl))

    def plan(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> PlanParts:
        """torchrun on one node, DeepSpeed's launcher with a hostfile over several."""
        start = launch.torchrun(machine, job) if job.nodes == 1 else launch.deepspeed(machine, job)
        return PlanParts(
            launch=start,
            deepspeed=deepspeed_json.config(model, machine, job),
            accelerate=launch.accelerate_yaml(job),
            estimators=estimators(model, job, self.budget(model, machine, job)),
            steps=advice(model, machine, job),
        )


def tuning(model: ModelSpec) -> ZeroTuning:
    """Buffers by the model's width, as accelerate fills "auto" in; DeepSpeed's own defaults carry 3 GiB more."""
    sizes = plan_buckets(max(1, model.hidden_size))
    return ZeroTuning(
        reduce_bucket_size=sizes["reduce_bucket_size"],
        allgather_bucket_size=sizes["reduce_bucket_size"],
        prefetch_bucket_size=sizes["stage3_prefetch_bucket_size"],
        param_persistence_threshold=sizes["stage3_param_persistence_threshold"],
    )
