"""Every value that the user left open, in one place: what it becomes, and why.

Precision depends on the card and the method; batch sizes on the task. ``filled`` puts the open numbers into the
workload, ``listed`` says all of them for printing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.hardware.profile import HardwareProfile
from advisor.job import NEW_TOKENS, SEQUENCE_LENGTH, Dtype, Method, Precision, StrategyName, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies.attention import attention_of, kernels_of

# Samples an optimizer step when neither batch size is given: what published fine-tuning recipes use most.
GLOBAL_BATCH_SIZE = 16
# The most tokens of a micro batch that the search tries: beyond them a card is busy and only memory grows.
MAX_MICRO_BATCH_TOKENS = 8192
OPTIMIZER = "adamw_torch_fused"  # the plain form takes one more copy of the trained parameters at its step


@dataclass(frozen=True, slots=True)
class Default:
    """One value that was filled in: its name, the value as text and the reason."""

    name: str
    value: str
    why: str


def half(machine: HardwareProfile) -> Dtype:
    """The 16-bit type of the machine's cards: bf16 where every card has it, else fp16."""
    return "bf16" if machine.gpus and all(card.has_bf16 for card in machine.gpus) else "fp16"


def precision_of(
    machine: HardwareProfile, workload: Workload, strategy: StrategyName, method: Method | None
) -> Precision:
    """What is computed in. ZeRO keeps fp32 master weights of 16-bit ones whatever is asked, which is the mixed form."""
    asked = workload.precision
    sharded = strategy in ("zero2", "zero3") and workload.task == "finetune"
    if asked is None:
        kind = half(machine)
        if workload.task == "inference":
            asked = "bf16" if kind == "bf16" else "fp16"
        elif method == "full" or kind == "fp16":
            # 16-bit gradients of fp16 vanish without a loss scale, so fp16 always trains mixed.
            asked = "bf16-mixed" if kind == "bf16" else "fp16-mixed"
        else:
            asked = "bf16"
    if sharded and asked == "bf16":
        return "bf16-mixed"
    if sharded and asked == "fp16":
        return "fp16-mixed"
    return asked


def load_dtype_of(precision: Precision, strategy: StrategyName, method: Method | None) -> Dtype:
    """The type that weights are loaded in: fp32 for full mixed training without DeepSpeed, else the 16-bit type."""
    if precision == "fp32":
        return "fp32"
    mixed = precision.endswith("-mixed")
    if mixed and method == "full" and strategy not in ("zero2", "zero3"):
        return "fp32"
    return "bf16" if precision.startswith("bf16") else "fp16"


def filled(workload: Workload, machine: HardwareProfile) -> Workload:
    """The workload with its batch sizes set. Fine-tuning keeps ``micro_batch_size`` open for the search."""
    if workload.task == "inference":
        return replace(workload, micro_batch_size=workload.micro_batch_size or workload.global_batch_size or 1)
    if workload.micro_batch_size is None and workload.global_batch_size is None:
        return replace(workload, global_batch_size=max(GLOBAL_BATCH_SIZE, machine.gpu_count))
    return workload


def alpha_of(workload: Workload) -> int:
    """LoRA's alpha: as asked, else twice the rank, as PEFT's examples have it."""
    return 2 * workload.lora_rank if workload.lora_alpha is None else workload.lora_alpha


def listed(model: ModelSpec, machine: HardwareProfile, workload: Workload) -> tuple[Default, ...]:
    """Every value that the user left open, for printing."""
    found: list[Default] = []
    whole = filled(workload, machine)
    training = workload.task == "finetune"
    card = "every card has bf16" if half(machine) == "bf16" else "not every card has bf16"
    if training:
        if workload.method == "auto":
            found.append(Default("method", "full, else lora, else qlora", "the most faithful one that fits"))
        if workload.micro_batch_size is None:
            found.append(Default("micro batch size", "the fastest that fits", "searched in powers of two"))
        if workload.global_batch_size is None and whole.global_batch_size is not None:
            found.append(Default("global batch size", str(whole.global_batch_size), "usual for fine-tuning"))
        if workload.precision is None:
            found.append(Default("precision", f"{half(machine)}, fp32 master weights for full fine-tuning", card))
        if workload.optimizer is None:
            found.append(Default("optimizer", OPTIMIZER, "no copy of the parameters at the step"))
        if workload.gradient_checkpointing is None:
            found.append(Default("gradient checkpointing", "where it makes the job fit or faster", "searched"))
        if workload.method != "full":
            targets = workload.lora_target_modules
            names = targets if isinstance(targets, str) else ",".join(targets)
            rank = workload.lora_rank
            why = "alpha is twice the rank" if workload.lora_alpha is None else "as asked"
            found.append(Default("LoRA", f"rank {rank}, alpha {alpha_of(workload)}, {names}", why))
    else:
        if workload.micro_batch_size is None:
            found.append(Default("batch size", str(whole.micro_batch_size), "one request at a time"))
        if workload.precision is None:
            found.append(Default("precision", half(machine), card))
        if workload.quantization is None:
            found.append(Default("quantization", "none, else int8, else nf4", "16 bits where they fit"))
    if workload.attention is None:
        kernel = attention_of(model, workload)
        why = "in every install of torch" if kernel == "sdpa" else f"{kernels_of(model)['class']} has no SDPA path"
        found.append(Default("attention", kernel, why))
    limit = model.position_limit
    if workload.sequence_length == SEQUENCE_LENGTH:
        found.append(Default("sequence length", str(SEQUENCE_LENGTH), "usual for fine-tuning and prompts"))
    elif limit is not None and limit - workload.max_new_tokens == workload.sequence_length < SEQUENCE_LENGTH:
        found.append(Default("sequence length", str(workload.sequence_length), f"the model has {limit} positions"))
    if not training and workload.max_new_tokens == NEW_TOKENS:
        found.append(Default("new tokens", str(NEW_TOKENS), "a short answer"))
    return tuple(found)
