"""JSON and YAML files that configure a run, told apart by what they say, never by their names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.check.facts import ConfigFacts
from advisor.check.readers.positioned import json_node, yaml_nodes
from advisor.check.values import Node

RELEVANT = re.compile(
    r"zero_optimization|train_micro_batch_size_per_gpu|train_batch_size|distributed_type|deepspeed|fsdp|per_device_train|"
    r"gradient_accumulation|load_in_[48]bit|device_map|max_memory|base_model|finetuning_type|model_name_or_path|"
    r"compute_environment|bnb_4bit|per_device_train|gradient_checkpointing"
)
_DEEPSPEED = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"})
_DEEPSPEED_SECOND = frozenset(
    {"fp16", "bf16", "optimizer", "scheduler", "gradient_accumulation_steps", "steps_per_print"}
)
_ACCELERATE = frozenset({"distributed_type", "compute_environment"})
_ARGUMENTS = frozenset(
    {"per_device_train_batch_size", "gradient_accumulation_steps", "model_name_or_path", "base_model", "micro_batch_size",
     "finetuning_type", "load_in_4bit", "load_in_8bit", "device_map", "max_memory", "deepspeed", "fsdp", "quantization_bit",
     "use_peft", "gradient_checkpointing", "num_train_epochs"}
)  # fmt: skip


def config_facts(text: str, path: str) -> list[ConfigFacts] | None:
    """What a file configures: one fact for each document, and one for each DeepSpeed part inside; None when unreadable."""
    if not RELEVANT.search(text):
        return []
    if path.lower().endswith((".json", ".jsonc")):
        root = json_node(text, path)
        roots = [] if root is None else [root]
    else:
        roots = yaml_nodes(text, path)
    if not roots:
        return None
    found: list[ConfigFacts] = []
    for root in roots:
        kind = kind_of(root)
        if kind != "other":
            found.append(ConfigFacts(path=path, root=root, kind=kind))
        if kind in ("arguments", "other"):
            found += [ConfigFacts(path=path, root=node, kind=kind_of(node)) for node in _inside(root)]
    return found


def kind_of(node: Node) -> str:
    """deepspeed, accelerate, arguments, or other."""
    keys = set(node.items)
    if keys & _ACCELERATE:
        return "accelerate"
    if keys & _DEEPSPEED or ("train_batch_size" in keys and keys & _DEEPSPEED_SECOND):
        return "deepspeed"
    return "arguments" if keys & _ARGUMENTS else "other"


def _inside(root: Node) -> Iterator[Node]:
    """Parts up to three levels down that are a DeepSpeed config, or a section of arguments."""
    level = [root]
    for _ in range(3):
        level = [node for parent in level for node in parent.items.values() if isinstance(node.value, dict)][:200]
        for node in level:
            kind = kind_of(node)
            if kind == "deepspeed" or (kind == "arguments" and len(set(node.items) & _ARGUMENTS) > 1):
                yield node
