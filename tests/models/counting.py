"""Parameters of a model of the catalogue, counted on the real architecture at full depth, on the meta device."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from advisor.models.known import Entry


@dataclass(frozen=True)
class Counted:
    """``made`` are those of a freshly made model, tied weights once; ``head`` those that a loaded one has besides.

    ``active`` are used a token, for a mixture of experts.
    """

    made: int
    head: int
    active: int | None


_counted: dict[str, Counted] = {}


def counted(entry: Entry) -> Counted:
    """Built once for all repositories that share an architecture."""
    key = json.dumps([entry.kind, dict(entry.config)], sort_keys=True)
    if key not in _counted:
        _counted[key] = _count(entry)
    return _counted[key]


def _count(entry: Entry) -> Counted:
    import torch
    import transformers

    auto = {
        "causal": transformers.AutoModelForCausalLM,
        "seq2seq": transformers.AutoModelForSeq2SeqLM,
        "masked": transformers.AutoModelForMaskedLM,
    }
    values = dict(entry.config)
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device("meta"):
        model = auto[entry.kind].from_config(config)
    model.tie_weights()
    total = sum(parameter.numel() for parameter in model.parameters())  # a shared one comes once
    head = model.get_output_embeddings().weight
    # transformers ties the head of every T5 that it makes, and not of one that it loads with another head.
    tied_anyway = values.get("tie_word_embeddings") is False and head is model.get_input_embeddings().weight
    extra = head.numel() if tied_anyway else 0
    return Counted(total, extra, _active(total, model, config))


def _active(total: int, model: Any, config: Any) -> int | None:
    names = ("num_local_experts", "n_routed_experts", "num_experts")
    experts = next((getattr(config, name) for name in names if getattr(config, name, None)), None)
    if experts is None:
        return None
    routed = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if ".experts." in name and parameter.shape[0] == experts
    )
    assert routed > 0
    return total - routed * (experts - config.num_experts_per_tok) // experts
