"""Training data: random tokens for a rehearsal, or a jsonl file of text, prompt/completion or messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from advisor.errors import InputError

IGNORED = -100  # a label that the loss skips


def random_rows(rows: int, length: int, vocab: int) -> Any:
    """A dataset of ``rows`` samples of ``length`` random tokens, without padding."""
    import torch

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return rows

        def __getitem__(self, index: int) -> dict[str, Any]:
            generator = torch.Generator().manual_seed(index)
            tokens = torch.randint(min(5, vocab - 1), vocab, (length,), generator=generator)
            return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}

    return Rows()


def read_samples(path: Path) -> list[dict[str, Any]]:
    """The samples of a jsonl file. Raises InputError naming line and field of the first that is none."""
    samples: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), "cannot be read as UTF-8 text") from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(where, f"is not JSON ({error.msg})") from error
        keys = set(value) if isinstance(value, dict) else set()
        right = (
            isinstance(value, dict)
            and (
                isinstance(value.get("text"), str)
                or (isinstance(value.get("prompt"), str) and isinstance(value.get("completion"), str))
                or isinstance(value.get("messages"), list)
            )
        )  # fmt: skip
        if not right:
            raise InputError(
                where, "is no training sample", found=sorted(keys),
                expected='{"text": …}, {"prompt": …, "completion": …} or {"messages": […]}',
            )  # fmt: skip
        samples.append(value)
    if not samples:
        raise InputError(str(path), "holds no sample")
    return samples


def tokenize(sample: dict[str, Any], tokenizer: Any) -> tuple[list[int], list[int]]:
    """Token ids and labels of one sample; the prompt of a completion is not learned."""
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    if "messages" in sample:
        ids = tokenizer.apply_chat_template(sample["messages"], tokenize=True, return_dict=True)["input_ids"]
        return list(ids), list(ids)
    if "text" in sample:
        ids = tokenizer(sample["text"])["input_ids"] + end
        return ids, list(ids)
    prompt = tokenizer(sample["prompt"])["input_ids"]
    completion = tokenizer(sample["completion"], add_special_tokens=False)["input_ids"] + end
    return prompt + completion, [IGNORED] * len(prompt) + completion


def rows(samples: list[dict[str, Any]], tokenizer: Any, length: int, *, packed: bool) -> list[dict[str, Any]]:
    """Rows for the Trainer: cut at ``length`` tokens; packed (joined, then cut to full rows) or padded to it."""
    tokenized = [tokenize(sample, tokenizer) for sample in samples]
    if packed:
        ids = [token for tokens, _ in tokenized for token in tokens]
        labels = [label for _, these in tokenized for label in these]
        whole = len(ids) // length * length
        if not whole:
            raise InputError("--data", f"has {len(ids)} tokens, fewer than one packed row of {length}")
        return [
            {"input_ids": ids[at : at + length], "labels": labels[at : at + length], "attention_mask": [1] * length}
            for at in range(0, whole, length)
        ]
    out = []
    for tokens, these in tokenized:
        tokens, these = tokens[:length], these[:length]
        pad = length - len(tokens)
        out.append(
            {
                "input_ids": tokens + [tokenizer.pad_token_id or 0] * pad,
                "labels": these + [IGNORED] * pad,
                "attention_mask": [1] * len(tokens) + [0] * pad,
            }
        )
    return out
