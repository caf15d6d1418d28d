"""A notebook's code cells as one script, with the notebook's own line for each line of code, and its shell lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from advisor.check.readers.positioned import json_node
from advisor.check.values import Node

_CAPTURED = re.compile(r"^\s*[\w, ]+=\s*[!%]")
_SHELL_CELL = re.compile(r"^%%(?:bash|sh|script)\b")


@dataclass(frozen=True, slots=True)
class Cells:
    """Code and shell of a notebook; the lists hold the notebook's line for each of their lines."""

    code: str
    code_lines: tuple[int, ...]
    shell: str
    shell_lines: tuple[int, ...]


def cells(text: str, path: str) -> Cells | None:
    """The cells of a notebook; None when it is none. Magics become empty lines, so that lines stay where they are."""
    root = json_node(text, path)
    listed = root.get("cells") if root is not None else None
    if listed is None or not isinstance(listed.value, tuple):
        return None
    code: list[tuple[str, int]] = []
    shell: list[tuple[str, int]] = []
    for cell in listed.value:
        if cell.plain("cell_type") != "code":
            continue
        lines = _lines(cell.get("source"))
        if lines and _SHELL_CELL.match(lines[0][0]):
            shell += lines[1:]
            continue
        if lines and lines[0][0].startswith("%%") and not lines[0][0].startswith(("%%time", "%%capture")):
            continue
        continued = False
        for line, number in lines:
            stripped = line.lstrip()
            magic = stripped.startswith(("!", "%", "?")) or bool(_CAPTURED.match(line)) or stripped.endswith("??")
            if continued or stripped.startswith("!"):
                shell.append((line.replace("!", "", 1) if not continued else line, number))
                continued = line.rstrip().endswith("\\")
            # A magic as the only statement of a block must leave a statement behind.
            indent = line[: len(line) - len(stripped)]
            code.append((f"{indent}pass" if magic or (continued and not stripped) else line, number))
            if continued and not magic:
                code[-1] = (f"{indent}pass", number)
        code.append(("", lines[-1][1] if lines else 1))
    return Cells(
        "\n".join(line for line, _ in code), tuple(number for _, number in code),
        "\n".join(line for line, _ in shell), tuple(number for _, number in shell),
    )  # fmt: skip


def _lines(source: Node | None) -> list[tuple[str, int]]:
    """The lines of a cell, each with its line in the notebook: a list of texts, or one text."""
    if source is None:
        return []
    parts = source.value if isinstance(source.value, tuple) else (source,)
    found: list[tuple[str, int]] = []
    for part in parts:
        if isinstance(part.value, str):
            found += [(line, part.line) for line in part.value.splitlines() or [""]]
    return found
