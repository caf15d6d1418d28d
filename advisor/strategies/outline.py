"""A step's memory in outline: what is live besides weights and states at every layer, without replaying an allocator.

The traced step is laid out for a few layers and its middle layer's rise and fall repeated to the real depth, so that it
costs milliseconds at any depth. The search steers by it; what is decided near a card's limit is replayed in full.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from advisor.job import Job
from advisor.memory.assemble import trace_key, trace_of
from advisor.memory.optimizer import optimizer_step
from advisor.memory.stretch import Part, parameters, stretch
from advisor.memory.timeline import Parameter
from advisor.memory.trace.types import Stack, Trace
from advisor.models.spec import ModelSpec

_COPIES = 5  # of the template that are laid out; the middle one stands for the rest
_MIDDLE = 2
_TRAINED = ("forward", "backward")


class Point(NamedTuple):
    """One layer's turn: the largest live bytes in it by kind. ``live`` holds activations, logits and temporaries."""

    phase: str
    live: int
    gradients: int
    cache: int
    logits: int  # of ``live``
    inside: int  # of ``live``, what this turn itself adds
    inner: bool  # a layer's turn, and not what comes before or after the layers


@dataclass(frozen=True)
class Outline:
    """A step by turns, and the model's parameters and states. Bytes on one device that does all the work."""

    points: tuple[Point, ...]
    parameters: tuple[Parameter, ...]
    buffers: int

    @cached_property
    def weights(self) -> int:
        """Bytes of all weights as stored."""
        return sum(parameter.storage_bytes for parameter in self.parameters)

    @cached_property
    def numel(self) -> int:
        """All parameters."""
        return sum(parameter.numel for parameter in self.parameters)

    @cached_property
    def trained(self) -> int:
        """Trainable parameters."""
        return sum(parameter.numel for parameter in self.parameters if parameter.trainable)

    @cached_property
    def gradients(self) -> int:
        """Bytes of all gradients."""
        return sum(parameter.numel * parameter.dtype_bytes for parameter in self.parameters if parameter.trainable)

    @cached_property
    def largest_layer(self) -> int:
        """Bytes of the largest layer, or of the largest parameter outside the layers."""
        layers: dict[int, int] = {}
        for parameter in self.parameters:
            if parameter.layer is not None:
                layers[parameter.layer] = layers.get(parameter.layer, 0) + parameter.storage_bytes
        outside = max((p.storage_bytes for p in self.parameters if p.layer is None), default=0)
        return max(outside, *layers.values(), 0)

    @cached_property
    def live(self) -> int:
        """The largest ``live`` of all turns, cache included."""
        return max((point.live + point.cache for point in self.points), default=0)

    @cached_property
    def cache(self) -> int:
        """Bytes of keys and values at the end."""
        return max((point.cache for point in self.points), default=0)

    @cached_property
    def inside(self) -> int:
        """The most that one turn adds by itself, logits left out."""
        return max((point.inside for point in self.points if not point.logits), default=0)

    @cached_property
    def logits(self) -> int:
        """The largest live bytes of logits."""
        return max((point.logits for point in self.points), default=0)


_OUTLINES: dict[str, Outline] = {}  # of this process: a search asks for the same step on many machines
_KEPT = 64


def outline(model: ModelSpec, job: Job) -> Outline:
    """The outline of ``job``. Raises InputError for a config that transformers cannot read."""
    key = json.dumps([trace_key(model, job), job.max_new_tokens], sort_keys=True, default=str)
    if key not in _OUTLINES:
        if len(_OUTLINES) >= _KEPT:
            _OUTLINES.pop(next(iter(_OUTLINES)))
        _OUTLINES[key] = _outline(model, job)
    return _OUTLINES[key]


def _outline(model: ModelSpec, job: Job) -> Outline:
    trace = trace_of(model, job)
    points = tuple(_points(trace))
    if not job.trains:
        points = _whole_cache(points, job)
    return Outline(points, parameters(trace), trace.buffers)


