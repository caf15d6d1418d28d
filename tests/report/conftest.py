"""A tiny model decided for real, once: a device map over two cards and ZeRO-3, and a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor import advise, ask
from advisor.advise import Advice

from .browser import chromium

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1376,
    "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000,
    "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder


def _advice(model: Path, task: str, **asked: Any) -> Advice:
    question = ask.ask(str(model), task, hardware="rtx4090-x2", seq_len=256, **asked)
    return advise.recommend(question.model, question.machine, question.workload)


@pytest.fixture(scope="session")
def mapped(tiny_model: Path) -> Advice:
    """Inference over two cards by a device map."""
    return _advice(tiny_model, "inference", gpu_memory="860MiB", quantization="none", strategy="device_map")


@pytest.fixture(scope="session")
def sharded(tiny_model: Path) -> Advice:
    """Full fine-tuning under ZeRO-3."""
    return _advice(tiny_model, "finetune", method="full", strategy="zero3")


@pytest.fixture(scope="session")
def hopeless(tiny_model: Path) -> Advice:
    """A question that nothing answers: the cards may not even hold a CUDA context."""
    return _advice(tiny_model, "finetune", method="full", gpu_memory="300MiB", host_memory="1GiB")


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    with chromium() as found:
        yield found
