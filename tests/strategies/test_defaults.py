"""What open values become."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.ask import within
from advisor.errors import InputError
from advisor.job import Lora, Workload
from advisor.memory.trace.build import build, full_config
from advisor.models.resolve import resolve
from advisor.strategies.advice import advice
from advisor.strategies.attention import attention_of, kernels_of
from advisor.strategies.common import lora_of
from advisor.strategies.defaults import filled, listed, load_dtype_of, precision_of
from advisor.strategies.registry import STRATEGIES
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


BLOOM = {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1024}
NEO = {
    "model_type": "gpt_neo", "hidden_size": 64, "num_layers": 8, "num_heads": 4, "vocab_size": 1024,
    "attention_types": [[["global", "local"], 4]],
}  # fmt: skip


@pytest.mark.parametrize("config", [BLOOM, NEO])
def test_a_class_without_sdpa_is_planned_and_traced_with_the_plain_kernel(config: dict[str, Any]) -> None:
    """transformers refuses to load such a class with SDPA."""
    model = tiny.model(config)
    job = next(iter(STRATEGIES["single"].jobs(model, NEW, tiny.inference())))
    assert job.attention == "eager"
    made = build(model, full_config(model), job, job.attention)
    assert not made._supports_sdpa and made.config._attn_implementation == "eager"
    (said,) = [default for default in listed(model, NEW, tiny.inference()) if default.name == "attention"]
    assert said.value == "eager" and "has no SDPA path" in said.why
    assert any("plain kernel" in sentence for sentence in advice(model, NEW, job))


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
def test_a_kernel_that_the_class_lacks_is_refused_in_a_sentence(attention: Any) -> None:
    with pytest.raises(InputError, match=f"BloomForCausalLM has no {attention} path in transformers .*expected eager"):
        attention_of(tiny.model(BLOOM), tiny.inference(attention=attention))
    assert attention_of(tiny.model(BLOOM), tiny.inference(attention="eager")) == "eager"
    assert attention_of(tiny.model(), tiny.inference(attention=attention)) == attention


def test_gpt_oss_has_sinks_that_neither_sdpa_nor_flash_attention_2_knows() -> None:
    model = resolve("openai/gpt-oss-20b")
    assert kernels_of(model) == {"class": "GptOssForCausalLM", "sdpa": False, "flash_attention_2": False}


def test_lora_alpha_is_twice_the_rank_unless_asked() -> None:
    assert lora_of(tiny.finetune(lora_rank=8)) == Lora(rank=8, alpha=16)
    assert lora_of(tiny.finetune(lora_rank=8, lora_alpha=32, lora_target_modules=("q_proj", "k_proj"))) == Lora(
        rank=8, alpha=32, target_modules=("q_proj", "k_proj")
    )


def test_lengths_that_were_asked_are_not_listed() -> None:
    names = {default.name for default in listed(tiny.model(), NEW, tiny.inference(max_new_tokens=7))}
    assert not {"sequence length", "new tokens"} & names
    left = listed(tiny.model(), NEW, Workload(task="inference"))
    assert {"sequence length": "2048", "new tokens": "256"}.items() <= {d.name: d.value for d in left}.items()


def test_an_open_length_stays_within_the_models_positions() -> None:
    model = resolve("openai-community/gpt2")
    work = within(model, Workload(task="inference"), asked_length=False)
    assert work.sequence_length == 1024 - 256
    assert "the model has 1024 positions" in {default.why for default in listed(model, NEW, work)}
    llama = resolve("meta-llama/Llama-2-7b")
    assert within(llama, Workload(task="inference"), asked_length=False).sequence_length == 2048
