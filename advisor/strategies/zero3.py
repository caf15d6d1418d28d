"""ZeRO-3: parameters, gradients and optimizer states sharded; gathered where they are used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, Method, StrategyName, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies.common import job_of, methods
from advisor.strategies.ddp import spans
from advisor.strategies.zero import Zero

_CPU_OPTIMIZER: dict[str, Any] = {"offload_optimizer": "cpu", "zero_optimizer": "deepspeed"}
# What goes where, fastest first. LoRA's optimizer is small: only its frozen weights are worth moving.
_FULL: tuple[dict[str, Any], ...] = (
    {"zero_optimizer": "client"},
    _CPU_OPTIMIZER,
    {**_CPU_OPTIMIZER, "offload_param": "cpu"},
    {"offload_optimizer": "nvme", "offload_param": "nvme", "zero_optimizer": "deepspeed"},
)
_LORA: tuple[dict[str, Any], ...] = (
    {"zero_optimizer": "client"},
    {"zero_optimizer": "client", "offload_param": "cpu"},
)
_OFFLOADS: dict[Method, tuple[dict[str, Any], ...]] = {
    "full": _FULL,
    "lora": _LORA,
    "qlora": ({"zero_optimizer": "client"},),
}
_INFERENCE: tuple[dict[str, Any], ...] = ({}, {"offload_param": "cpu"}, {"offload_param": "nvme"})


class Zero3(Zero):
    """DeepSpeed stage 3, for training and (ZeRO-Inference) for generation."""

    name: StrategyName = "zero3"
    title = "everything sharded (ZeRO-3)"

    def refuses(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> str | None:
        """As ZeRO-2, and no 8-bit weights."""
        if workload.quantization == "int8":
            return "ZeRO-3 shards floating-point storage only, so bitsandbytes int8 cannot be sharded; use nf4"
        if workload.task == "inference" and workload.quantization == "nf4":
            return "ZeRO-Inference gathers 16-bit weights; nf4 fits one card or a device map instead"
        return super().refuses(model, machine, workload)

    def jobs(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterator[Job]:
        """Each method without offload, then with ever more of it."""
        for gpus, nodes in spans(machine, least=1):
            if workload.task == "inference":
                for offload in _INFERENCE:
                    if gpus > 1 or "offload_param" in offload:
                        yield job_of(model, machine, workload, self.name, None, gpus=gpus, nodes=nodes, **offload)
                continue
            for method in methods(workload):
                for offload in _OFFLOADS[method]:
                    if gpus > 1 or "offload_param" in offload or "offload_optimizer" in offload:
                        yield self._job(model, machine, workload, method, gpus, nodes, offload)

    def _job(
        self, model: ModelSpec, machine: HardwareProfile, workload: Workload, method: Method, gpus: int, nodes: int,
        offload: dict[str, Any],
    ) -> Job:  # fmt: skip
        job = job_of(model, machine, workload, self.name, method, gpus=gpus, nodes=nodes, **offload)
        if method != "qlora" or job.lora is None:
            return job
        # Sharding flattens tensors together: 4-bit weights are packed into the compute type, and the adapters have the
        # same (cases F01, C08).
        return replace(job, bnb_4bit_quant_storage=job.load_dtype, lora=replace(job.lora, dtype=job.load_dtype))
