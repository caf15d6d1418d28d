"""What all strategies share: from a workload to a job, and the doors to the memory and time models."""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, Lora, Method, Quantization, StrategyName, Workload
from advisor.memory.budget import Budget
from advisor.models.spec import ModelSpec
from advisor.strategies.attention import attention_of
from advisor.strategies.defaults import OPTIMIZER, alpha_of, filled, load_dtype_of, precision_of
from advisor.timing.estimate import TimeEstimate

METHODS: tuple[Method, ...] = ("full", "lora", "qlora")


class Common:
    """The parts of a strategy that are the same for all."""

    def budget(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
        """The job's memory on this machine."""
        from advisor.memory.predict import predict_memory

        return predict_memory(model, machine, job)

    def time(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> TimeEstimate:
        """The job's speed on this machine."""
        from advisor.timing.predict import predict_time

        return predict_time(model, machine, job)

    def settle(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> Job | str:
        """The job with what follows from its other settings filled in (a device map), or why there is none."""
        return job


def methods(workload: Workload) -> tuple[Method, ...]:
    """The methods to look at, most faithful first."""
    return METHODS if workload.method == "auto" else (workload.method,)


def quantizations(workload: Workload) -> tuple[Quantization | None, ...]:
    """The storage of weights to look at for inference, most faithful first."""
    if workload.quantization is None:
        return (None, "int8", "nf4")
    return (None,) if workload.quantization == "none" else (workload.quantization,)


def parameter_count(model: ModelSpec) -> int:
    """Unique parameters: the published count, else counted on the model's shape."""
    if model.parameters is not None:
        return model.parameters
    from advisor.memory.shape import model_shape

    return model_shape(model).count


def accumulation(workload: Workload, micro: int, replicas: int) -> int | None:
    """Micro steps that make the asked global batch; None when ``micro`` x ``replicas`` does not divide it."""
    if workload.global_batch_size is None:
        return 1
    steps, rest = divmod(workload.global_batch_size, micro * replicas)
    return steps if steps and not rest else None


def job_of(
    model: ModelSpec,
    machine: HardwareProfile,
    workload: Workload,
    strategy: StrategyName,
    method: Method | None,
    *,
    gpus: int = 1,
    nodes: int = 1,
    quantization: Quantization | None = None,
    **more: Any,
) -> Job:
    """The leanest job of a kind: smallest micro batch, gradient checkpointing unless it was forbidden.

    ``filled`` has been applied here, so callers pass the workload as asked. The search makes the job faster from here.
    """
    work = filled(workload, machine)
    training = work.task == "finetune"
    if training and method == "qlora" and quantization is None:
        quantization = "int8" if work.quantization == "int8" else "nf4"
    precision = precision_of(machine, work, strategy, method)
    micro = work.micro_batch_size or 1
    replicas = gpus if strategy in ("ddp", "zero2", "zero3") else 1
    # An accumulation that does not come out even is refused by the search; until then it is rounded down.
    steps = 1 if not training else max(1, (work.global_batch_size or 0) // (micro * replicas) or 1)
    values: dict[str, Any] = {
        "task": work.task,
        "strategy": strategy,
        "method": method,
        "precision": precision,
        "load_dtype": load_dtype_of(precision, strategy, method),
        "micro_batch_size": micro,
        "sequence_length": work.sequence_length,
        # An encoder answers in one pass.
        "max_new_tokens": 0 if training or model.kind == "masked" else work.max_new_tokens,
        "gradient_checkpointing": training and work.gradient_checkpointing is not False,
        "gradient_accumulation_steps": steps,
        "optimizer": work.optimizer or OPTIMIZER,
        "attention": attention_of(model, work),
        "quantization": quantization,
        "lora": lora_of(work) if method in ("lora", "qlora") else None,
        "gpus": gpus,
        "nodes": nodes,
        # Expandable segments are CUDA's: ROCm and Metal have no such allocator.
        "expandable_segments": all(card.vendor == "nvidia" for card in machine.gpus),
    }
    return Job(**(values | more))


def lora_of(workload: Workload) -> Lora:
    """The adapter as asked."""
    return Lora(rank=workload.lora_rank, alpha=alpha_of(workload), target_modules=workload.lora_target_modules)


def cards_of_node(machine: HardwareProfile) -> int:
    """Cards of one node."""
    return len(machine.cards)


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """``low``, 2 x ``low`` … below ``high``, and ``high`` itself; empty when ``high`` < ``low``."""
    found = []
    count = low
    while count < high:
        found.append(count)
        count *= 2
    return (*found, high) if high >= low else ()
