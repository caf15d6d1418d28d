"""The form: its fields, and a question from what was typed. Checked by the same code as the command line's flags."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from advisor.ask import OPTIMIZERS, Ask, ask
from advisor.errors import InputError
from advisor.hardware.load import profile_paths
from advisor.job import STRATEGY_NAMES, Attention, Precision
from advisor.models.known import search

HERE = "this machine"


@dataclass(frozen=True, slots=True)
class Field:
    """One input. ``kind`` is "text", "number", "flag" or "choice"; the first choice is what counts when none is made."""

    name: str
    label: str
    kind: str = "text"
    choices: tuple[str, ...] = ()
    hint: str = ""
    more: bool = False  # among the settings that few change

    @property
    def flag(self) -> str:
        """The command line's name for it."""
        return f"--{self.name.replace('_', '-')}"


_OPEN, NOTHING = "as needed", "nothing"
FIELDS = (
    Field("model", "Model", hint="Hub id, folder or config.json"),
    Field("task", "Task", "choice", ("inference", "finetune")),
    Field("hardware", "Hardware", "choice", (HERE, *profile_paths())),
    Field("method", "Method", "choice", ("auto", "full", "lora", "qlora")),
    Field("batch_size", "Micro batch, a GPU", "number"),
    Field("seq_len", "Sequence length", "number", hint="2048"),
    Field("max_new_tokens", "New tokens", "number", more=True),
    Field("global_batch_size", "Global batch", "number", more=True),
    Field("gpus", "GPUs of a node", "number", more=True),
    Field("nodes", "Nodes", "number", more=True),
    Field("gpu_memory", "At most of each GPU", hint="10GiB", more=True),
    Field("host_memory", "At most of host RAM", hint="64GiB", more=True),
    Field("precision", "Precision", "choice", (_OPEN, *get_args(Precision)), more=True),
    Field("quantization", "Quantization", "choice", (_OPEN, "none", "nf4", "int8"), more=True),
    Field("optimizer", "Optimizer", "choice", (_OPEN, *OPTIMIZERS), more=True),
    Field("gradient_checkpointing", "Gradient checkpointing", "choice", (_OPEN, "yes", "no"), more=True),
    Field("lora_rank", "LoRA rank", "number", hint="16", more=True),
    Field("lora_alpha", "LoRA alpha", "number", hint="twice the rank", more=True),
    Field("attention", "Attention", "choice", (_OPEN, *get_args(Attention)), more=True),
    Field("strategy", "Strategy", "choice", (_OPEN, *STRATEGY_NAMES), more=True),
    Field("then", "Afterwards", "choice", (NOTHING, "inference"), more=True),
    Field("download", "May ask the Hub for config.json", "flag", more=True),
)


def names() -> tuple[str, ...]:
    """Models that are known without a download, for the field's suggestions."""
    return tuple(entry.repo for entry in search(""))


def chosen(field: Field, typed: Mapping[str, str]) -> str:
    """What was filled into a field; empty where it was left open."""
    text = typed.get(field.name, "").strip()
    return "" if text in (_OPEN, NOTHING, HERE) else text


def question(typed: Mapping[str, str]) -> Ask:
    """The question that was typed. Raises InputError naming the flag for what is wrong, as the command line does."""
    values = _values(typed)
    model, task = values.pop("model", ""), values.pop("task")
    if not model:
        raise InputError("--model", "is missing", expected="a Hub id, a folder or a config.json")
    return ask(model, task, **values)


def command(typed: Mapping[str, str]) -> str:
    """The command line that asks the same."""
    words = ["advisor", "recommend"]
    for name, value in _values(typed).items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is False:
            words.append(flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    return shlex.join(words)


def _values(typed: Mapping[str, str]) -> dict[str, Any]:
    """What was filled in, by the names of :func:`advisor.ask.ask`; what was left open is left out."""
    values: dict[str, Any] = {}
    for field in FIELDS:
        text = chosen(field, typed)
        if field.name == "gradient_checkpointing" and text in ("yes", "no"):
            values[field.name] = text == "yes"
        elif field.kind == "flag":
            if text:
                values[field.name] = True
        elif field.kind == "number" and text:
            values[field.name] = _number(field, text)
        elif text and not (field.name == "method" and text == field.choices[0]):
            values[field.name] = text
    values.setdefault("task", "inference")
    return values


def _number(field: Field, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InputError(field.flag, "is no whole number", found=text, expected="digits") from error
