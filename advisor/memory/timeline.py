"""A step of the model as a list of allocations and frees: what the trace writes and all of memory/ reads.

The tracer runs the model cut to a few layers on fake tensors and records events; ``stretch`` repeats a middle layer
to the real depth; the engines (DDP, ZeRO) lay their buffers over it; the allocator replays it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

EventKind = Literal["alloc", "free", "phase", "enter", "exit", "grad", "op"]


class Event(NamedTuple):
    """One moment.

    alloc/free: ``key`` identifies the tensor storage, ``size`` its bytes (unrounded), ``part`` what it is (a
    :data:`advisor.memory.budget.Part`). phase: ``part`` names the phase that starts ("load", "forward", "backward",
    "step", "prefill", "decode"), ``step`` in ``key`` (0, 1, …). enter/exit: ``part`` is the qualified name of a module
    that owns parameters or is a layer ("model.layers.1.self_attn.q_proj"), ``key`` 0 for its forward and 1 for its
    backward. grad: the gradient of parameter ``part`` was accumulated, final for this backward; ``size`` its bytes.
    op: an operator that launches device work (:mod:`advisor.memory.operators` makes these): ``key`` its floating point
    operations, ``size`` the bytes it reads and writes, ``part`` its kind and dtype ("matmul:bf16"). Memory ignores them;
    the time model reads them.
    """

    kind: EventKind
    key: int
    size: int
    part: str


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic and traffic of one phase: for the time model. Sums over all operators of the phase."""

    flops: float = 0.0  # multiply and add count as two; matrix products and attention
    bytes_moved: float = 0.0  # inputs read and outputs written, all operators
    kernels: int = 0  # operators that launch device work


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the full model: qualified name, numel, bytes an element as loaded, trainable, its layer index.

    ``layer`` is None outside the repeated stack. ``storage_bytes`` is what it takes on the device (quantized weights
    take less than numel x dtype).
    """

    name: str
    numel: int
    dtype_bytes: int
    storage_bytes: int
    trainable: bool
    layer: int | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events of a whole job on one device: load (weights appear), then two steps (or prefill and decode)."""

    events: tuple[Event, ...]
    parameters: tuple[Parameter, ...]
    work: Mapping[str, Work] = field(
        default_factory=dict
    )  # by phase: forward, backward, step, prefill, decode (a token)
    decode_tokens: int = 0  # tokens that the decode phase stands for
