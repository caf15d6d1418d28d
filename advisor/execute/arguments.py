"""Options as the command line that gives them: for a batch script, which runs the same apply on other machines."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from advisor.execute.options import Options

# What a batch script decides itself, or what makes no sense where nobody sits at the terminal.
_LEFT_OUT = {
    "script",
    "launcher",
    "interactive",
    "hostfile",
    "node_rank",
    "master_addr",
    "prompts",
    "seed",
    "keep_record",
}


def as_arguments(options: Options) -> list[str]:
    """The flags that are not at their default; paths are made absolute."""
    words: list[str] = []
    for field in fields(Options):
        value = getattr(options, field.name)
        if field.name in _LEFT_OUT or value == field.default:
            continue
        flag = f"--{field.name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        else:
            words += [flag, str(value.absolute()) if isinstance(value, Path) else str(value)]
    for prompt in options.prompts:
        words += ["--prompt", prompt]
    return words
