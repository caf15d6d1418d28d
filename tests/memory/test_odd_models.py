"""Models whose layers are not all alike in type: experts without bf16, layers that stay in fp32 under quantization."""

from __future__ import annotations

import pytest

from advisor.job import Dtype, Job, Lora, Method
from advisor.memory.trace.run import run
from tests.strategies import tiny

MIXTRAL = tiny.LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.parametrize(("dtype", "method"), [("fp16", None), ("fp32", "full"), ("bf16", "full")])
def test_experts_are_traced_in_every_type(dtype: Dtype, method: Method | None) -> None:
    task = "finetune" if method else "inference"
    precision = "bf16-mixed" if dtype == "fp32" else dtype
    job = Job(
        task=task, strategy="single", method=method, precision=precision, load_dtype=dtype, sequence_length=64,
        max_new_tokens=0 if method else 4,
    )  # fmt: skip
    found = run(tiny.model(MIXTRAL), job)
    weights = sum(item.size for item in found.intervals if item.part == "weights")
    assert weights > 0 and any(item.part == "activations" for item in found.intervals)


def test_t5_under_qlora_keeps_its_wo_in_fp32() -> None:
    job = Job(
        task="finetune", strategy="single", method="qlora", quantization="nf4", lora=Lora(rank=4), sequence_length=64,
        gradient_checkpointing=True,
    )  # fmt: skip
    found = run(tiny.model(tiny.T5), job)
    kept = [param for param in found.params if param.name.endswith("wo.base_layer.weight")]
    assert kept and all(param.stored == 4 * param.numel for param in kept)
