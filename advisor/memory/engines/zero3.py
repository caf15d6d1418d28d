"""DeepSpeed ZeRO-3: states, gathered parameters, gradients and the step laid over the traced step.

After DeepSpeed 0.19.8, runtime/zero/stage3.py, partition_parameters.py and comm/coalesced_collectives.py, and held against
memory histories (measurements/streams.json). With S a rank's share of the trained elements and sub groups s of about
``sub_group_size`` elements of it:

- load: a whole parameter and its partition at a time (zero.Init); then the trained partitions are moved into one buffer, by
  way of the host, with the cache emptied in between;
- states: fp32 master weights a sub group (each made twice, the first gone when the next is there), a reduce bucket and
  16-bit gradients 2S, unless the optimizer is offloaded; Adam's states come with the first step;
- gradients go into the bucket at once; a full bucket is laid out anew by ranks, on a stream of its own, and, under offload,
  every partition of it is taken to fp64 for its norm and to fp32 for the host;
- the step, a sub group at a time: gradients flattened, in fp32, and torch's foreach AdamW makes as much again.
"""

from __future__ import annotations

from collections import deque

from advisor.job import Job
from advisor.memory.engines.coordinator import Coordinator, Shard
from advisor.memory.engines.rank import Rank
from advisor.memory.optimizer import decays
from advisor.memory.timeline import Event, Parameter, Timeline

REDUCE_STREAM = 2
# Reductions that DeepSpeed lets be under way before the host waits (max_param_reduce_events). Under offload each copies its
# partitions to the host meanwhile, so that the gradients of as many buckets can still be waiting to be read. A lone rank has
# nothing to send, and its copies keep up.
_REDUCTIONS = 2
_NORM_CHUNK = 250_000_000  # elements that a norm takes to fp64 at a time


