"""A tiny model folder with random weights and a tokenizer that was made here, and samples to train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.execute.plans import TINY

_TEMPLATE = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"


def tiny_model(folder: Path, **config: Any) -> Path:
    """Random weights of a Llama with 2 layers, in float32 safetensors, and a word tokenizer."""
    import torch
    import transformers

    values = {**TINY, **config}
    torch.manual_seed(0)
    made = transformers.AutoConfig.for_model(
        values["model_type"], **{k: v for k, v in values.items() if k != "model_type"}
    )
    model = transformers.AutoModelForCausalLM.from_config(made)
    model.save_pretrained(folder)
    tiny_tokenizer(folder)
    return folder


def tiny_tokenizer(folder: Path) -> None:
    """One token a word out of twenty."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: index for index, word in enumerate(["<pad>", "</s>", "<unk>", *(f"w{n}" for n in range(20))])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)


def samples(path: Path, count: int = 12) -> Path:
    """All three kinds of samples."""
    text = " ".join(f"w{n % 20}" for n in range(9))
    kinds: list[dict[str, Any]] = [
        {"text": text},
        {"prompt": "w1 w2", "completion": "w3 w4"},
        {"messages": [{"role": "user", "content": "w5"}, {"role": "assistant", "content": "w6"}]},
    ]
    path.write_text("".join(json.dumps(kinds[n % 3]) + "\n" for n in range(count)), encoding="utf-8")
    return path
