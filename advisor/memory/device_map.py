"""A model whose layers lie on several cards, with what spills to the host or to disk, as accelerate dispatches it.

Each card holds the weights, cache and activations of its layers; the logits lie with the head. A spilled module is
copied to the card for its forward and dropped after it (accelerate's AlignDevicesHook), one layer's parts at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.assemble import trace_of, whole_step
from advisor.memory.budget import Budget
from advisor.memory.figures import figures, gpu_budget, kept
from advisor.memory.runtime import runtime_bytes, runtime_note
from advisor.memory.single import HOST_PROCESS, is_hopper
from advisor.memory.stretch import Life, Moment, Part, Stretched, parameters, stretch
from advisor.memory.timeline import Parameter
from advisor.memory.trace.types import AFTER
from advisor.models.spec import ModelSpec

SPILLED = ("cpu", "disk")
HEADS = ("lm_head", "embed_out", "output_layer", "cls", "qa_outputs", "score")  # output heads by families' names


def device_map_of(model: ModelSpec, machine: HardwareProfile, job: Job) -> dict[str, str]:
    """Module name -> device ("0", "cpu", "disk"): the job's own map, else the one accelerate infers.

    transformers balances unless "sequential" is asked for; a quantizer keeps a tenth of every card free.
    """
    if isinstance(job.device_map, Mapping):
        return {name: str(device) for name, device in job.device_map.items()}
    rooms = dict(job.max_memory) if job.max_memory is not None else _rooms(machine, job)

    def compute() -> dict[str, str]:
        return _infer(model, job, rooms)

    found: dict[str, str] = kept(model, job, {"device_map": rooms}, compute)
    return found


def _rooms(machine: HardwareProfile, job: Job) -> dict[str, int]:
    rooms = {str(index): room for index, room in enumerate(machine.capacities[: job.gpus])}
    host = machine.host.memory_available or machine.host.memory_total
    return rooms | ({"cpu": host} if host else {})


def _infer(model: ModelSpec, job: Job, rooms: Mapping[str, int]) -> dict[str, str]:
    import torch
    from accelerate.utils import CustomDtype, get_balanced_memory, infer_auto_device_map

    from advisor.memory.trace.build import build, full_config

    made = build(model, full_config(model), job, job.attention)
    made.tie_weights()
    # Packed sizes, as transformers' quantizers tell accelerate.
    dtype = {None: getattr(torch, {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[job.load_dtype]),
             "nf4": CustomDtype.INT4, "int8": torch.int8}[job.quantization]  # fmt: skip
    blocks = list(made._no_split_modules or [])
    memory: dict[int | str, int] = {int(name) if name.isdigit() else name: room for name, room in rooms.items()}
    if job.device_map != "sequential":
        memory = get_balanced_memory(
            made, max_memory=memory, no_split_module_classes=blocks, dtype=dtype,
            low_zero=job.device_map == "balanced_low_0",
        )  # fmt: skip
    if job.quantization:
        memory = {name: int(room * 0.9) for name, room in memory.items()}
    placed = infer_auto_device_map(made, max_memory=memory, no_split_module_classes=blocks, dtype=dtype)
    return {name: str(device) for name, device in placed.items()}


def device_of(name: str, placed: Mapping[str, str]) -> str:
    """The device of a parameter or module, by its longest mapped prefix. Raises KeyError when nothing covers it."""
    words = name.split(".")
    for end in range(len(words), 0, -1):
        if (found := placed.get(".".join(words[:end]))) is not None:
            return found
    return placed[""]


def budget_device_map(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The memory of ``job`` on every card that its map uses."""
    placed = device_map_of(model, machine, job)
    hopper = is_hopper(machine)

    def compute() -> Any:
        trace = trace_of(model, job)
        whole, params = stretch(trace), parameters(trace)
        # PEFT wraps the model: its names start two modules further out than the map's.
        homes = {param.name: device_of(param.name.removeprefix("base_model.model."), placed) for param in params}
        cards = sorted({home for home in homes.values() if home not in SPILLED}, key=int) or ["0"]
        found = []
        for card in cards:
            part = _on_card(whole, params, homes, head_device(placed, homes), card, cards)
            mine = tuple(param for param in params if homes[param.name] == card)
            buffers = trace.buffers if card == cards[0] else 0
            events = whole_step(part, mine, buffers, job, hopper=hopper).events
            found.append(figures(events, expandable=job.expandable_segments))
        sizes = {where: sum(p.storage_bytes for p in params if homes[p.name] == where) for where in SPILLED}
        return {"cards": found, **sizes}

    result = kept(model, job, {"hopper": hopper, "map": placed}, compute)
    runtime = runtime_bytes(machine, job)
    gpus = tuple(gpu_budget(found, runtime) for found in result["cards"])
    fullest = max(result["cards"], key=lambda found: found["required"])
    note = runtime_note(machine)
    host = HOST_PROCESS + result["cpu"]
    return Budget(
        gpus=gpus,
        host_ram=host,
        host_ram_load=host,
        host_mapped=result["cpu"] if job.quantization is None else 0,
        disk=result["disk"],
        peak_phase=fullest["phase"],
        phases=fullest["phases"],
        notes=(note,) if note else (),
    )


def head_device(placed: Mapping[str, str], homes: Mapping[str, str]) -> str:
    """Where logits and loss are made: with the output head, which lies with the embedding where the two are one."""
    for name, device in placed.items():
        if name.rpartition(".")[2] in HEADS:
            return device
    return list(homes.values())[-1]


def _on_card(
    whole: Stretched, params: tuple[Parameter, ...], homes: Mapping[str, str], head: str, card: str, cards: list[str]
) -> Stretched:
    """The step as ``card`` sees it: births of the segments that run there, deaths everywhere.

    What is spilled runs on the first card. accelerate's hook fetches each leaf module in turn, so its largest parameter
    is laid over the whole segment: never less than what happens.
    """
    by_layer = {param.layer: homes[param.name] for param in params if param.layer is not None}
    outside = [param for param in params if param.layer is None]
    last = [param for param in outside if homes[param.name] == head][-1:]
    parts = []
    for number, part in enumerate(whole.parts):
        layer = part.segment.layer
        # The embedding comes first and the head last; in the backward it is the other way round.
        at_head = (layer == AFTER) != (part.segment.phase == "backward")
        owned = [param for param in params if param.layer == layer] if layer >= 0 else last if at_head else outside[:1]
        home = by_layer.get(layer, cards[0]) if layer >= 0 else head if at_head else homes[outside[0].name]
        if home in SPILLED and card == cards[0]:
            moved = Life(max((param.storage_bytes for param in owned), default=0), "buffers", -1 - number)
            moments = (Moment(-1, 1, moved, None), *part.moments, Moment(1 << 62, -1, moved, None))
        elif home == card:
            moments = part.moments
        else:
            moments = tuple(moment for moment in part.moments if moment.kind < 0)
        parts.append(Part(part.segment, moments))
    return Stretched(tuple(parts), whole.lasting)
