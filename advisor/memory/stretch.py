"""From a trace of a cut model to the whole model's step: the template layers are repeated to the real depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from advisor.memory.timeline import Parameter
from advisor.memory.trace.types import Interval, Mark, Operator, Segment, Stack, Trace


class Life(NamedTuple):
    """One storage of the whole model: bytes, what it is, and the key that its birth and death share."""

    size: int
    part: str
    key: int


class Moment(NamedTuple):
    """What happens at one position of a segment: births (+1), deaths (-1), an operator or a module's border."""

    at: int
    kind: int  # +1 birth, -1 death, 0 operator, 2 mark
    life: Life | None
    operator: Operator | None
    mark: Mark | None = None  # with the names of the real layer


class Part(NamedTuple):
    """A segment of the whole model with its moments in order."""

    segment: Segment  # its layer is the real one
    moments: tuple[Moment, ...]


class Stretched(NamedTuple):
    """The whole model's step. ``lasting`` are the lives that nothing in the step ends."""

    parts: tuple[Part, ...]
    lasting: tuple[Life, ...]


def stretch(trace: Trace) -> Stretched:
    """Repeat the template of every stack to the real depth."""
    stacks = {stack.name: stack for stack in trace.stacks}
    order = list(_expand(trace, stacks))
    slots: dict[tuple[int, int], list[Moment]] = {}  # (segment of the trace, copy) -> moments
    lasting: list[Life] = []
    key = 0
    for interval in trace.intervals:
        for copy in range(_copies(interval, trace, stacks)):
            key += 1
            life = Life(interval.size, interval.part, key)
            born = _place(interval.birth, copy, trace, stacks)
            slots.setdefault(born, []).append(Moment(interval.born_at, 1, life, None))
            if interval.death < 0:
                lasting.append(life)
                continue
            dies = _death(interval, copy, trace, stacks)
            slots.setdefault(dies, []).append(Moment(interval.died_at, -1, life, None))
    for index, operators in enumerate(trace.operators):
        for copy in range(_segment_copies(trace.segments[index], stacks)):
            place = _place(index, copy, trace, stacks)
            slots.setdefault(place, []).extend(Moment(op.at, 0, None, op) for op in operators)
    for index, marks in enumerate(trace.marks):
        segment = trace.segments[index]
        for copy in range(_segment_copies(segment, stacks)):
            real = segment.layer
            if segment.stack in stacks and real >= 0:
                real = _real(stacks[segment.stack], segment.layer, copy)
            place = _place(index, copy, trace, stacks)
            slots.setdefault(place, []).extend(
                Moment(mark.at, 2, None, None, _renamed(mark, segment.layer, real)) for mark in marks
            )
    parts = []
    for index, copy, real in order:
        moments = slots.get((index, copy), [])
        # At the same position a birth comes before a death: an operator's output exists before its input goes.
        moments.sort(key=lambda moment: (moment.at, -moment.kind))
        segment = trace.segments[index]
        parts.append(Part(segment._replace(layer=real), tuple(moments)))
    return Stretched(tuple(parts), tuple(lasting))


def parameters(trace: Trace) -> tuple[Parameter, ...]:
    """The parameters of the whole model in its own order (layer by layer), with their real layer."""
    stacks = {stack.name: stack for stack in trace.stacks}
    runs: list[
        list[tuple[int, int, Parameter]]
    ] = []  # (layer, place in the cut model, parameter) by stretch of a stack
    before: tuple[str, bool] | None = None
    for place, param in enumerate(trace.params):
        if before != (param.stack, param.layer is None):
            before = (param.stack, param.layer is None)
            runs.append([])
        made = (param.numel, param.itemsize, param.stored, param.trainable)
        if param.layer is None:
            runs[-1].append((0, place, Parameter(param.name, *made, None)))
            continue
        stack = stacks[param.stack]
        for copy in range(stack.copies if _template(stack, param.layer) else 1):
            real = _real(stack, param.layer, copy)
            runs[-1].append((real, place, Parameter(_rename(param.name, param.layer, real), *made, real)))
    return tuple(parameter for run in runs for _, _, parameter in sorted(run, key=lambda item: item[:2]))


