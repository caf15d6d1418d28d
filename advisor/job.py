"""What is asked (:class:`Workload`) and what one candidate would do, down to the last switch (:class:`Job`).

A run record, a candidate of the search and a plan all hold a Job, so one piece of code predicts them all. Field names
are those of the run record (docs: "Run record").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Task = Literal["inference", "finetune"]
Method = Literal["full", "lora", "qlora"]
# bf16: weights, gradients and states in bf16. bf16-mixed: without DeepSpeed fp32 weights and autocast; under ZeRO bf16
# weights with fp32 master weights and states. The fp16 forms are the same with fp16.
Precision = Literal["bf16", "fp16", "fp32", "bf16-mixed", "fp16-mixed"]
Dtype = Literal["bf16", "fp16", "fp32"]
Quantization = Literal["nf4", "int8"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]
StrategyName = Literal["single", "device_map", "tensor_parallel", "ddp", "zero2", "zero3"]
Offload = Literal["cpu", "nvme"]
LossKernel = Literal["plain", "liger", "chunked"]

STRATEGY_NAMES: tuple[StrategyName, ...] = get_args(StrategyName)
DTYPE_BYTES: Mapping[str, int] = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """A LoRA adapter: rank, alpha and the modules it is put on (names, or "all-linear")."""

    rank: int = 16
    alpha: int = 32
    target_modules: str | tuple[str, ...] = "all-linear"
    # Adapters made after the model was loaded are fp32 (PEFT's autocast_adapter_dtype); ZeRO-3 QLoRA wants bf16.
    dtype: Dtype = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroTuning:
    """DeepSpeed's buffers, in elements. The defaults are DeepSpeed's own; plans set smaller ones.

    Names are the keys of ``zero_optimization`` without the ``stage3_`` prefix.
    """

    reduce_bucket_size: int = 500_000_000
    allgather_bucket_size: int = 500_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000
    overlap_comm: bool | None = None  # None: DeepSpeed's default, true for stage 3 and false below
    contiguous_gradients: bool = True
    pin_memory: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One fully fixed way to do the work: nothing here is "auto".

    ``gpus`` is the number of cards used over all ``nodes``; under ddp, zero2, zero3 and tensor_parallel it is the world
    size. ``micro_batch_size`` is per GPU (for one-process strategies, per process). ``max_memory`` caps what
    device_map may place, by device ("0", "1", "cpu", "disk") in bytes.
    """

    task: Task
    strategy: StrategyName
    method: Method | None = None
    precision: Precision = "bf16"
    load_dtype: Dtype = "bf16"
    micro_batch_size: int = 1
    sequence_length: int = 2048
    max_new_tokens: int = 0
    gradient_checkpointing: bool = False
    gradient_accumulation_steps: int = 1
    optimizer: str = "adamw_torch_fused"
    attention: Attention = "sdpa"
    quantization: Quantization | None = None
    bnb_4bit_quant_storage: Dtype | None = None  # None: bitsandbytes' uint8; ZeRO-3 QLoRA needs the compute dtype
    lora: Lora | None = None
    loss_kernel: LossKernel = "plain"
    gpus: int = 1
    nodes: int = 1
    offload_optimizer: Offload | None = None
    offload_param: Offload | None = None
    max_memory: Mapping[str, int] | None = None
    device_map: str | Mapping[str, int | str] | None = None
    expandable_segments: bool = False
    # DeepSpeed builds its own optimizer when the config names one: "torch_adam" is AdamW(torch_adam=True), as in the
    # measured runs; "deepspeed" its FusedAdam or, under CPU offload, DeepSpeedCPUAdam; "client" the Trainer's own.
    zero_optimizer: Literal["torch_adam", "deepspeed", "client"] = "deepspeed"
    zero: ZeroTuning = field(default_factory=ZeroTuning)
    zero_init: bool = True  # the model is built under zero.Init (the DeepSpeed config exists before from_pretrained)

    @property
    def trains(self) -> bool:
        """True for fine-tuning."""
        return self.task == "finetune"

    @property
    def steps_by_foreach(self) -> bool:
        """Whether the step under ZeRO is torch's multi-tensor AdamW, which holds one more fp32 copy of what it updates."""
        return self.zero_optimizer == "torch_adam" or (
            self.zero_optimizer == "client" and self.optimizer == "adamw_torch"
        )

    @property
    def world_size(self) -> int:
        """Number of processes: one a GPU for the distributed strategies, else 1."""
        return self.gpus if self.strategy in ("ddp", "zero2", "zero3", "tensor_parallel") else 1

    @property
    def data_parallel_size(self) -> int:
        """Number of replicas that see different data."""
        return self.gpus if self.strategy in ("ddp", "zero2", "zero3") else 1

    @property
    def global_batch_size(self) -> int:
        """Samples an optimizer step (or a generation) over all GPUs."""
        return self.micro_batch_size * self.gradient_accumulation_steps * self.data_parallel_size


SEQUENCE_LENGTH = 2048  # tokens a sample, where nothing was asked
NEW_TOKENS = 256  # tokens to generate, where nothing was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the user asked for. None (or "auto") means: the search may choose."""

    task: Task
    method: Literal["auto", "full", "lora", "qlora"] = "auto"
    micro_batch_size: int | None = None
    global_batch_size: int | None = None
    sequence_length: int = SEQUENCE_LENGTH
    max_new_tokens: int = NEW_TOKENS
    precision: Precision | None = None
    quantization: Literal["none", "nf4", "int8"] | None = None
    optimizer: str | None = None
    gradient_checkpointing: bool | None = None
    lora_rank: int = 16
    lora_alpha: int | None = None  # None: twice the rank
    lora_target_modules: str | tuple[str, ...] = "all-linear"
    attention: Attention | None = None
    strategy: StrategyName | None = None  # forced by --strategy
    then: Literal["inference"] | None = None  # staged work: serve after training
