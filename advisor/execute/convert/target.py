"""What a model folder must hold: the names and shapes of the model that its config describes, built without weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.files import read_json


@dataclass(frozen=True, slots=True)
class Target:
    """``shapes`` of every parameter and saved buffer under one name each; ``tied`` maps the other names to it."""

    shapes: Mapping[str, tuple[int, ...]]
    tied: Mapping[str, str]


def target_of(folder: Path) -> Target:
    """The model of ``folder``'s config.json, on the meta device. Raises InputError for a config nobody can build."""
    import torch
    import transformers

    path = folder / "config.json"
    raw = read_json(path)
    names = raw.get("architectures") if isinstance(raw, dict) else None
    cls = getattr(transformers, names[0], None) if names else None
    if cls is None:
        raise InputError(
            str(path), "names no model class of transformers", field="architectures", found=names,
            expected='a list such as ["LlamaForCausalLM"]',
        )  # fmt: skip
    raw.pop("quantization_config", None)
    config = cls.config_class.from_dict(raw)
    with torch.device("meta"):
        model = cls(config)
    model.tie_weights()
    first: dict[int, str] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    tied: dict[str, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in first:
            tied[name] = first[id(parameter)]
        else:
            first[id(parameter)] = name
            shapes[name] = tuple(parameter.shape)
    kept = set(model.state_dict())
    shapes |= {name: tuple(buffer.shape) for name, buffer in model.named_buffers() if name in kept}
    return Target(shapes, tied)
