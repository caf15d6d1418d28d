"""LoRA adapters: as they are, or merged into their base tensor by tensor.

The merge is PEFT's own for linear layers: W + scale · B·A with scale alpha / r (alpha / sqrt(r) for rank-stabilized
LoRA), transposed where the base stores its weights the other way (GPT-2's Conv1D). It is done in float32, so a 16-bit
base is rounded once. Other kinds of adapters change the arithmetic; they are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.execute.convert.entry import Entry, Source
from advisor.files import read_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_OTHER_ARITHMETIC = ("use_dora", "lora_bias", "use_qalora", "use_bdlora", "layer_replication", "trainable_token_indices",
                     "target_parameters", "alora_invocation_tokens")  # fmt: skip


def read_config(folder: Path) -> dict[str, Any]:
    """The adapter's config. Raises InputError for a kind that is not plain LoRA."""
    path = folder / CONFIG
    value = read_json(path)
    if not isinstance(value, dict) or value.get("peft_type") != "LORA":
        raise InputError(str(path), "is no LoRA adapter", expected='"peft_type": "LORA"')
    for field in _OTHER_ARITHMETIC:
        if value.get(field):
            raise InputError(
                str(path), "is a kind of adapter that is not merged here", field=field, found=value[field],
                expected="plain LoRA; PEFT's merge_and_unload knows the others",
            )  # fmt: skip
    return value


def named_as_saved(source: Source) -> Source:
    """Trained adapters of a ZeRO checkpoint under the names that PEFT saves (without the adapter's own, "default")."""
    entries = {}
    for name, entry in source.entries.items():
        short = re.sub(r"\.(lora_[A-Za-z_]+|modules_to_save)\.default", r".\1", name)
        short = short.replace(".modules_to_save.", ".")
        entries[short] = replace(entry, name=short)
    return replace(source, kind="adapter", entries=entries)


def merged(base: Source, adapter: Source, config: Mapping[str, Any]) -> Source:
    """``base`` with the adapter added. Raises InputError when an adapter's weight has no place in the base."""
    entries = dict(base.entries)
    for module in sorted(_modules(adapter)):
        target = _place(f"{module}.weight", entries, adapter.where)
        low = adapter.entries[f"{_PREFIX}{module}.lora_A.weight"]
        high = adapter.entries[f"{_PREFIX}{module}.lora_B.weight"]
        entries[target] = _sum(entries[target], low, high, _scale(module, config), bool(config.get("fan_in_fan_out")))
    for name, entry in adapter.entries.items():
        if ".lora_" not in name:  # a module that was trained whole
            target = _place(name.removeprefix(_PREFIX), entries, adapter.where)
            entries[target] = replace(entry, name=target)
    return replace(base, kind="adapter", entries=entries)


def _modules(adapter: Source) -> set[str]:
    found = set()
    for name in adapter.entries:
        module, mark, rest = name.removeprefix(_PREFIX).partition(".lora_")
        if not mark:
            continue
        if rest not in ("A.weight", "B.weight"):
            raise InputError(
                str(adapter.where), "holds adapters that are not merged here", found=name, expected="linear layers"
            )
        found.add(module)
    return found


def _place(name: str, entries: Mapping[str, Entry], where: Path) -> str:
    """The base's name for it; checkpoints may leave the model's own prefix out ("h.0…" for "transformer.h.0…")."""
    name = name.replace(".base_layer.", ".")
    if name in entries:
        return name
    fitting = [other for other in entries if name.endswith(f".{other}") or other.endswith(f".{name}")]
    if len(fitting) != 1:
        raise InputError(
            str(where), "has an adapter for a weight that the base does not have", found=name,
            expected="the model that the adapter was made for (--base)",
        )  # fmt: skip
    return fitting[0]


def _scale(module: str, config: Mapping[str, Any]) -> float:
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    for pattern, value in (config.get("rank_pattern") or {}).items():
        rank = int(value) if re.search(rf"(^|\.){pattern}$", module) else rank
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        alpha = float(value) if re.search(rf"(^|\.){pattern}$", module) else alpha
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _sum(base: Entry, low: Entry, high: Entry, scale: float, transposed: bool) -> Entry:
    shape = (high.shape[0], low.shape[1])
    if base.shape != (shape[::-1] if transposed else shape):
        raise InputError(
            low.name,
            f"does not fit the base's {base.name}",
            found=shape,
            expected=f"{base.shape}: another base (--base)",
        )

    def read(dtype: Any) -> Any:
        import torch

        change = scale * (high.read(torch.float32) @ low.read(torch.float32))
        whole = base.read(torch.float32)
        whole += change.T if transposed else change
        return whole.to(dtype or getattr(torch, base.dtype))

    return replace(base, read=read)
