"""What a trace is: intervals of tensor storages over segments of a step, for a model cut to a few layers.

A segment is a stretch of the step between two markers: before the layers, one layer's forward, one layer's backward,
after the layers. An interval is one storage: where it is born and where it dies, as (segment, position). Because a
repeated layer's intervals only name segments relative to their layer, the middle layer can be repeated to any depth
(:mod:`advisor.memory.stretch`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

# A segment's name: phase ("load", "forward", "backward", "prefill", "decode"), step (0, 1), stack ("", "enc", "dec"),
# and the layer's index in the cut model; -1 before the layers, -2 after them (in the order of the phase).
BEFORE, AFTER = -1, -2


class Segment(NamedTuple):
    """One segment of the cut model's step."""

    phase: str
    step: int
    stack: str
    layer: int


class Interval(NamedTuple):
    """One storage. ``size`` in bytes as torch asked for it; ``death`` is -1 for what outlives the trace."""

    size: int
    part: str
    birth: int  # index into Trace.segments
    born_at: int  # position inside it
    death: int
    died_at: int


class Operator(NamedTuple):
    """One operator that launches device work: its position, FLOPs, bytes moved, and the label of its cost."""

    at: int
    flops: int
    moved: int
    label: str


class Mark(NamedTuple):
    """A module that owns parameters itself begins or ends at a position of a segment."""

    at: int
    enters: bool
    backward: bool
    module: str
    params: tuple[str, ...]  # qualified names, of tied parameters the first


class Param(NamedTuple):
    """One parameter of the cut model. ``stack`` and ``layer`` as in Segment; ``layer`` is None outside the stacks."""

    name: str
    numel: int
    itemsize: int
    stored: int  # bytes on the device (quantized weights take less than numel x itemsize)
    trainable: bool
    stack: str
    layer: int | None


@dataclass(frozen=True, slots=True)
class Stack:
    """A run of repeated layers: the cut model has ``head`` + ``period`` + ``tail`` layers, the real one ``total``.

    Layers [head, head + period) are the template; it is repeated until ``total`` is reached.
    """

    name: str
    head: int
    period: int
    tail: int
    total: int

    @property
    def cut(self) -> int:
        """Layers of the cut model."""
        return self.head + self.period + self.tail

    @property
    def copies(self) -> int:
        """How often the template stands in the real model."""
        return (self.total - self.head - self.tail) // self.period


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced step of a cut model."""

    segments: tuple[Segment, ...]
    intervals: tuple[Interval, ...]
    operators: tuple[tuple[Operator, ...], ...]  # by segment
    params: tuple[Param, ...]
    buffers: int  # bytes of buffers that are alive throughout
    stacks: tuple[Stack, ...]
    notes: tuple[str, ...] = field(default_factory=tuple)
    marks: tuple[tuple[Mark, ...], ...] = ()  # by segment; only of jobs under ZeRO-3

    def to_json(self) -> dict[str, Any]:
        """Plain lists, for the cache."""
        return {
            "segments": [list(item) for item in self.segments],
            "intervals": [list(item) for item in self.intervals],
            "operators": [[list(item) for item in segment] for segment in self.operators],
            "params": [list(item) for item in self.params],
            "buffers": self.buffers,
            "stacks": [[s.name, s.head, s.period, s.tail, s.total] for s in self.stacks],
            "notes": list(self.notes),
            "marks": [[list(item) for item in segment] for segment in self.marks],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Trace:
        """The inverse of :meth:`to_json`."""
        return cls(
            segments=tuple(Segment(*item) for item in value["segments"]),
            intervals=tuple(Interval(*item) for item in value["intervals"]),
            operators=tuple(tuple(Operator(*item) for item in segment) for segment in value["operators"]),
            params=tuple(Param(*item) for item in value["params"]),
            buffers=value["buffers"],
            stacks=tuple(Stack(*item) for item in value["stacks"]),
            notes=tuple(value["notes"]),
            marks=tuple(
                tuple(Mark(at, enters, back, module, tuple(names)) for at, enters, back, module, names in segment)
                for segment in value["marks"]
            ),
        )
