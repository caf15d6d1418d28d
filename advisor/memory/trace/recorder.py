"""Records every storage that operators make, and what the operators compute, while fake tensors run."""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from advisor.memory.operators import Cost, operator_cost
from advisor.memory.trace.types import Interval, Mark, Operator, Segment


class Recorder(TorchDispatchMode):
    """Counts live storages by segment.

    Set :attr:`segment` at each marker. Storages made while :attr:`paused` are not recorded (they stand for nothing on
    the device).
    """

    current: Recorder | None = None  # the one at work, for stand-in kernels that get no argument of their own

    def __init__(self) -> None:
        super().__init__()
        self.segments: list[Segment] = []
        self.paused = False
        self._index: dict[Segment, int] = {}
        self._current = -1
        self._pending: Segment | None = None
        self._open: dict[int, int] = {}  # storage id -> interval number
        self._intervals: list[list[Any]] = []
        self._positions: list[int] = []
        self._operators: list[list[Operator]] = []
        self._marks: list[list[Mark]] = []
        Recorder.current = self

    def enter_at_next(self, segment: Segment) -> None:
        """Go to a segment when the next operator runs: what is freed until then belongs to the one before."""
        self._pending = segment

    def enter(self, segment: Segment) -> None:
        """Go to a segment, new or known (a phase may come back to it)."""
        self._pending = None
        if segment not in self._index:
            self._index[segment] = len(self.segments)
            self.segments.append(segment)
            self._positions.append(0)
            self._operators.append([])
            self._marks.append([])
        self._current = self._index[segment]

    def tag(self, tensor: Any, part: str) -> None:
        """Say what a storage is."""
        number = self._open.get(tensor.untyped_storage()._cdata)
        if number is not None:
            self._intervals[number][1] = part

    def operator(self, cost: Cost) -> None:
        """Count an operator; stand-in kernels call this for the kernel they stand for."""
        self._operators[self._current].append(Operator(self._next(), int(cost.flops), int(cost.moved), cost.label))

    def mark(self, module: str, params: tuple[str, ...], *, enters: bool, backward: bool) -> None:
        """A module that owns ``params`` begins or ends here."""
        if enters and self._pending is not None:
            self.enter(self._pending)
        self._marks[self._current].append(Mark(self._next(), enters, backward, module, params))

    def _next(self) -> int:
        self._positions[self._current] += 1
        return self._positions[self._current]

    def _add(self, tensor: Any, part: str) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._open or self.paused:
            return
        number = len(self._intervals)
        self._intervals.append([storage.nbytes(), part, self._current, self._next(), -1, -1])
        self._open[key] = number
        weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        number = self._open.pop(key, None)
        if number is not None and not self.paused:
            self._intervals[number][4:6] = [self._current, self._next()]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._pending is not None:
            self.enter(self._pending)
        out = function(*args, **(kwargs or {}))
        import torch

        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        for tensor in results:
            self._add(tensor, "activations")
        if not self.paused:
            cost = operator_cost(function, args, kwargs, out)
            if cost is not None:
                self.operator(cost)
        return out

    def intervals(self) -> tuple[Interval, ...]:
        """Everything recorded; what still lives has death -1."""
        return tuple(Interval(*item) for item in self._intervals)

    def operators(self) -> tuple[tuple[Operator, ...], ...]:
        """Operators by segment, in order."""
        return tuple(tuple(segment) for segment in self._operators)

    def marks(self) -> tuple[tuple[Mark, ...], ...]:
        """Marks by segment, in order."""
        return tuple(tuple(segment) for segment in self._marks)