class Zero3:
    """The events of one rank."""

    def __init__(self, line: Timeline, job: Job) -> None:
        self.line, self.job, self.zero, self.world = line, job, job.zero, job.world_size
        self.rank = Rank()
        self.shards = tuple(self._shard(parameter) for parameter in line.parameters)
        self.coordinator = Coordinator(self.rank, self.shards, line.modules, self.world, self.zero)
        self.share = self.coordinator.partition
        self.trained = [number for number, shard in enumerate(self.shards) if shard.trainable]
        self.groups = self._sub_groups()
        self._bucket: list[int] = []
        self._late: list[Event] = []  # gradients that the reducing stream has yet to copy
        self._copied: deque[list[Event]] = deque()
        self._waiting: list[Event] = []  # gradients too large for the bucket, until they are reduced
        self._stated = False

    def events(self) -> tuple[Event, ...]:
        """Load, then the steps (or the generation) of the timeline with the engine's buffers."""
        self._load()
        if self.job.trains:
            self._states()
        owned = set(range(1, len(self.shards) + 1))  # the builder numbers weights by parameter
        before, out = "load", self.rank.events
        fresh: Event | None = None  # a gradient whose hook has yet to run: once what it was summed from is gone
        for event in self.line.events:
            if fresh is not None and event.kind not in ("free", "op"):
                self._gradient(fresh)
                fresh = None
            if event.kind == "phase":
                self._phase(before, event)
                before = event.part
            elif event.kind in ("enter", "exit"):
                move = self.coordinator.enter if event.kind == "enter" else self.coordinator.exit
                move(event.part, backward=bool(event.key))
            elif event.part == "gradients" and event.kind == "alloc":
                owned.add(event.key)
                out.append(event)
                fresh = event
            elif event.kind in ("alloc", "free") and event.key in owned:
                continue
            else:
                out.append(event)
        return tuple(out)

    def _shard(self, parameter: Parameter) -> Shard:
        packed = parameter.storage_bytes != parameter.numel * parameter.dtype_bytes or parameter.dtype_bytes == 1
        width = 2 if packed else parameter.dtype_bytes
        elements = parameter.storage_bytes // width
        away = self.job.offload_param is not None and elements > self.zero.param_persistence_threshold
        return Shard(elements, width, parameter.trainable, away)

    def _sub_groups(self) -> list[list[int]]:
        """Trained parameters in sub groups, of each of the optimizer's parameter groups by itself."""
        sets = [self.trained]
        if self.job.zero_optimizer == "client":  # the Trainer's own optimizer: with weight decay, and without
            names = [parameter.name for parameter in self.line.parameters]
            sets = [[n for n in self.trained if decays(names[n])], [n for n in self.trained if not decays(names[n])]]
        groups: list[list[int]] = []
        for members in sets:
            group: list[int] = []
            for number in members:
                group.append(number)
                if sum(map(self.share, group)) >= self.zero.sub_group_size:
                    groups.append(group)
                    group = []
            if group:
                groups.append(group)
        return groups

    def _load(self) -> None:
        rank, kept = self.rank, {}
        rank.phase("load")
        # Without zero.Init the engine first puts the whole model on the card (DeepSpeedEngine._configure_distributed_model).
        made = (
            [] if self.job.zero_init else [rank.alloc(shard.elements * shard.width, "weights") for shard in self.shards]
        )
        for number, shard in enumerate(self.shards):
            whole = made[number] if made else rank.alloc(shard.elements * shard.width, "weights")
            mine = rank.alloc(self.share(number) * shard.width, "weights")  # an offloaded one leaves by way of the card
            rank.free(whole)
            if shard.away:
                rank.free(mine)
            else:
                kept[number] = mine
        if not self.job.trains:
            return
        flat = 0
        for number in self.trained:
            flat += self.share(number) * self.shards[number].width
            rank.free(kept.pop(number, None))
        rank.phase("empty_cache")
        if self.job.offload_param is None:
            rank.alloc(flat, "weights")
        else:
            for number in self.trained:
                if not self.shards[number].away:
                    rank.alloc(self.share(number) * self.shards[number].width, "weights")

    def _elements(self, group: list[int]) -> int:
        return sum(map(self.share, group))

    def _states(self) -> None:
        rank, trained = self.rank, self._elements(self.trained)
        if self.job.offload_optimizer is None:
            made: Event | None = None
            for group in self.groups:
                size = 4 * self._elements(group)
                if any(self.shards[number].width < 4 for number in group):
                    made, gone = rank.alloc(size, "optimizer"), made
                    rank.free(gone)
                rank.alloc(size, "optimizer")
            rank.free(made)
            rank.briefly(max((4 * self._elements(group) for group in self.groups), default=0), "temporary")
        rank.alloc(2 * self.zero.reduce_bucket_size, "buffers")
        if self.job.offload_optimizer is None:
            rank.alloc(2 * trained, "gradients")
        for number in self.trained:  # gathered once each, to put the gradient's hook on
            if self.world > 1:
                rank.briefly(self.share(number) * self.world * self.shards[number].width, "buffers")

    def _phase(self, before: str, event: Event) -> None:
        if before == "backward":
            self._reduce()
            self.coordinator.leftovers()
        if event.part == "load":
            return
        self.rank.events.append(event)
        if event.part == "step":
            self._step()
        elif event.part in ("forward", "prefill", "decode"):
            self.coordinator.reset()

    def _gradient(self, event: Event) -> None:
        """A gradient goes into the bucket and is given back; a full bucket is reduced first."""
        elements = event.size // self._width(event.size)
        filled = sum(self._bucket)
        if filled and filled + elements > self.zero.reduce_bucket_size:
            self._reduce()
        self._bucket.append(elements)
        if elements > self.zero.reduce_bucket_size:
            self._waiting.append(event)
        elif self.job.offload_optimizer is None:
            self.rank.events.append(event._replace(kind="free"))
        else:
            self.rank.events.append(event._replace(kind="drop"))
            self._late.append(event)

    def _width(self, size: int) -> int:
        """Bytes an element of a gradient: those of the trained parameter with as many bytes."""
        for number in self.trained:
            if self.shards[number].elements * self.shards[number].width == size:
                return self.shards[number].width
        return 2

    def _reduce(self) -> None:
        if not self._bucket:
            return
        rank, shares = self.rank, [-(-elements // self.world) for elements in self._bucket]
        alone = len(shares) == 1 and self._bucket[0] % self.world == 0
        flat = None if alone else rank.alloc(2 * self.world * sum(shares), "buffers", REDUCE_STREAM)
        if self.job.offload_optimizer is not None:
            for share in shares:
                mine = rank.alloc(2 * share, "temporary", REDUCE_STREAM)
                rank.briefly(8 * min(share, _NORM_CHUNK), "temporary", REDUCE_STREAM)
                rank.briefly(4 * share, "temporary", REDUCE_STREAM)
                rank.free(mine)
        rank.free(flat)
        self._copied.append(self._late)
        self._late = []
        while len(self._copied) > (_REDUCTIONS if self.world > 1 else 0):
            self._settle()
        for event in self._waiting:
            rank.events.append(event._replace(kind="free"))
        self._bucket.clear()
        self._waiting.clear()

    def _settle(self) -> None:
        for event in self._copied.popleft():
            self.rank.events.append(event._replace(kind="free"))

    def _step(self) -> None:
        rank = self.rank
        while self._copied:
            self._settle()
        self.coordinator.release_all()
        if self.job.offload_optimizer is None:
            for number in self.trained:
                rank.briefly(8 * self.share(number), "temporary")
            for group in self.groups:
                elements = self._elements(group)
                flat = rank.alloc(2 * elements, "temporary")
                gradient = rank.alloc(4 * elements, "gradients")
                rank.free(flat)
                if not self._stated:
                    rank.alloc(4 * elements, "optimizer")
                    rank.alloc(4 * elements, "optimizer")
                if self.job.steps_by_foreach:
                    rank.briefly(4 * elements, "temporary")
                rank.free(gradient)
            self._stated = True
        self.coordinator.gather_persistent()
