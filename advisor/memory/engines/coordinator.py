"""Which parameters ZeRO-3 has gathered at each moment of a step, and where it puts them.

After DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py and partition_parameters.py. The first pass over the
model records the order of its modules; from the second on, what comes next is fetched ahead, up to ``prefetch_bucket_size``
elements, and what is used again within ``max_reuse_distance`` elements of the recorded order is kept. All of it happens on a
stream of its own, whose pool of memory the rest of the step cannot use. A single parameter is gathered where it stays; several
at once go through a flat buffer, which lives until the last of them was asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.job import ZeroTuning
from advisor.memory.engines.rank import Rank
from advisor.memory.timeline import Event

GATHER_STREAM = 1


@dataclass(frozen=True, slots=True)
class Shard:
    """One parameter under ZeRO-3: its elements, bytes an element, and whether its partition lies off the card."""

    elements: int
    width: int
    trainable: bool
    away: bool


@dataclass(eq=False)
class _Handle:
    """One gather in flight: its flat buffers, and the parameters that nobody asked for yet."""

    params: tuple[int, ...]
    flat: list[Event | None] = field(default_factory=list)
    unasked: set[int] = field(default_factory=set)
    done: bool = False


class Coordinator:
    """Follows one rank through its modules."""

    def __init__(
        self,
        rank: Rank,
        shards: tuple[Shard, ...],
        modules: Mapping[str, tuple[int, ...]],
        world: int,
        zero: ZeroTuning,
    ) -> None:
        self.rank, self.shards, self.modules, self.world, self.zero = rank, shards, modules, world, zero
        self._data: dict[int, Event | None] = {}  # gathered parameters
        self._flying: dict[int, _Handle] = {}
        self._leaving: list[Event] = []  # let go of, while kernels of the last module are still to read them
        self._left: list[Event] = []
        self._active: dict[int, set[str]] = {}
        self._backward: dict[str, set[int]] = {}  # modules in their backward -> frozen parameters computed again in it
        self._order: list[str] = []
        self._complete: bool | None = None  # None before the first pass, False while it is recorded
        self._queue: deque[tuple[int, int]] = deque()
        self._last: dict[int, int] = {}
        self._kept: dict[tuple[str, int], frozenset[int]] = {}
        self._step = 0
        self._available = 0

    def reset(self) -> None:
        """A forward pass of the whole model begins."""
        for number, handle in list(self._flying.items()):
            self._wait(handle)
            self._release(number)
            self._drop(number)
        self._complete = self._complete is not None  # the first pass records, every later one follows
        self._queue = deque(
            (number, step) for step, module in enumerate(self._order) for number in sorted(self.modules[module])
        )
        self._last.clear()
        self._step = self._available = 0

    def enter(self, module: str, *, backward: bool) -> None:
        """Gather what ``module`` needs, wait for it, and fetch ahead."""
        self._settle()
        if not self._complete:
            self._order.append(module)
        again = not backward and bool(self._backward)  # computed again inside a backward
        if backward:
            self._backward.setdefault(module, set())
        wanted = self.modules[module]
        self._gather([number for number in wanted if number not in self._data and number not in self._flying])
        for number in wanted:
            self._active.setdefault(number, set()).add(module)
            if again and not self.shards[number].trainable:
                self._backward[next(reversed(self._backward))].add(number)
            handle = self._flying.get(number)
            if handle is not None:
                self._wait(handle)
                self._drop(number)
        if self._complete:
            self._ahead(wanted)
        self._step += 1

    def exit(self, module: str, *, backward: bool) -> None:
        """Let go of what ``module`` had, unless it is used again soon."""
        released = set(self._releasable(module)) if self._complete else set(self.modules[module])
        mine = set(self.modules[module])
        if backward:
            recomputed = self._backward.pop(module, set())
            released |= {number for number in recomputed if not self._persists(number)}
            mine |= recomputed
        for number in sorted(mine):
            self._active.get(number, set()).discard(module)
            if number in released:
                self._release(number)

    def leftovers(self) -> None:
        """The backward is over: modules whose input needed no gradient (the embedding) are let go of now."""
        while self._backward:
            module, recomputed = self._backward.popitem()
            for number in sorted(set(self.modules[module]) | recomputed):
                self._active.get(number, set()).discard(module)
                if not self._persists(number):
                    self._release(number)

    def release_all(self) -> None:
        """Before a step, everything is partitioned again."""
        for number, handle in list(self._flying.items()):
            self._wait(handle)
            self._drop(number)
        self._active.clear()
        for number in list(self._data):
            self._release(number)
        self._settle()
        self._settle()

    def gather_persistent(self) -> None:
        """After a step, small parameters are gathered to stay, on the stream that computes."""
        for number in range(len(self.shards)):
            if self._persists(number) and self.world > 1 and number not in self._data:
                self._data[number] = self.rank.alloc(self._whole(number), "buffers")

    def partition(self, number: int) -> int:
        """Elements of a rank's share."""
        return -(-self.shards[number].elements // self.world)

    def _whole(self, number: int) -> int:
        return self.partition(number) * self.world * self.shards[number].width

    def _persists(self, number: int) -> bool:
        return self.shards[number].elements <= self.zero.param_persistence_threshold

    def _gather(self, numbers: list[int]) -> None:
        if not numbers:
            return
        self._available += sum(self.shards[number].elements for number in numbers)
        handle = _Handle(tuple(sorted(numbers)), unasked=set(numbers))
        if self.world == 1:
            # Nothing to gather: a partition that lies on the card is the parameter.
            for number in handle.params:
                here = (
                    self.rank.alloc(self._whole(number), "buffers", GATHER_STREAM) if self.shards[number].away else None
                )
                self._data[number] = here
            handle.done = True
        elif len(numbers) == 1:
            self._data[numbers[0]] = self.rank.alloc(self._whole(numbers[0]), "buffers", GATHER_STREAM)
            if self.shards[numbers[0]].away:  # what is sent lives until the gather is waited for
                handle.flat.append(self._sent(numbers[0]))
        else:
            for width in sorted({self.shards[number].width for number in numbers}):
                alike = [number for number in handle.params if self.shards[number].width == width]
                flat = sum(self._whole(number) for number in alike)
                handle.flat.append(self.rank.alloc(flat, "buffers", GATHER_STREAM))
                for event in [self._sent(number) for number in alike if self.shards[number].away]:
                    self.rank.free(event)
        for number in numbers:
            self._flying[number] = handle

    def _sent(self, number: int) -> Event | None:
        return self.rank.alloc(self.partition(number) * self.shards[number].width, "buffers", GATHER_STREAM)

    def _wait(self, handle: _Handle) -> None:
        if handle.done:
            return
        handle.done = True
        if len(handle.params) == 1:
            for event in handle.flat:
                self.rank.free(event)
            handle.flat.clear()
            return
        for number in handle.params:  # each becomes a tensor of its own
            shard = self.shards[number]
            self._data[number] = self.rank.alloc(shard.elements * shard.width, "buffers", GATHER_STREAM)

    def _drop(self, number: int) -> None:
        """Take a parameter off a handle; the flat buffer goes with the last."""
        handle = self._flying.pop(number)
        handle.unasked.discard(number)
        if not handle.unasked:
            for event in handle.flat:
                self.rank.free(event)

    def _release(self, number: int) -> None:
        if number in self._data and not self._active.get(number):
            event = self._data.pop(number)
            if event is not None:
                self.rank.events.append(event._replace(kind="drop"))
                self._leaving.append(event)
            self._available -= self.shards[number].elements

    def _settle(self) -> None:
        """The device is a module behind the host."""
        for event in self._left:
            self.rank.free(event)
        self._left, self._leaving = self._leaving, []

    def _ahead(self, wanted: tuple[int, ...]) -> None:
        missing = {number for number in wanted if self._last.get(number, -1) < self._step}
        found: set[int] = set()
        while self._queue and len(found) < len(missing):
            number, step = self._queue.popleft()
            self._last[number] = step
            found.add(number)
        room = min(self.zero.max_live_parameters - self._available, self.zero.prefetch_bucket_size)
        chosen: list[int] = []
        elements = 0
        while self._queue and elements < room:
            number, step = self._queue.popleft()
            self._last[number] = max(self._last.get(number, -1), step)
            if number not in self._data and number not in self._flying and number not in chosen:
                chosen.append(number)
                elements += self.shards[number].elements
        self._gather(chosen)

    def _releasable(self, module: str) -> frozenset[int]:
        """What may go after ``module``: found once for every place in the recorded order."""
        key = (module, self._step)
        if key not in self._kept:
            own = {
                number
                for number in self.modules[module]
                if not self._persists(number) and self._last.get(number, -1) <= self._step
            }
            passed = 0
            for later in self._order[self._step :]:
                if passed >= self.zero.max_reuse_distance or not own:
                    break
                for number in self.modules[later]:
                    own.discard(number)
                    passed += self.shards[number].elements
            self._kept[key] = frozenset(own)
        return self._kept[key]
