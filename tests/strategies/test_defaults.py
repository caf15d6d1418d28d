"""What open values become."""

from __future__ import annotations

import pytest

from advisor.strategies.defaults import attention_of, filled, listed, load_dtype_of, precision_of
from tests.strategies import tiny

NEW = tiny.machine(2)
OLD = tiny.machine(gpus=(tiny.card(16, "Tesla T4", compute_capability="7.5", bf16_flops=None),))


@pytest.mark.parametrize(
    ("strategy", "method", "precision", "load"),
    [
        ("single", "full", "bf16-mixed", "fp32"),  # fp32 weights under autocast
        ("ddp", "full", "bf16-mixed", "fp32"),
        ("zero2", "full", "bf16-mixed", "bf16"),  # DeepSpeed keeps the fp32 master weights
        ("zero3", "lora", "bf16-mixed", "bf16"),
        ("single", "lora", "bf16", "bf16"),
        ("ddp", "qlora", "bf16", "bf16"),
    ],
)
def test_precision_on_a_card_with_bf16(strategy: str, method: str, precision: str, load: str) -> None:
    found = precision_of(NEW, tiny.finetune(), strategy, method)  # type: ignore[arg-type]
    assert (found, load_dtype_of(found, strategy, method)) == (precision, load)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_fp16_always_trains_with_a_loss_scale(method: str) -> None:
    assert precision_of(OLD, tiny.finetune(), "single", method) == "fp16-mixed"  # type: ignore[arg-type]
    assert precision_of(OLD, tiny.inference(), "single", None) == "fp16"


def test_what_was_asked_stays() -> None:
    assert precision_of(NEW, tiny.finetune(precision="fp32"), "zero3", "full") == "fp32"
    assert precision_of(NEW, tiny.finetune(precision="bf16"), "single", "full") == "bf16"
    assert precision_of(NEW, tiny.finetune(precision="bf16"), "zero3", "full") == "bf16-mixed"


def test_batch_sizes() -> None:
    assert filled(tiny.inference(), NEW).micro_batch_size == 1
    assert filled(tiny.finetune(global_batch_size=None), NEW).global_batch_size == 16
    assert filled(tiny.finetune(global_batch_size=None), tiny.machine(24)).global_batch_size == 24
    given = filled(tiny.finetune(global_batch_size=None, micro_batch_size=2), NEW)
    assert given.global_batch_size is None and given.micro_batch_size == 2


def test_capped_scores_cannot_run_in_sdpa() -> None:
    capped = tiny.model({**tiny.LLAMA, "attn_logit_softcapping": 50.0})
    assert attention_of(capped, tiny.finetune()) == "eager"
    assert attention_of(tiny.model(), tiny.finetune()) == "sdpa"


def test_only_open_values_are_listed() -> None:
    names = {default.name for default in listed(tiny.model(), NEW, tiny.finetune())}
    assert {"method", "precision", "optimizer", "micro batch size", "gradient checkpointing"} <= names
    asked = tiny.finetune(method="full", precision="fp32", optimizer="sgd", micro_batch_size=1, attention="eager")
    left = {default.name for default in listed(tiny.model(), NEW, asked)}
    assert not {"method", "precision", "optimizer", "micro batch size", "attention", "LoRA"} & left
