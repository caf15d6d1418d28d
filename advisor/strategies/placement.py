"""Where accelerate puts the modules of a model: its own planner, called with the real model on the meta device.

What it does not know is given to it: sizes of packed weights by parameter, tied weights, the classes that must not be
split, and on every device only the room that weights may take there. A balanced map is the one with the smallest cap
that still holds everything; accelerate's own balance puts what is left over on the last card, and a large output head
with it (case B02).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from advisor.cache import cached, source_digest, version_of
from advisor.job import Job
from advisor.models.spec import ModelSpec

_HALVINGS = 7  # of the cap's interval: the balance is found to within 1%


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A device map: module name to GPU index, "cpu" or "disk"; bytes of weights by device; the caps of each device."""

    device_map: Mapping[str, int | str]
    sizes: Mapping[str, int]
    max_memory: Mapping[str, int]
    head: str  # device of the output head, which makes the logits

    @property
    def cards(self) -> int:
        """GPUs that hold something."""
        return sum(device.isdigit() for device in self.sizes)


def place(model: ModelSpec, job: Job, rooms: Mapping[str, int], *, balance: bool) -> Placed | None:
    """The map of ``job``'s weights into ``rooms`` (bytes by "0", "1", …, "cpu"; what is left goes to disk).

    ``balance`` fills all cards alike and uses nothing else: None when they cannot hold the model.
    Raises InputError when transformers cannot read the config, RuntimeError when a map leaves a tensor uncovered.
    """
    key = {
        "config": dict(model.config),
        "kind": model.kind,
        "dtype": job.load_dtype,
        "quantization": job.quantization,
        "rooms": dict(rooms),
        "balance": balance,
        "versions": [version_of(name) for name in ("torch", "transformers", "accelerate")],
        "code": source_digest("strategies/placement", "memory/trace/build"),
    }
    found = cached("placement", key, lambda: _plan(model, job, rooms, balance))
    return None if found is None else Placed(**found)


def _plan(model: ModelSpec, job: Job, rooms: Mapping[str, int], balance: bool) -> dict[str, Any] | None:
    from accelerate.utils import infer_auto_device_map
    from accelerate.utils.modeling import compute_module_sizes

    made = _meta_model(model, job)
    blocks = list(made._no_split_modules or [])
    dtypes = _dtypes(made, job)

    def infer(caps: Mapping[int | str, int]) -> dict[str, int | str]:
        with _unseen_cards():
            return dict(
                infer_auto_device_map(
                    made,
                    max_memory=dict(caps),
                    no_split_module_classes=blocks,
                    special_dtypes=dtypes,
                    offload_buffers=True,
                )
            )

    if balance:
        cards = {int(name): room for name, room in rooms.items() if name.isdigit()}
        found = _balanced(infer, cards, compute_module_sizes(made, special_dtypes=dtypes)[""])
        if found is None:
            return None
        placed, caps = found
    else:
        placed, caps = infer({int(name) if name.isdigit() else name: room for name, room in rooms.items()}), dict(rooms)
    held = _held(made, placed, dtypes)
    head = made.get_output_embeddings()
    name = next((name for name, module in made.named_modules() if module is head), "") if head is not None else ""
    return {
        "device_map": placed,
        "sizes": held,
        "max_memory": caps,
        "head": str(_device(name, placed)) if name else str(next(reversed(placed.values()))),
    }


def _balanced(
    infer: Callable[[Mapping[int | str, int]], dict[str, int | str]], rooms: Mapping[int, int], total: int
) -> tuple[dict[str, int | str], dict[str, int]] | None:
    """The map whose cards are filled to the smallest share of their rooms, and its caps; None when they hold no map.

    accelerate keeps room on the first device to bring a spilled layer back. Nothing spills here, so a device without
    room goes before the cards, and every card is filled to its own cap.
    """
    names = sorted(rooms)

    def filled(level: float) -> tuple[dict[str, int | str], dict[str, int]] | None:
        caps = {name: int(level * rooms[name]) for name in names}
        try:
            placed = infer({0: 0, **{place: caps[name] for place, name in enumerate(names, 1)}})
        except (
            IndexError
        ):  # accelerate cannot split a head of which two parameters are tied (BERT's): it needs more room
            return None
        if not all(isinstance(device, int) for device in placed.values()):
            return None
        homes: dict[str, int | str] = {module: names[int(device) - 1] for module, device in placed.items()}
        return homes, {str(name): cap for name, cap in caps.items()}

    low = total / max(1, sum(rooms.values()))
    if low > 1:
        return None
    high, best = low, filled(low)
    while best is None and high < 1:
        low, high = high, min(1.0, 2 * high)
        best = filled(high)
    if best is None or low == high:
        return best
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = filled(middle)
        low, high, best = (middle, high, best) if found is None else (low, middle, found)
    return best


def _meta_model(model: ModelSpec, job: Job) -> Any:
    from advisor.memory.trace.build import build, full_config

    made = build(model, full_config(model), job, job.attention)
    made.tie_weights()
    return made


def _dtypes(made: Any, job: Job) -> dict[str, Any] | None:
    """What each parameter is stored in, where that differs from the model's own type: packed linears."""
    if job.quantization is None:
        return None
    import torch
    from accelerate.utils import CustomDtype

    packed = CustomDtype.INT4 if job.quantization == "nf4" else torch.int8
    head = made.get_output_embeddings()
    return {
        f"{name}.weight": packed
        for name, module in made.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }


def _device(name: str, placed: Mapping[str, int | str]) -> int | str:
    """The device of a tensor or module by its longest mapped prefix. Raises RuntimeError when nothing covers it."""
    words = name.split(".")
    covering = [".".join(words[:end]) for end in range(len(words), 0, -1) if ".".join(words[:end]) in placed]
    if not covering and "" in placed:
        covering = [""]
    if len(covering) != 1:
        raise RuntimeError(f"{name} is covered by {len(covering)} entries of its device map, not by one")
    return placed[covering[0]]


def _held(made: Any, placed: Mapping[str, int | str], dtypes: Mapping[str, Any] | None) -> dict[str, int]:
    """Bytes by device, every parameter and buffer looked up once (tied ones count where they are met first)."""
    from accelerate.utils.modeling import dtype_byte_size

    held: dict[str, int] = {}
    seen: set[int] = set()
    for name, tensor in [*made.named_parameters(remove_duplicate=False), *made.named_buffers(remove_duplicate=False)]:
        device = str(_device(name, placed))
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        width = dtype_byte_size((dtypes or {}).get(name, tensor.dtype))
        held[device] = held.get(device, 0) + int(tensor.numel() * width)
    return held


@contextmanager
def _unseen_cards() -> Iterator[None]:
    """The cards of the plan need not be here: accelerate would warn of each that is not."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