def _whole_cache(points: tuple[Point, ...], job: Job) -> tuple[Point, ...]:
    """The cache at its last length in every turn of the decode: the trace meets its first and last step alone."""
    prompt = max((point.cache for point in points if point.phase == "prefill"), default=0)
    last = prompt * (job.sequence_length + max(0, job.max_new_tokens - 1)) // job.sequence_length
    return tuple(point._replace(cache=last) if point.phase == "decode" else point for point in points)


def states(job: Job, found: Outline) -> tuple[int, int]:
    """(bytes of optimizer states, largest temporary of its step) on one device without sharding."""
    step = optimizer_step(job.optimizer, found.parameters)
    return sum(step.states), max((sum(together) for together in step.temporaries), default=0)


def _points(trace: Trace) -> Iterator[Point]:
    short = replace(trace, stacks=tuple(_short(stack) for stack in trace.stacks))
    depth = {stack.name: stack for stack in trace.stacks}
    live = gradients = cache = logits = 0
    parts = [part for part in stretch(short).parts if part.segment.phase != "load"]
    repeated = _repeated(parts, depth)
    for _, micro_step in groupby(parts, key=lambda part: part.segment.step if part.segment.phase in _TRAINED else 0):
        # Of a micro step only its gradients outlive it: the loop drops the rest when it takes the next batch.
        live = logits = 0
        for key, group in groupby(micro_step, key=lambda part: _copy(part, depth)):
            times = _times(key, depth)
            turns = [(part.segment.phase, _turn(part, repeated if key[3] < 0 else {})) for part in group]
            for _ in range(times):
                for phase, turn in turns:
                    yield Point(
                        phase, live + turn.peak, gradients + turn.gradients, max(cache, cache + turn.cache),
                        max(0, logits + turn.logits_peak), turn.peak, key[3] >= 0,
                    )  # fmt: skip
                    live, gradients = live + turn.net, gradients + turn.gradients
                    cache, logits = cache + turn.cache, logits + turn.logits


def _short(stack: Stack) -> Stack:
    if stack.copies <= _COPIES:
        return stack
    return replace(stack, total=stack.head + stack.tail + stack.period * _COPIES)


def _copy(part: Part, depth: dict[str, Stack]) -> tuple[str, int, str, int]:
    """Phase, step, stack and which repetition of the template; -1 outside it."""
    segment = part.segment
    stack = depth.get(segment.stack)
    copy = -1
    if stack is not None and segment.layer >= stack.head:
        copy = (segment.layer - stack.head) // stack.period
        if copy >= min(stack.copies, _COPIES):
            copy = -1
    return segment.phase, segment.step, segment.stack, copy


def _times(key: tuple[str, int, str, int], depth: dict[str, Stack]) -> int:
    stack = depth.get(key[2])
    if stack is None or key[3] != _MIDDLE or stack.copies <= _COPIES:
        return 1
    return stack.copies - _COPIES + 1


class _Turn(NamedTuple):
    net: int
    peak: int
    gradients: int
    cache: int
    logits: int
    logits_peak: int


def _repeated(parts: list[Part], depth: dict[str, Stack]) -> dict[int, int]:
    """How many births each life of a repeated turn stands for, by its key.

    As many die with it outside the layers (autocast's copies of the weights, at the end of the forward). What dies in
    a neighbouring layer is balanced by what dies in the repeated one.
    """
    found: dict[int, int] = {}
    for part in parts:
        times = _times(_copy(part, depth), depth)
        if times > 1:
            found |= {moment.life.key: times for moment in part.moments if moment.life and moment.kind > 0}
    return found


def _turn(part: Part, repeated: Mapping[int, int]) -> _Turn:
    """What one turn brings and takes; the death of a life counts as often as ``repeated`` says, else once."""
    net = peak = gradients = cache = logits = logits_peak = 0
    for moment in part.moments:
        if moment.life is None:
            continue
        size = moment.kind * moment.life.size
        if moment.kind < 0:
            size *= repeated.get(moment.life.key, 1)
        if moment.life.part == "gradients":
            gradients += size
        elif moment.life.part == "kv_cache":
            cache += size
        elif moment.life.part != "weights":
            net += size
            if moment.life.part == "logits":
                logits += size
                logits_peak = max(logits_peak, logits)
            peak = max(peak, net)
    return _Turn(net, peak, gradients, cache, logits, logits_peak)
