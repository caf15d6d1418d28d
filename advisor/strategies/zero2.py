"""ZeRO-2: a copy of the weights on every GPU, gradients and optimizer states sharded."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies.common import job_of, methods
from advisor.strategies.ddp import spans
from advisor.strategies.zero import Zero


class Zero2(Zero):
    """DeepSpeed stage 2. It ignores ``offload_param`` silently (case C18), so only the optimizer is offloaded here."""

    name: StrategyName = "zero2"
    title = "gradients and optimizer sharded (ZeRO-2)"

    def refuses(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> str | None:
        """Nothing to train, or nothing to shard."""
        if workload.task == "inference":
            return "ZeRO-2 shards gradients and optimizer states, and inference has neither"
        if machine.gpu_count == 1 and workload.method in ("lora", "qlora"):
            return "there is one GPU, and ZeRO-2 shards optimizer states that LoRA hardly has"
        return super().refuses(model, machine, workload)

    def jobs(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterator[Job]:
        """Each method without offload; full fine-tuning then with the optimizer on the CPU."""
        for method in methods(workload):
            for gpus, nodes in spans(machine, least=1):
                if gpus > 1:
                    yield job_of(
                        model, machine, workload, self.name, method, gpus=gpus, nodes=nodes, zero_optimizer="client"
                    )
                if method == "full":
                    yield job_of(
                        model, machine, workload, self.name, method, gpus=gpus, nodes=nodes,
                        offload_optimizer="cpu", zero_optimizer="deepspeed",
                    )  # fmt: skip
