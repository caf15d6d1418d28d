"""ADV301: 4-bit weights that ZeRO-3 or FSDP cannot shard."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import Quantized, dtype, finding, loads, quantized, shown
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import UNKNOWN, Node

_FLOATS = ("bfloat16", "float16", "float32")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """4-bit loads in runs with stage 3 or FSDP: bnb_4bit_quant_storage must be a float type, that of the model."""
    for run in project.runs:
        for load in loads(run):
            zero = run.zero3_at(load.call)
            sharded = f"ZeRO-3 ({zero.said()})" if zero is not None else "FSDP" if run.fsdp is not None else None
            how = quantized(run, load)
            if sharded is None or how is None or how.bits != 4:
                continue
            yield from _judge(run, how, load.get(run, "torch_dtype", "dtype"), sharded)


def _judge(run: Run, how: Quantized, model: Node | None, sharded: str) -> Iterator[Finding]:
    storage = run.value(how.config.get("bnb_4bit_quant_storage"))
    if storage is None:
        if how.whole:
            yield finding(
                RULE,
                how.node,
                f"load_in_4bit without bnb_4bit_quant_storage stores the weights as "
                f"uint8, which {sharded} cannot shard",
            )
        return
    if storage.value is UNKNOWN:
        return
    kind, wanted = dtype(storage), dtype(model)
    if kind is not None and kind not in _FLOATS:
        yield finding(
            RULE,
            storage,
            f"bnb_4bit_quant_storage={shown(storage)} is no float type, and {sharded} shards nothing else",
        )
    elif kind is not None and wanted in _FLOATS and kind != wanted:
        yield finding(
            RULE,
            storage,
            f"bnb_4bit_quant_storage={shown(storage)} is not the dtype of the rest of the model "
            f"({wanted}) under {sharded}",
        )


RULE = Rule(
    code="ADV301",
    name="quant-storage-for-sharding",
    severity="error",
    what="QLoRA (4-bit) under ZeRO-3 or FSDP without bnb_4bit_quant_storage, or with one that is not the dtype "
    "of the other weights.",
    why='bitsandbytes keeps 4-bit weights as uint8 unless told otherwise. FSDP stops: "Cannot flatten integer '
    'dtype tensors"; ZeRO-3 leaves them whole on every rank. Stored as bfloat16 they are sharded like any other '
    "weight of that type.",
    fix="bnb_4bit_quant_storage=torch.bfloat16, the same as the model's dtype and the mixed precision",
    since="transformers 4.39 and bitsandbytes 0.43, which brought bnb_4bit_quant_storage",
    check=check,
)
