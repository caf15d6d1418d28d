"""ADV302: adapters in fp32 beside 16-bit weights, under FSDP."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.facts import Call
from advisor.check.judge import Load, dtype, finding, loads, quantized
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node, truth


def check(project: Project) -> Iterator[Finding | Doubt]:
    """4-bit loads in runs with FSDP whose adapters, norms or embeddings become fp32, and are not cast back."""
    for run in project.runs:
        if run.fsdp is None or run.script is None:
            continue
        for load in loads(run):
            how = quantized(run, load)
            if how is None or how.bits != 4 or _storage(run, load) == "float32":
                continue
            if not _casts(run):
                yield from _judge(run)
            break


def _storage(run: Run, load: Load) -> str | None:
    how = quantized(run, load)
    return dtype(run.value(how.config.get("bnb_4bit_quant_storage"))) if how is not None else None


def _judge(run: Run) -> Iterator[Finding]:
    script = run.script
    if script is None:
        return
    upcasting = script.named("prepare_model_for_kbit_training")
    made = script.named("get_peft_model")
    adapters: list[Call] = [call for call in made if _fp32(run.value(call.get("autocast_adapter_dtype")))]
    if adapters:
        yield finding(
            RULE, adapters[0].node,
            "get_peft_model makes the adapters fp32 beside 16-bit weights, and FSDP flattens tensors of one dtype only",
        )  # fmt: skip
    elif upcasting:
        yield finding(
            RULE, upcasting[0].node,
            "prepare_model_for_kbit_training turns norms and embeddings into fp32, and FSDP flattens tensors of one dtype only",
        )  # fmt: skip


def _fp32(node: Node | None) -> bool:
    return node is None or truth(node.value) is True


def _casts(run: Run) -> bool:
    """Whether the script turns tensors into a 16-bit type somewhere: then it has taken care."""
    for call in run.script.calls if run.script is not None else ():
        if call.last == "bfloat16" or call.last == "half":
            return True
        if call.last == "to":
            given = [*call.called.args, *([call.called.kwargs["dtype"]] if "dtype" in call.called.kwargs else [])]
            kinds = [dtype(run.value(node)) for node in given]
            # What cannot be told may be a dtype; a device is none.
            if any(kind in ("bfloat16", "float16") for kind in kinds) or any(not node.known for node in given):
                return True
    return False


RULE = Rule(
    code="ADV302",
    name="mixed-adapter-dtype",
    severity="error",
    what="QLoRA under FSDP with adapters (or norms and embeddings) in fp32 while the packed weights are stored "
    "in 16 bits.",
    why="PEFT makes adapters fp32 unless autocast_adapter_dtype=False, and prepare_model_for_kbit_training turns "
    'norms into fp32. FSDP stops: "Must flatten tensors with uniform dtype but got torch.bfloat16 and '
    'torch.float32".',
    fix="get_peft_model(…, autocast_adapter_dtype=False) without prepare_model_for_kbit_training, or cast all "
    "fp32 tensors to the storage dtype before the model is wrapped (TRL's SFTTrainer with peft_config does)",
    since="PEFT 0.12, which brought autocast_adapter_dtype",
    check=check,
)
