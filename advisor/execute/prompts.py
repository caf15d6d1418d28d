"""Prompts on their way to the worker: given ones, a file of them, lines of the terminal."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.execute.options import Options


def read_prompts(path: Path) -> tuple[str, ...]:
    """The prompts of a file: jsonl with {"prompt": …}, or plain text, one a line. Raises InputError naming the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), "cannot be read as UTF-8 text", field="--prompts") from error
    lines = [line for line in text.split("\n") if line.strip()]
    if path.suffix == ".jsonl":
        lines = [_prompt(f"{path}:{number}", line) for number, line in enumerate(lines, 1)]
    if not lines:
        raise InputError(str(path), "holds no prompt", field="--prompts")
    return tuple(lines)


def _prompt(where: str, line: str) -> str:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(where, f"is not JSON ({error.msg})", field="--prompts") from error
    if not isinstance(value, dict) or not isinstance(value.get("prompt"), str):
        raise InputError(where, "is no prompt", field="--prompts", found=value, expected='{"prompt": "…"}')
    return str(value["prompt"])


def speak(path: Path, options: Options) -> threading.Thread:
    """Append prompts for the worker: the given ones, then lines of the terminal until it ends."""

    def write(value: dict[str, Any]) -> None:
        with path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(value) + "\n")

    def run() -> None:
        for prompt in options.prompts:
            write({"prompt": prompt})
        if options.interactive:
            import sys

            for line in sys.stdin:
                if line.strip():
                    write({"prompt": line.rstrip("\n")})
        write({"end": True})

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
