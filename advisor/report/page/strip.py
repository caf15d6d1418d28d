"""Where each layer goes: one row a device, one column a module in the order of the forward pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from advisor.plan import PlanStep
from advisor.report.page.answer import Answer

_NUMBER = re.compile(r"\.(\d+)(?:\.|$)")
_MANY = 12  # devices beyond this are drawn as one row


@dataclass(frozen=True, slots=True)
class Cell:
    """One module on one device: ``share`` of it lies there (0 nothing, 1 all), from ``start`` of it on."""

    module: str
    share: float
    words: str
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class Strip:
    """The drawing and its sentence. ``spans`` says the same as text: device and the modules that it holds."""

    sentence: str
    modules: tuple[str, ...]
    devices: tuple[tuple[str, tuple[Cell, ...]], ...]
    spans: tuple[tuple[str, str], ...]


def strip(answer: Answer, step: PlanStep) -> Strip:
    """The strip of one step of a plan."""
    job = step.job
    if step.device_map is not None and job.strategy == "device_map":
        return _mapped(step.device_map)
    modules = ("embedding", *(f"layer {index}" for index in range(answer.layers)), "head")
    names = [f"GPU {index}" for index in range(job.gpus)]
    if len(names) > _MANY:
        names = [f"GPU 0 to {job.gpus - 1}, each"]
    share, sentence = 1.0, "The whole model lies on one GPU."
    if not names:
        names, sentence = ["CPU"], "The whole model lies in host RAM, and the CPU computes."
    if job.strategy == "ddp":
        sentence = f"A whole copy of the model lies on each of {job.gpus} GPUs; they exchange gradients."
    elif job.strategy == "zero2":
        sentence = f"All weights lie on each of {job.gpus} GPUs; gradients and optimizer states are sharded over them."
    elif job.strategy in ("zero3", "tensor_parallel"):
        share = 1 / job.gpus
        sentence = (
            f"Every layer is sharded: each of {job.gpus} GPUs keeps 1/{job.gpus} of it and gathers the rest when used."
            if job.strategy == "zero3"
            else f"Every layer is split: each of {job.gpus} GPUs holds and computes 1/{job.gpus} of it."
        )
    places = [("parameters", job.offload_param), ("optimizer states", job.offload_optimizer)]
    sentence += "".join(f" Between uses, {what} lie {_place(where)}." for what, where in places if where)
    if job.offload_param:
        names = ["host RAM" if job.offload_param == "cpu" else "NVMe"]
        share = 1.0
    words = "whole" if share == 1 else f"1/{job.gpus} of it"
    starts = [index * share if share < 1 and len(names) > 1 else 0.0 for index in range(len(names))]
    rows = tuple(
        (name, tuple(Cell(module, share, words, start) for module in modules))
        for name, start in zip(names, starts, strict=True)
    )
    return Strip(sentence, modules, rows, tuple((name, words) for name in names))


def _place(where: str) -> str:
    return "in host RAM" if where == "cpu" else "on NVMe"


def _mapped(placed: Mapping[str, int | str]) -> Strip:
    """A device map, module by module; neighbours on one device with numbers in a row are named as a range."""
    devices = list(dict.fromkeys(placed.values()))
    devices.sort(key=lambda device: (isinstance(device, str), str(device)))
    rows = []
    for device in devices:
        cells = tuple(
            Cell(module, 1.0 if where == device else 0.0, "whole" if where == device else "")
            for module, where in placed.items()
        )
        rows.append((_device(device), cells))
    spans = tuple(
        (_device(device), _ranges([m for m, where in placed.items() if where == device])) for device in devices
    )
    names = ", ".join(name for name, _ in rows)
    return Strip(f"Each module lies on one device: {names}. They work in turn.", tuple(placed), tuple(rows), spans)


def _device(device: int | str) -> str:
    if isinstance(device, int) or device.isdigit():
        return f"GPU {device}"
    return {"cpu": "host RAM", "disk": "disk"}.get(device, device)


def _ranges(modules: list[str]) -> str:
    """ "model.embed_tokens, layers 0 to 13": numbered modules in a row as one range."""
    words: list[str] = []
    start: tuple[str, int] | None = None
    last = -1
    for module in [*modules, ""]:
        found = _NUMBER.search(module)
        stem, number = (module[: found.start()], int(found[1])) if found and found.end() == len(module) else ("", -1)
        if start and stem == start[0] and number == last + 1:
            last = number
            continue
        if start:
            words.append(f"{start[0]}.{start[1]}" + (f" to {last}" if last > start[1] else ""))
            start = None
        if stem:
            start, last = (stem, number), number
        elif module:
            words.append(module)
    return ", ".join(words)
