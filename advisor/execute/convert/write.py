"""Tensors into safetensors files of bounded size, read, cast and written one file after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from advisor.execute.convert.entry import Entry
from advisor.models.checkpoint import SAFETENSORS_INDEX
from advisor.units import parse_size

DEFAULT_SHARD = parse_size("2GiB")
_WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


def stored_bytes(entry: Entry, dtype: str) -> int:
    """Bytes of a tensor once it is written: floating-point ones in ``dtype`` (torch's name), others as they are."""
    return entry.numel * _WIDTHS.get(stored_dtype(entry, dtype), 1)


def stored_dtype(entry: Entry, dtype: str) -> str:
    """The dtype that a tensor is written in."""
    return dtype if entry.dtype in ("float64", "float32", "float16", "bfloat16") else entry.dtype


def shards(entries: Sequence[Entry], dtype: str, limit: int) -> list[list[Entry]]:
    """The entries in order, cut into files of at most ``limit`` bytes (a larger tensor has a file of its own)."""
    files: list[list[Entry]] = [[]]
    held = 0
    for entry in entries:
        size = stored_bytes(entry, dtype)
        if files[-1] and held + size > limit:
            files.append([])
            held = 0
        files[-1].append(entry)
        held += size
    return files


def write(
    entries: Sequence[Entry], folder: Path, dtype: str, limit: int, stem: str, progress: Callable[[str], None]
) -> None:
    """Write the entries to ``folder`` as ``stem``.safetensors, or in numbered files with an index."""
    import torch
    from safetensors.torch import save_file

    files = shards(entries, dtype, limit)
    table: dict[str, str] = {}
    for number, held in enumerate(files, 1):
        name = f"{stem}.safetensors" if len(files) == 1 else f"{stem}-{number:05}-of-{len(files):05}.safetensors"
        tensors = {entry.name: entry.read(getattr(torch, stored_dtype(entry, dtype))).contiguous() for entry in held}
        save_file(tensors, folder / name, metadata={"format": "pt"})
        table |= dict.fromkeys(tensors, name)
        progress(f"wrote {name} ({number} of {len(files)})")
        del tensors
    if len(files) > 1:
        total = sum(stored_bytes(entry, dtype) for entry in entries)
        index = {"metadata": {"total_size": total}, "weight_map": table}
        (folder / SAFETENSORS_INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
