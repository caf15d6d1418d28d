"""From plain values (flags, keyword arguments, form fields) to the three nouns of a question: model, machine, workload.

The command line, the Python API and the local page all come through here, so they check and default alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

from advisor.errors import InputError
from advisor.hardware.profile import HardwareProfile
from advisor.job import NEW_TOKENS, SEQUENCE_LENGTH, STRATEGY_NAMES, Attention, Precision, Workload
from advisor.models.spec import ModelSpec
from advisor.units import parse_size

# Optimizers by the Trainer's names that the memory model knows.
OPTIMIZERS = (
    "adamw_torch", "adamw_torch_fused", "adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit",
    "adafactor", "sgd", "lion_32bit", "lion_8bit", "paged_lion_32bit", "paged_lion_8bit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ask:
    """A whole question."""

    model: ModelSpec
    machine: HardwareProfile
    workload: Workload


def size(flag: str, text: str | int | None) -> int | None:
    """Bytes of a size flag; an int counts as bytes. Raises InputError for a size without a unit."""
    if text is None or isinstance(text, int):
        return text
    try:
        amount = parse_size(text)
    except ValueError as error:
        raise InputError(flag, str(error)) from error
    if amount <= 0:
        raise InputError(flag, "must be more than nothing", found=text)
    return amount


def _choice(flag: str, value: str | None, allowed: tuple[str, ...]) -> Any:
    if value is not None and value not in allowed:
        raise InputError(flag, "is not known", found=value, expected=f"one of {', '.join(allowed)}")
    return value


def _positive(flag: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise InputError(flag, "must be at least 1", found=value, expected="a positive whole number")
    return value


def workload(
    *,
    task: str,
    method: str = "auto",
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    seq_len: int | None = None,
    max_new_tokens: int | None = None,
    precision: str | None = None,
    quantization: str | None = None,
    optimizer: str | None = None,
    gradient_checkpointing: bool | None = None,
    lora_rank: int = 16,
    lora_alpha: int | None = None,
    lora_target_modules: str | tuple[str, ...] = "all-linear",
    attention: str | None = None,
    strategy: str | None = None,
    then: str | None = None,
) -> Workload:
    """Check every value and build the workload. Raises InputError naming flag, value and what would be right."""
    _choice("--task", task, ("inference", "finetune"))
    _choice("--method", method, ("auto", "full", "lora", "qlora"))
    if task == "inference" and method != "auto":
        raise InputError("--method", "is for fine-tuning", found=method, expected="--task finetune, or no --method")
    if then is not None:
        _choice("--then", then, ("inference",))
        if task != "finetune":
            raise InputError("--then", "follows a fine-tuning", found=then, expected="--task finetune")
    micro, whole = _positive("--batch-size", batch_size), _positive("--global-batch-size", global_batch_size)
    if micro and whole and whole % micro:
        raise InputError("--global-batch-size", f"is no multiple of --batch-size {micro}", found=whole)
    if quantization is not None and task == "finetune" and quantization != "none" and method in ("full", "lora"):
        raise InputError("--quantization", f"cannot go with --method {method}", found=quantization, expected="qlora")
    if isinstance(lora_target_modules, str) and "," in lora_target_modules:
        lora_target_modules = tuple(part.strip() for part in lora_target_modules.split(",") if part.strip())
    return Workload(
        task=task,  # type: ignore[arg-type]  # checked above
        method=method,  # type: ignore[arg-type]
        micro_batch_size=micro,
        global_batch_size=whole,
        sequence_length=_positive("--seq-len", seq_len) or SEQUENCE_LENGTH,
        max_new_tokens=_positive("--max-new-tokens", max_new_tokens) or (NEW_TOKENS if task == "inference" else 0),
        precision=_choice("--precision", precision, get_args(Precision)),
        quantization=_choice("--quantization", quantization, ("none", "nf4", "int8")),
        optimizer=_choice("--optimizer", optimizer, OPTIMIZERS),
        gradient_checkpointing=gradient_checkpointing,
        lora_rank=_positive("--lora-rank", lora_rank) or 16,
        lora_alpha=_positive("--lora-alpha", lora_alpha),
        lora_target_modules=lora_target_modules,
        attention=_choice("--attention", attention, get_args(Attention)),
        strategy=_choice("--strategy", strategy, STRATEGY_NAMES),
        then=then,  # type: ignore[arg-type]
    )


def machine(
    hardware: str | None = None,
    *,
    gpus: int | None = None,
    nodes: int | None = None,
    gpu_memory: str | int | None = None,
    host_memory: str | int | None = None,
) -> HardwareProfile:
    """The machine that is meant: a profile by name or file, or this one; narrowed by the flags."""
    from advisor.hardware.load import load_profile, select, this_machine

    profile = load_profile(hardware) if hardware else this_machine()
    return select(
        profile,
        gpus=_positive("--gpus", gpus),
        nodes=_positive("--nodes", nodes),
        gpu_memory=size("--gpu-memory", gpu_memory),
        host_memory=size("--host-memory", host_memory),
    )


def ask(
    model: str,
    task: str,
    *,
    hardware: str | None = None,
    gpus: int | None = None,
    nodes: int | None = None,
    gpu_memory: str | int | None = None,
    host_memory: str | int | None = None,
    download: bool = False,
    trust_remote_code: bool = False,
    **work: Any,
) -> Ask:
    """The whole question from plain values; ``work`` goes to :func:`workload`."""
    from advisor.models.resolve import resolve

    asked = workload(task=task, **work)
    found = resolve(model, allow_download=download, trust_remote_code=trust_remote_code)
    return Ask(
        model=found,
        machine=machine(hardware, gpus=gpus, nodes=nodes, gpu_memory=gpu_memory, host_memory=host_memory),
        workload=within(found, asked, asked_length=work.get("seq_len") is not None),
    )


def within(model: ModelSpec, asked: Workload, *, asked_length: bool) -> Workload:
    """The workload within the positions that the model has: an open length is cut to them.

    Raises InputError where an asked length, with the new tokens, is beyond them.
    """
    limit = model.position_limit
    new = asked.max_new_tokens if model.kind == "causal" else 0
    if limit is None or asked.sequence_length + new <= limit:
        return asked
    if asked_length or new >= limit:
        more = f" with {new} new tokens" if new else ""
        raise InputError(
            "--seq-len" if asked_length else "--max-new-tokens",
            f"is beyond the {limit} positions of {model.name}{more}",
            found=asked.sequence_length if asked_length else new,
            expected=f"at most {max(1, limit - new) if asked_length else limit - 1}",
        )
    return replace(asked, sequence_length=limit - new)
