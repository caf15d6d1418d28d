"""Tiny models and made-up machines: real architectures, traced in a blink."""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import Gpu, HardwareProfile, Host, Links
from advisor.job import Workload
from advisor.models.spec import ModelSpec
from advisor.units import GIB

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 1024, "n_positions": 2048,
}  # fmt: skip
T5: dict[str, Any] = {
    "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 4, "num_decoder_layers": 4,
    "num_heads": 4, "vocab_size": 1024, "tie_word_embeddings": True, "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
BERT: dict[str, Any] = {
    "model_type": "bert", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "vocab_size": 1024, "max_position_embeddings": 2048,
}  # fmt: skip


def model(config: dict[str, Any] | None = None, **changes: Any) -> ModelSpec:
    """A model that nobody published."""
    values = dict(config or LLAMA)
    kind = {"t5": "seq2seq", "bert": "masked"}.get(values["model_type"], "causal")
    spec: dict[str, Any] = {
        "name": "tiny", "asked": "tiny", "loader_repo": "tiny", "source": "local", "kind": kind, "config": values,
    }  # fmt: skip
    return ModelSpec(**(spec | changes))


def card(memory: float = 24, name: str = "NVIDIA A10G", **changes: Any) -> Gpu:
    """An Ampere card of ``memory`` GiB."""
    values: dict[str, Any] = {
        "name": name, "memory_total": int(memory * GIB), "compute_capability": "8.6", "memory_bandwidth": 600e9,
        "bf16_flops": 70e12, "fp16_flops": 70e12, "fp32_flops": 35e12,
    }  # fmt: skip
    return Gpu(**(values | changes))


def machine(count: int = 1, memory: float = 24, **changes: Any) -> HardwareProfile:
    """``count`` such cards on PCIe with 256 GiB of host RAM."""
    values: dict[str, Any] = {
        "name": "made-up",
        "gpus": (card(memory, count=count),) if count else (),
        "host": Host(memory_total=256 * GIB, memory_bandwidth=100e9, cpus=32),
        "links": Links(gpu_to_gpu=20e9, gpu_to_gpu_kind="pcie", host_to_gpu=20e9, gpu_to_host=20e9),
    }
    return HardwareProfile(**(values | changes))


def finetune(**changes: Any) -> Workload:
    """A short fine-tuning."""
    return Workload(**({"task": "finetune", "sequence_length": 64, "global_batch_size": 8} | changes))


def inference(**changes: Any) -> Workload:
    """A short generation."""
    return Workload(**({"task": "inference", "sequence_length": 64, "max_new_tokens": 8} | changes))
