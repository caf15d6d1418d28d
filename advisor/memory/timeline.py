"""A step of the model as a list of allocations and frees: what the trace writes and all of memory/ reads.

The tracer runs the model cut to a few layers on fake tensors and records events; ``stretch`` repeats a middle layer
to the real depth; the engines (DDP, ZeRO) lay their buffers over it; the allocator replays it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

EventKind = Literal["alloc", "drop", "free", "phase", "enter", "exit", "op"]


class Event(NamedTuple):
    """One moment.

    alloc/free: ``key`` identifies the tensor storage, ``size`` its bytes (unrounded), ``part`` what it is (a
    :data:`advisor.memory.budget.Part`). drop: nobody holds it any more, but a kernel of another stream has yet to read it,
    so that its block is used again only after the free that follows. phase: ``part`` names the phase that starts ("load",
    "forward", "backward", "step", "prefill", "decode"), ``step`` in ``key`` (0, 1, …). enter/exit: ``part`` is the qualified
    name of a module that owns parameters itself ("model.layers.1.self_attn.q_proj", see :attr:`Timeline.modules`), ``key``
    0 for its forward and 1 for its backward; laid down for jobs under ZeRO-3 alone, whose engine acts at these moments.
    op: an operator that launches device work (:mod:`advisor.memory.operators` makes these): ``key`` its floating point
    operations, ``size`` the bytes it reads and writes, ``part`` its kind and dtype ("matmul:bf16"). Memory ignores them;
    the time model reads them. ``stream``: the CUDA stream that an allocation belongs to, 0 for the one that computes; the
    allocator keeps a pool for each.
    """

    kind: EventKind
    key: int
    size: int
    part: str
    stream: int = 0


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
    # Of each module that owns parameters itself (tied ones count for every owner): their indices in ``parameters``.
    modules: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
