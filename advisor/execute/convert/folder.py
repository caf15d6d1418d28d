"""A folder of safetensors as named tensors, and the files that make weights a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.execute.convert.entry import Entry, Source
from advisor.models.checkpoint import SAFETENSORS_INDEX, read_index

# What tokenizers and generation are made of; none holds code.
COMPANIONS = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja",
    "chat_template.json", "generation_config.json", "preprocessor_config.json",
)  # fmt: skip


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a model folder, in the index's order; empty when it has none."""
    index = folder / SAFETENSORS_INDEX
    names = read_index(index)[1] if index.is_file() else [path.name for path in folder.glob("model*.safetensors")]
    return [folder / name for name in sorted(names)]


def open_folder(files: list[Path], where: Path) -> Source:
    """The tensors of safetensors files. Raises InputError for one that is missing or broken."""
    from safetensors import SafetensorError, safe_open

    entries: dict[str, Entry] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as handle:
                for name in handle.keys():  # noqa: SIM118 - not a mapping
                    shape = tuple(handle.get_slice(name).get_shape())
                    entries[name] = Entry(name, shape, _DTYPES[handle.get_slice(name).get_dtype()], _reader(path, name))
        except (OSError, SafetensorError) as error:
            raise InputError(str(path), f"cannot be read ({error})", expected="a whole safetensors file") from error
    return Source("whole", where, entries, {})


# The format's names, as torch spells them.
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


def _reader(path: Path, name: str) -> Any:
    def read(dtype: Any) -> Any:
        from safetensors import safe_open

        with safe_open(path, framework="pt") as handle:
            value = handle.get_tensor(name)
        return value.to(dtype) if dtype is not None and value.is_floating_point() else value

    return read


def local_folder(name: str) -> Path:
    """The folder of a model that is on this machine: a path, or a name in the Hugging Face cache.

    Raises InputError for one that is not here: nothing is downloaded.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise InputError(
            "--base", "is not on this machine", found=name, expected="a model folder, or a model in the local cache"
        ) from error
