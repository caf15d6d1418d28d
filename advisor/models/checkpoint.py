"""What the weight files of a folder tell: parameters, bytes, dtype. Only headers and indexes are read.

The safetensors format: 8 bytes little-endian header length, then a JSON object of tensors with dtype and shape
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from advisor.errors import InputError
from advisor.files import read_json
from advisor.job import Dtype

SAFETENSORS_INDEX = "model.safetensors.index.json"
_TORCH_INDEX = "pytorch_model.bin.index.json"
_FLOATS: Mapping[str, Dtype] = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
_LONGEST_HEADER = 100_000_000  # the format's own limit


@dataclass(frozen=True, slots=True)
class Weights:
    """What is known of a checkpoint's files; None is unknown.

    ``parameters`` are floating-point elements as stored, ``bytes`` the size of all files, ``dtype`` the commonest.
    """

    parameters: int | None = None
    bytes: int | None = None
    dtype: Dtype | None = None


def weights_in(folder: Path) -> Weights:
    """The weights of a checkpoint folder (transformers' names: ``model*.safetensors``, ``pytorch_model*.bin``).

    ``parameters`` counts the floating-point tensors as stored, so a tied weight that was saved twice counts twice, and
    packed integers of a quantized checkpoint do not count. Raises InputError for a broken index or header.
    """
    index = folder / SAFETENSORS_INDEX
    if index.is_file():
        size, shards = read_index(index)
        files = [folder / name for name in shards]
        if not files or not all(path.is_file() for path in files):
            return Weights(bytes=size)
        return _safetensors(files)
    files = sorted(folder.glob("model*.safetensors"))
    if files:
        return _safetensors(files)
    torch_index = folder / _TORCH_INDEX
    if torch_index.is_file():
        return Weights(bytes=read_index(torch_index)[0])
    sizes = [path.stat().st_size for path in folder.glob("pytorch_model*.bin")]
    return Weights(bytes=sum(sizes) if sizes else None)


def read_index(path: Path) -> tuple[int | None, tuple[str, ...]]:
    """(total_size in bytes, names of the weight files) of a sharded checkpoint's index."""
    index = read_json(path)
    table = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise InputError(str(path), "is missing or no table of file names", field="weight_map")
    metadata = index.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    # Some tools wrote the size as a float.
    return (int(size) if isinstance(size, int | float) else None), tuple(sorted(set(table.values())))


def _safetensors(files: Iterable[Path]) -> Weights:
    counts: Counter[str] = Counter()
    size = 0
    for path in files:
        size += path.stat().st_size
        for tensor in _tensors(path):
            counts[tensor["dtype"]] += math.prod(tensor["shape"])
    floats = {name: count for name, count in counts.items() if name in _FLOATS}
    most = max(floats, key=lambda name: floats[name], default=None)
    return Weights(sum(floats.values()) or None, size, None if most is None else _FLOATS[most])


def _tensors(path: Path) -> list[Mapping[str, Any]]:
    with path.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        header = handle.read(length) if length <= _LONGEST_HEADER else b""
    try:
        table = json.loads(header)
        tensors = [value for key, value in table.items() if key != "__metadata__"]
        if all(isinstance(item["dtype"], str) and math.prod(item["shape"]) >= 0 for item in tensors):
            return cast(list[Mapping[str, Any]], tensors)
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise InputError(str(path), "is no safetensors file, or was cut off (its header cannot be read)") from error
    raise InputError(str(path), "is no safetensors file (its header holds no tensors)")