def _rename(name: str, layer: int | None, real: int) -> str:
    words = name.split(".")
    at = words.index(str(layer)) if str(layer) in words else None
    if at is not None:
        words[at] = str(real)
    return ".".join(words)


def _renamed(mark: Mark, layer: int, real: int) -> Mark:
    if layer == real:
        return mark
    names = tuple(_rename(name, layer, real) for name in mark.params)
    return mark._replace(module=_rename(mark.module, layer, real), params=names)


def _template(stack: Stack, layer: int) -> bool:
    return stack.head <= layer < stack.head + stack.period and stack.copies > 0


def _real(stack: Stack, layer: int, copy: int) -> int:
    """The real index of a cut layer (of its ``copy``, for template layers)."""
    if layer < stack.head:
        return layer
    if layer < stack.head + stack.period:
        return layer + copy * stack.period
    return layer + stack.total - stack.cut


def _segment_copies(segment: Segment, stacks: dict[str, Stack]) -> int:
    stack = stacks.get(segment.stack)
    return stack.copies if stack is not None and segment.layer >= 0 and _template(stack, segment.layer) else 1


def _copies(interval: Interval, trace: Trace, stacks: dict[str, Stack]) -> int:
    segment = trace.segments[interval.birth]
    if segment.phase == "load":
        return 1  # weights are known by name; :func:`parameters` repeats them
    return _segment_copies(segment, stacks)


def _place(index: int, copy: int, trace: Trace, stacks: dict[str, Stack]) -> tuple[int, int]:
    return index, copy if _segment_copies(trace.segments[index], stacks) > 1 else 0


def _death(interval: Interval, copy: int, trace: Trace, stacks: dict[str, Stack]) -> tuple[int, int]:
    """Where a copy of an interval dies. Between layers of one stack the distance is kept; what spans from a head to a
    tail layer, or comes from outside the stack, keeps its end."""
    birth, death = trace.segments[interval.birth], trace.segments[interval.death]
    stack = stacks.get(death.stack)
    if stack is None or death.layer < 0 or stack.copies <= 1:
        return interval.death, 0
    last = stack.copies - 1
    same = birth.stack == death.stack and birth.layer >= 0 and birth.phase != "load"
    if same and _template(stack, birth.layer):
        # A neighbour of copy c lies in copy c, c + 1 (cut: the tail) or c - 1 (cut: the head).
        if _template(stack, death.layer):
            return interval.death, copy
        if death.layer >= stack.head + stack.period and copy < last:
            return _sibling(trace, interval.death, death.layer - stack.period), copy + 1
        if death.layer < stack.head and copy > 0 and death.layer + stack.period >= stack.head:
            return _sibling(trace, interval.death, death.layer + stack.period), copy - 1
        return interval.death, 0
    if _template(stack, death.layer):
        # From the tail, or from outside while going down, it is the last copy that is met first.
        from_tail = same and birth.layer >= stack.head + stack.period
        down = death.phase == "backward" and not same
        return interval.death, last if (from_tail or down) else 0
    return interval.death, 0


def _sibling(trace: Trace, index: int, layer: int) -> int:
    """The segment like ``index`` but of another layer."""
    wanted = trace.segments[index]._replace(layer=layer)
    return trace.segments.index(wanted)


def _expand(trace: Trace, stacks: dict[str, Stack]) -> Iterator[tuple[int, int, int]]:
    """(segment, copy, real layer) of the whole model, in the order of the step."""
    index, segments = 0, trace.segments
    while index < len(segments):
        segment = segments[index]
        stack = stacks.get(segment.stack)
        if stack is None or segment.layer < 0 or not _template(stack, segment.layer):
            real = segment.layer if stack is None or segment.layer < 0 else _real(stack, segment.layer, 0)
            yield index, 0, real
            index += 1
            continue
        end = index
        while end < len(segments) and _alike(segments[end], segment) and _template(stack, segments[end].layer):
            end += 1
        copies = range(stack.copies)
        for copy in reversed(copies) if segment.phase == "backward" else copies:
            for at in range(index, end):
                yield at, copy, _real(stack, segments[at].layer, copy)
        index = end


def _alike(one: Segment, other: Segment) -> bool:
    return (one.phase, one.step, one.stack) == (other.phase, other.step, other.stack)
