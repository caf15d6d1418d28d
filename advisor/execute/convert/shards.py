"""DeepSpeed's checkpoints (ZeRO stages 1 to 3) as named tensors, without DeepSpeed and without running a pickle.

What DeepSpeed 0.19's own ``zero_to_fp32.py`` knows: a checkpoint folder names its newest tag in ``latest``; each rank
wrote its fp32 master weights flat into ``*_optim_states.pt``, and names and shapes stand in ``*_model_states.pt``.
Stage 3 gives every rank ceil(numel / ranks) elements of each parameter, in order of ``param_shapes``; stages 1 and 2
lay the parameters of a group end to end (with alignment paddings, where the file names them) and cut the whole among
the ranks. Frozen parameters stand as fragments beside the shapes. Files are mapped, never read whole.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.execute.convert.entry import Entry, Source

# Plain records that DeepSpeed pickles beside its tensors. They are read as inert values: nothing of DeepSpeed runs.
_KNOWN = (
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.utils.tensor_fragment.fragment_address",
)


class _Inert:
    """What stands for a known record: its arguments, never its code."""

    def __new__(cls, *args: Any) -> _Inert:
        made = super().__new__(cls)
        made.args = args
        return made

    args: tuple[Any, ...]

    def __setstate__(self, state: Any) -> None:
        self.state = state


def tag_folder(checkpoint: Path) -> Path | None:
    """The folder with the rank files: ``checkpoint`` itself, or the tag that its ``latest`` names. None if neither."""
    if list(checkpoint.glob("*_optim_states.pt")):
        return checkpoint
    latest = checkpoint / "latest"
    if not latest.is_file():
        return None
    tag = latest.read_text(encoding="utf-8").strip()
    folder = checkpoint / tag
    if Path(tag).name != tag or not folder.is_dir():
        raise InputError(str(latest), "names a tag that is not there", found=tag, expected="a folder beside it")
    return folder


def open_shards(folder: Path) -> Source:
    """The tensors of a tag folder. Raises InputError for missing ranks, foreign pickles and shapes that do not add up."""
    model_files = _files(folder, "*_model_states.pt")
    states = [_load(path)["optimizer_state_dict"] for path in _files(folder, "*_optim_states.pt")]
    models = [_load(path) for path in model_files]
    first = models[0]
    if "param_shapes" not in first or "zero_stage" not in states[0]:
        raise InputError(str(folder), "holds no ZeRO checkpoint (no shapes or no stage in its files)")
    stage, ranks = _number(states[0]["zero_stage"]), states[0]["partition_count"]
    ranks = max(ranks) if isinstance(ranks, list) else ranks
    if ranks != len(states):
        raise InputError(
            str(folder), "lacks the files of some ranks, or mixes two checkpoints", found=f"{len(states)} ranks",
            expected=f"{ranks} files *_optim_states.pt",
        )  # fmt: skip
    groups = [dict(shapes) for shapes in first["param_shapes"]]
    entries = dict(_stage3(folder, groups, states) if stage == 3 else _stage2(folder, groups, states))
    entries.update(_frozen(first.get("frozen_param_shapes") or {}, models, whole=stage != 3))
    for name in first.get("buffer_names") or ():
        if name in first["module"]:
            entries[name] = _buffer(name, first["module"][name])
    return Source(
        "zero3" if stage == 3 else "zero2", folder, entries, dict(first.get("shared_params") or {}), ranks=ranks
    )


def _files(folder: Path, pattern: str) -> list[Path]:
    def natural(path: Path) -> list[Any]:
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]

    found = sorted(folder.glob(pattern), key=natural)
    if not found:
        raise InputError(str(folder), "has no file of this kind", expected=pattern)
    return found


def _load(path: Path) -> Any:
    """A rank's file, mapped. torch's weights-only reader runs no code; names that it does not know are refused."""
    import torch

    known = [(_Inert, name) for name in _KNOWN]
    try:
        with torch.serialization.safe_globals(known):
            return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise InputError(
            str(path), "holds a pickled object that DeepSpeed does not write, so it is not opened",
            found=named.group(1) if named else str(error).split("\n")[0][:200],
            expected="tensors, plain values and DeepSpeed's own records",
        ) from error  # fmt: skip
    except (RuntimeError, OSError, EOFError) as error:
        raise InputError(str(path), f"cannot be read ({str(error).splitlines()[0]})") from error


def _number(value: Any) -> int:
    return int(value.args[0]) if isinstance(value, _Inert) else int(value)


def _joined(shape: Sequence[int], pieces: Sequence[Any]) -> Any:
    """The reader of a tensor that lies in ``pieces`` (flat, in order, at least as long together)."""

    def read(dtype: Any) -> Any:
        import torch

        whole = torch.empty(math.prod(shape), dtype=dtype or pieces[0].dtype)
        at = 0
        for piece in pieces:
            take = min(piece.numel(), whole.numel() - at)
            whole[at : at + take].copy_(piece[:take])  # casts, too
            at += take
        return whole.view(tuple(shape))

    return read


def _entry(name: str, shape: Sequence[int], pieces: Sequence[Any]) -> Entry:
    held = sum(piece.numel() for piece in pieces)
    if held < math.prod(shape):
        raise InputError(name, "is not whole in the checkpoint", found=held, expected=f"{math.prod(shape)} elements")
    dtype = str(pieces[0].dtype).removeprefix("torch.")
    return Entry(name, tuple(shape), dtype, _joined(shape, pieces))


def _slices(tensors: Sequence[Any], start: int, stop: int) -> list[Any]:
    """Elements ``start`` to ``stop`` of flat tensors laid end to end."""
    found, at = [], 0
    for tensor in tensors:
        low, high = max(start, at), min(stop, at + tensor.numel())
        if low < high:
            found.append(tensor[low - at : high - at])
        at += tensor.numel()
    return found


def _stage3(folder: Path, groups: list[dict[str, Any]], states: list[Any]) -> Iterator[tuple[str, Entry]]:
    flat = [state["fp32_flat_groups"] for state in states]
    ranks, at = len(flat), 0
    for name, shape in ((name, shape) for group in groups for name, shape in group.items()):
        share = math.ceil(math.prod(shape) / ranks)
        yield name, _entry(name, shape, [piece for own in flat for piece in _slices(own, at, at + share)])
        at += share
    held = sum(tensor.numel() for tensor in flat[0])
    if at != held:
        raise InputError(str(folder), "does not add up", found=f"{held} elements a rank", expected=f"{at}")


def _stage2(folder: Path, groups: list[dict[str, Any]], states: list[Any]) -> Iterator[tuple[str, Entry]]:
    ranks = len(states)
    paddings = states[0].get("param_alignment_paddings")
    for index, group in enumerate(groups):
        flat = [state["single_partition_of_fp32_groups"][index] for state in states]
        at = 0
        for number, (name, shape) in enumerate(group.items()):
            yield name, _entry(name, shape, _slices(flat, at, at + math.prod(shape)))
            at += math.prod(shape) + (paddings[index][number] if paddings else 0)
        held, align = sum(tensor.numel() for tensor in flat), 2 * ranks
        if math.ceil(at / align) != math.ceil(held / align):
            raise InputError(
                str(folder), "does not add up", found=f"{held} elements in group {index}", expected=f"{at}"
            )


def _frozen(shapes: Mapping[str, Any], models: list[Any], *, whole: bool) -> Iterator[tuple[str, Entry]]:
    for name, shape in shapes.items():
        ranks = models[:1] if whole else models
        yield name, _entry(name, shape, [model["frozen_param_fragments"][name].reshape(-1) for model in ranks])


def _buffer(name: str, value: Any) -> Entry:
    kept = value.clone()
    return Entry(name, tuple(value.shape), str(value.dtype).removeprefix("torch."), lambda dtype: kept)
