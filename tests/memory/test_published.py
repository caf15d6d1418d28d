"""Figures that others measured and published, each with the tolerance that its source allows."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.hardware.load import load_profile
from advisor.job import Job, Lora
from advisor.memory.budget import GpuBudget
from advisor.memory.predict import predict_memory
from advisor.models.resolve import resolve
from advisor.units import GIB

GB = 10**9


def _card(model: str, machine: str, **job: Any) -> GpuBudget:
    return predict_memory(resolve(model), load_profile(machine), Job(task="finetune", **job)).gpus[0]


# PEFT's README, one A100-80: torch's peak of fp32 models on short tweets, batch 8 (T0_3B is T5 1.1 XL's architecture).
_TWEETS: dict[str, Any] = {
    "strategy": "single", "precision": "fp32", "load_dtype": "fp32", "micro_batch_size": 8, "sequence_length": 64,
    "optimizer": "adamw_torch_fused",
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "targets", "measured", "tolerance"),
    [
        ("google/flan-t5-xl", None, 47.14, 0.15),
        ("google/flan-t5-xl", ("q", "v"), 14.4, 0.20),
        ("bigscience/bloom-7b1", ("query_key_value",), 32.0, 0.20),
    ],
)
def test_peft_readme(model: str, targets: tuple[str, ...] | None, measured: float, tolerance: float) -> None:
    lora = None if targets is None else Lora(rank=8, target_modules=targets)
    card = _card(model, "a100-80g", method="lora" if lora else "full", lora=lora, **_TWEETS)
    assert card.allocated / GB == pytest.approx(measured, rel=tolerance)


def test_peft_readme_a_full_bloomz_7b_does_not_fit_80_gb() -> None:
    assert _card("bigscience/bloom-7b1", "a100-80g", method="full", **_TWEETS).needed > 80 * GIB


def test_llama_2_70b_lora_under_zero3_on_eight_cards() -> None:
    """PEFT's DeepSpeed guide: 64 GB a GPU, rank 8 on all linear layers, batch 8 of 2048 tokens."""
    card = _card(
        "meta-llama/Llama-2-70b-hf", "h100-x8", strategy="zero3", method="lora", precision="bf16-mixed", gpus=8,
        micro_batch_size=8, sequence_length=2048, gradient_checkpointing=True, lora=Lora(rank=8),
    )  # fmt: skip
    assert card.used / GB == pytest.approx(64, rel=0.15)


def test_llama_2_70b_qlora_under_zero3_on_two_cards() -> None:
    """The same guide: 36.6 GB a GPU, batch 2, 4-bit weights kept in bf16 storage."""
    card = _card(
        "meta-llama/Llama-2-70b-hf", "h100-x8", strategy="zero3", method="qlora", precision="bf16-mixed", gpus=2,
        micro_batch_size=2, sequence_length=2048, gradient_checkpointing=True, lora=Lora(rank=8, dtype="bf16"),
        quantization="nf4", bnb_4bit_quant_storage="bf16",
    )  # fmt: skip
    assert card.used / GB == pytest.approx(36.6, rel=0.10)


def test_logits_take_twelve_to_fourteen_bytes_a_token_and_word() -> None:
    """Measured backward peaks of 12 to 14 bytes; Gemma-2B, 256,000 words, needs more than Mistral-7B with an eighth of them."""
    shape: dict[str, Any] = {
        "strategy": "single", "method": "lora", "micro_batch_size": 4, "sequence_length": 4096,
        "gradient_checkpointing": True, "lora": Lora(),
    }  # fmt: skip
    gemma = _card("google/gemma-2b", "h100", **shape)
    assert 12 <= gemma.parts["logits"] / (4 * 4096 * 256_000) <= 14
    assert gemma.needed > 1.5 * _card("mistralai/Mistral-7B-v0.1", "h100", **shape).needed


def test_zero2_offload_copies_the_weights_on_the_card_while_it_starts() -> None:
    """DeepSpeed #7482, LLaDA-8B on 40 GB: it ran out asking for 14.9 GiB, the flat copy of its weights."""
    card = _card(
        "meta-llama/Llama-3.1-8B", "a100-40g-x2", strategy="zero2", method="full", precision="bf16-mixed", gpus=2,
        micro_batch_size=2, sequence_length=1024, gradient_checkpointing=True, offload_optimizer="cpu",
    )  # fmt: skip
    assert card.load_allocated / GIB == pytest.approx(2 * 14.93, rel=0.01)


def test_zero3_offload_without_zero_init_starts_with_the_whole_model_on_the_card() -> None:
    """DeepSpeed #4527, 6.8B on four cards: 0.49 GB by the estimator, 14,678 MiB seen after initialize."""
    card = _card(
        "meta-llama/Llama-2-7b-hf", "a100-40g-x4", strategy="zero3", method="full", precision="bf16-mixed", gpus=4,
        sequence_length=512, offload_optimizer="cpu", offload_param="cpu", zero_init=False,
    )  # fmt: skip
    assert card.load_allocated / GIB == pytest.approx(12.7, rel=0.02)
    assert (card.load_reserved + card.runtime) / GIB == pytest.approx(14_678 / 1024, rel=0.05)
