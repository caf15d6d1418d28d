"""DeepSpeed ZeRO-2: states, gradients and the step laid over the traced step.

After DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, and held against memory histories (measurements/streams.json). With P
parameters, T of them trained, S a rank's share of T, and everything on the stream that computes:

- load: the trained weights are copied into one flat buffer while they still lie singly; then 16-bit and fp32 copies of the
  share, the master weights, which leave for the host when the optimizer is offloaded;
- backward: the reduce bucket comes with the first gradient and goes after the last; a full one is flattened once more to be
  reduced; then the rank keeps whole gradients of its parameters, or, under offload, takes each to fp64 for its norm and to
  fp32 for the host;
- step: norms in fp64 a parameter, gradients flattened, then in fp32; torch's foreach AdamW makes as much again.
"""

from __future__ import annotations

from advisor.job import Job
from advisor.memory.engines.rank import Rank
from advisor.memory.timeline import Event, Timeline


class Zero2:
    """The events of the first rank, which holds the embedding's share."""

    def __init__(self, line: Timeline, job: Job) -> None:
        self.line, self.job, self.zero = line, job, job.zero
        self.rank = Rank()
        self.trained = [parameter for parameter in line.parameters if parameter.trainable]
        self.share = -(-sum(parameter.numel for parameter in self.trained) // job.world_size)
        # Parameters that begin in the first rank's share; the last of them may end in the next rank's.
        self.mine: list[int] = []
        for parameter in self.trained:
            if sum(self.mine) < self.share:
                self.mine.append(parameter.numel)
        self._mine = set(self.mine)
        self._bucket: list[int] = []
        self._room: list[Event | None] = []
        self._kept: Event | None = None  # gradients of this rank's parameters
        self._summed: Event | None = None  # the same, of the micro steps before
        self._stated = False

    def events(self) -> tuple[Event, ...]:
        """Load, then the steps of the timeline with the engine's buffers."""
        self._load()
        owned = set(range(1, len(self.line.parameters) + 1))  # the builder numbers weights by parameter
        before, out = "load", self.rank.events
        fresh: Event | None = None  # a gradient whose hook has yet to run: once what it was summed from is gone
        for event in self.line.events:
            if fresh is not None and event.kind not in ("free", "op"):
                self._gradient(fresh)
                fresh = None
            if event.kind == "phase":
                self._phase(before, event)
                before = event.part
            elif event.part == "gradients" and event.kind == "alloc":
                owned.add(event.key)
                out.append(event)
                fresh = event
            elif not (event.kind in ("alloc", "free") and event.key in owned):
                out.append(event)
        return tuple(out)

    def _load(self) -> None:
        rank, single = self.rank, []
        rank.phase("load")
        for parameter in self.line.parameters:
            held = rank.alloc(parameter.storage_bytes, "weights")
            if parameter.trainable:
                single.append(held)
        rank.alloc(sum(parameter.storage_bytes for parameter in self.trained), "weights")
        for held in single:
            rank.free(held)
        if not self.job.trains:
            return
        copied = rank.alloc(2 * self.share, "temporary")
        if self.job.offload_optimizer is not None:
            rank.free(copied)
            rank.alloc(2 * max((parameter.numel for parameter in self.trained), default=0), "buffers")
            return
        rank.alloc(4 * self.share, "optimizer")
        rank.free(copied)
        rank.briefly(4 * self.share, "temporary")

    def _phase(self, before: str, event: Event) -> None:
        if before == "backward":
            self._end_of_backward()
        if event.part == "load":
            return
        self.rank.events.append(event)
        if event.part == "step":
            self._step()

    def _gradient(self, event: Event) -> None:
        """A gradient is copied into the bucket; a full bucket is reduced first."""
        if not self._room:
            buffers = 2 if self.zero.overlap_comm else 1
            self._room = [self.rank.alloc(2 * self.zero.reduce_bucket_size, "buffers") for _ in range(buffers)]
        elements = self._elements(event.size)
        if self._bucket and sum(self._bucket) + elements > self.zero.reduce_bucket_size:
            self._reduce()
        self._bucket.append(elements)
        if elements > self.zero.reduce_bucket_size:  # too large for the bucket: reduced where it is
            self._reduce()
        self.rank.events.append(event._replace(kind="free"))

    def _elements(self, size: int) -> int:
        """A gradient's elements: of the trained parameter with as many bytes."""
        for parameter in self.trained:
            if parameter.numel * parameter.dtype_bytes == size:
                return parameter.numel
        return size // 2

    def _reduce(self) -> None:
        rank = self.rank
        if len(self._bucket) > 1:
            rank.briefly(2 * sum(self._bucket), "buffers")
        if self.job.offload_optimizer is not None:
            for elements in self._bucket:
                if elements in self._mine:
                    rank.briefly(8 * elements, "temporary")
                    rank.briefly(4 * elements, "temporary")
        elif self._kept is None:
            self._kept = rank.alloc(2 * sum(self.mine), "gradients")
        self._bucket.clear()

    def _end_of_backward(self) -> None:
        if self._bucket:
            self._reduce()
        for buffer in self._room:
            self.rank.free(buffer)
        self._room = []
        if self._summed is None:
            self._summed, self._kept = self._kept, None
        elif self._kept is not None:  # added to what the micro steps before left
            self.rank.free(self._kept)
            self._kept = None

    def _step(self) -> None:
        rank = self.rank
        if self.job.offload_optimizer is not None:
            return
        for elements in self.mine:
            rank.briefly(8 * elements, "temporary")
        flat = rank.alloc(2 * self.share, "temporary")
        gradient = rank.alloc(4 * self.share, "gradients")
        rank.free(flat)
        rank.free(self._summed)
        self._summed = None
        if not self._stated:
            rank.alloc(4 * self.share, "optimizer")
            rank.alloc(4 * self.share, "optimizer")
            self._stated = True
        if self.job.steps_by_foreach:
            rank.briefly(4 * self.share, "temporary")
        rank.free(gradient)
