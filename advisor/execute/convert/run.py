"""The flow of a conversion: find what the checkpoint is, say what it takes, write, verify, and only then show it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, InputError
from advisor.execute.convert import adapter as adapters
from advisor.execute.convert import shards
from advisor.execute.convert.entry import Entry, Kind, Source
from advisor.execute.convert.folder import COMPANIONS, local_folder, open_folder, weight_files
from advisor.execute.convert.target import Target, target_of
from advisor.execute.convert.write import DEFAULT_SHARD, stored_bytes, write
from advisor.execute.convert.write import shards as cut
from advisor.files import read_json
from advisor.units import format_bytes

_TORCH = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_WORDS: Mapping[Kind, str] = {
    "zero2": "ZeRO shards (stage 1 or 2)", "zero3": "ZeRO-3 shards", "adapter": "LoRA adapters", "whole": "safetensors",
}  # fmt: skip


class ConvertError(AdvisorError):
    """The conversion cannot be done here, or what came out is not what the config describes. Nothing was left behind."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``base``: the model of an adapter, or where config and tokenizer lie when the checkpoint has none (folder or
    cached name). ``dtype``: bf16, fp16, fp32; None: as the config says. ``shard``: bytes of a file at most."""

    base: str | None = None
    keep_adapters: bool = False
    dtype: str | None = None
    shard: int = DEFAULT_SHARD
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a conversion takes, beside the program itself, in bytes."""

    host_ram: int
    disk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was made of what."""

    kind: Kind
    out: Path
    tensors: int
    parameters: int
    bytes: int
    dtype: str
    files: int
    need: Need
    notes: tuple[str, ...]


def convert(
    checkpoint: Path, out: Path, options: Options | None = None, say: Callable[[str], None] = lambda text: None
) -> Report:
    """Make ``out`` a model folder (or an adapter folder) of what ``checkpoint`` holds.

    ``say`` gets the need first, then progress. Raises InputError for what is no checkpoint or holds foreign pickles,
    ConvertError when RAM or disk are short (without ``force``) or the result does not verify.
    """
    options = options or Options()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(str(out), "exists and is not empty, so it is left alone", expected="a new folder")
    source, home, config = _open(checkpoint, options)
    as_adapter = config is not None and options.keep_adapters
    target = None if as_adapter else target_of(home)
    dtype = _TORCH[options.dtype] if options.dtype else _dtype(home, source, as_adapter)
    entries = list(source.entries.values()) if target is None else _ordered(source, target)
    need = _need(entries, dtype, options.shard, merges=config is not None and not as_adapter)
    say(
        f"{_WORDS[source.kind]} of {source.ranks} rank(s): {len(entries)} tensors. Needs {format_bytes(need.host_ram)} "
        f"of host RAM (a file at a time) and {format_bytes(need.disk)} of disk."
    )
    _check_room(need, out, options.force)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=out.absolute().parent, prefix=f".{out.name}."))
    try:
        write(entries, partial, dtype, options.shard, "adapter_model" if as_adapter else "model", say)
        _companions(checkpoint, home, partial, dtype, config if as_adapter else None)
        notes, files = verify(partial, entries, target, dtype)
        partial.chmod(0o755)
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Report(
        kind=source.kind, out=out, tensors=len(entries), parameters=sum(entry.numel for entry in entries),
        bytes=sum(stored_bytes(entry, dtype) for entry in entries), dtype=dtype, files=files, need=need, notes=notes,
    )  # fmt: skip


def _open(checkpoint: Path, options: Options) -> tuple[Source, Path, dict[str, Any] | None]:
    """(the tensors, the folder whose config describes them, the adapter's config if it is one)."""
    if not checkpoint.is_dir():
        raise InputError(str(checkpoint), "is no folder", expected="a checkpoint folder")
    tag = shards.tag_folder(checkpoint)
    holder = _holder(checkpoint, adapters.CONFIG)
    if holder is not None:
        config = adapters.read_config(holder)
        made = _adapter(holder, tag)
        if options.keep_adapters:
            return made, holder, config
        home = local_folder(options.base or str(config.get("base_model_name_or_path")))
        files = weight_files(home)
        if not files:
            raise InputError(str(home), "holds no safetensors to merge into", expected="the adapter's base (--base)")
        return replace(adapters.merged(open_folder(files, home), made, config), where=checkpoint), home, config
    own = local_folder(options.base) if options.base else _holder(checkpoint, "config.json")
    if own is None:
        raise InputError(
            str(checkpoint), "has no config.json", expected="--base: the model folder that the training began with"
        )
    if tag is not None:
        return shards.open_shards(tag), own, None
    files = weight_files(checkpoint)
    if not files:
        pickled = list(checkpoint.glob("pytorch_model*.bin"))
        problem = (
            "holds weights only as a pickle, which may run code" if pickled else "holds no checkpoint that is known"
        )
        raise InputError(
            str(checkpoint), problem, expected="ZeRO shards (a folder `latest` names), safetensors or an adapter"
        )
    return open_folder(files, checkpoint), own, None


def _holder(checkpoint: Path, name: str) -> Path | None:
    """``checkpoint``, or its parent when it is a tag folder, if a file of that name lies there."""
    for folder in (checkpoint, checkpoint.parent):
        if (folder / name).is_file() and (folder == checkpoint or shards.tag_folder(folder) == checkpoint):
            return folder
    return None


def _adapter(holder: Path, tag: Path | None) -> Source:
    """The adapter's own file; a run that could not gather left it empty, and its ZeRO shards have it then."""
    path = holder / adapters.WEIGHTS
    if path.is_file():
        source = open_folder([path], holder)
        if source.entries and all(entry.numel for entry in source.entries.values()):
            return replace(source, kind="adapter")
    if tag is None:
        raise InputError(str(path), "is missing or holds empty tensors, and there are no ZeRO shards to take them from")
    return adapters.named_as_saved(shards.open_shards(tag))


def _dtype(home: Path, source: Source, as_adapter: bool) -> str:
    if as_adapter:
        return next(iter(source.entries.values())).dtype
    config = read_json(home / "config.json")
    named = config.get("dtype") or config.get("torch_dtype")
    return named if named in _TORCH.values() else "bfloat16"


def _ordered(source: Source, target: Target) -> list[Entry]:
    """The entries in the model's order, tied weights once, under the model's names.

    Raises ConvertError when parameters are missing. Published checkpoints of some models name their tensors otherwise
    than the model does; those are taken as they are, and counted in :func:`verify`.
    """
    found = dict(source.entries)
    for alias, name in {**source.shared, **target.tied}.items():
        if name not in found and alias in found and name in target.shapes:
            found[name] = replace(found[alias], name=name)
        if alias in found and name in found:
            del found[alias]
    if source.ranks == 1 and source.kind in ("whole", "adapter") and set(found) != set(target.shapes):
        return list(found.values())
    missing = [name for name in target.shapes if name not in found]
    if missing:
        raise ConvertError(
            f"{source.where} lacks {len(missing)} of the model's {len(target.shapes)} tensors, {missing[0]} for one: "
            "it was saved without the frozen parameters, or for another model"
        )
    return [found[name] for name in target.shapes]


def _need(entries: list[Entry], dtype: str, limit: int, *, merges: bool) -> Need:
    """The tensors of one file as they are written (safetensors adds no copy), and the largest tensor as it is read:
    in float32, and once more for the change that a merge adds."""
    largest_file = max(sum(stored_bytes(entry, dtype) for entry in file) for file in cut(entries, dtype, limit))
    largest = max(entry.numel for entry in entries)
    return Need(
        host_ram=largest_file + (8 if merges else 4) * largest,
        disk=sum(stored_bytes(entry, dtype) for entry in entries),
    )


def _check_room(need: Need, out: Path, force: bool) -> None:
    import psutil

    folder = out.absolute()
    while not folder.exists():
        folder = folder.parent
    free, ram = shutil.disk_usage(folder).free, psutil.virtual_memory().available
    short = []
    if need.host_ram > ram:
        short.append(f"{format_bytes(ram)} of host RAM are available (a smaller --max-shard-size needs less)")
    if need.disk > free:
        short.append(f"{format_bytes(free)} are free in {folder}")
    if short and not force:
        raise ConvertError(f"the conversion does not fit here: {'; '.join(short)} (--force tries it anyway)")


def _companions(checkpoint: Path, home: Path, out: Path, dtype: str, adapter: dict[str, Any] | None) -> None:
    """Tokenizer and config beside the weights: of the checkpoint where it has them, else of the base."""
    for name in COMPANIONS:
        for folder in (checkpoint, checkpoint.parent, home):
            if (folder / name).is_file() and (folder != checkpoint.parent or folder == home):
                shutil.copyfile(folder / name, out / name)
                break
    if adapter is not None:
        (out / adapters.CONFIG).write_text(json.dumps(adapter, indent=2) + "\n", encoding="utf-8")
        return
    config = read_json(home / "config.json")
    config.pop("quantization_config", None)
    config.pop("torch_dtype", None)
    config["dtype"] = dtype
    if "use_cache" in config:
        config["use_cache"] = True  # training turns it off, and generation would pay for that
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def verify(folder: Path, entries: list[Entry], target: Target | None, dtype: str) -> tuple[tuple[str, ...], int]:
    """Read back what was written: (notes, number of files). Raises ConvertError for the first thing that is not right."""
    files = sorted(folder.glob("*.safetensors"))
    written = open_folder(files, folder).entries
    empty = [name for name, entry in written.items() if not entry.numel]
    if empty:
        raise ConvertError(f"{empty[0]} came out empty: the checkpoint was saved without gathering its parameters")
    wanted = {entry.name: entry.shape for entry in entries}
    if {name: entry.shape for name, entry in written.items()} != wanted:
        raise ConvertError("the files do not hold the tensors that were meant to be written")
    size = sum(stored_bytes(entry, dtype) for entry in entries)
    if size != sum(stored_bytes(entry, entry.dtype) for entry in written.values()):
        raise ConvertError("the files do not hold as many bytes as the tensors have")
    notes = [] if any((folder / name).is_file() for name in COMPANIONS if name.startswith(("tok", "spi", "voc", "sen"))) \
        else ["no tokenizer was found: --base names a folder that has one"]  # fmt: skip
    if target is None:
        return tuple(notes), len(files)
    if {name: entry.shape for name, entry in written.items()} == dict(target.shapes):
        return tuple(notes), len(files)
    held, described = sum(e.numel for e in written.values()), sum(_numel(shape) for shape in target.shapes.values())
    if held != described:
        raise ConvertError(f"the tensors have {held} elements, the config describes {described}")
    return (*notes, "tensors are named as published, not as the model names them"), len(files)


def _numel(shape: tuple[int, ...]) -> int:
    import math

    return math.prod(shape)
