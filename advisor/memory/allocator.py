"""torch's CUDA caching allocator, replayed: what it reserves for a timeline, and whether a run survives a limit.

After c10/cuda/CUDACachingAllocator.cpp (torch 2.11). Sizes are rounded to 512 bytes. Requests up to 1 MiB come from the
small pool (segments of 2 MiB), larger ones from the large pool: segments of 20 MiB for requests under 10 MiB, else the
request rounded up to 2 MiB. The best fitting free block is split when what remains is worth it (512 B in the small pool,
over 1 MiB in the large). When the device refuses, free segments are given back and it is asked again. Expandable segments
are one range of addresses a pool that grows by pages (2 MiB small, 20 MiB large) and can give pages back anywhere. Every
CUDA stream has pools of its own: what one freed, another cannot use before it was given back to the device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sortedcontainers import SortedList

from advisor.memory.timeline import Event

ROUND = 512
SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
MIN_LARGE = 10 << 20
ROUND_LARGE = 2 << 20


class _Block:
    __slots__ = ("address", "before", "free", "mapped", "next", "pool", "size")

    def __init__(self, pool: _Pool, address: int, size: int) -> None:
        self.pool, self.address, self.size = pool, address, size
        self.before: _Block | None = None
        self.next: _Block | None = None
        self.free = True
        self.mapped = True


class _Pool:
    """Free blocks by (size, address)."""

    __slots__ = ("blocks", "end", "page", "small")

    def __init__(self, small: bool) -> None:
        self.small = small
        self.page = SMALL_SEGMENT if small else LARGE_SEGMENT
        self.blocks: SortedList = SortedList(key=lambda block: (block.size, block.address))
        self.end: _Block | None = None  # expandable: the last block of the range


class ReplayedOutOfMemoryError(Exception):
    """The replayed run ran out under its limit."""


@dataclass
class Replay:
    """What a replay saw, in bytes. ``survived`` is False when the limit was hit; then the figures end there."""

    allocated: int = 0
    reserved: int = 0
    survived: bool = True
    phase: str = ""
    parts: dict[str, int] = field(default_factory=dict)
    phases: dict[str, int] = field(default_factory=dict)
    load_allocated: int = 0
    load_reserved: int = 0


class Allocator:
    """The allocator of one device. ``limit`` bounds the reserved bytes; None for no bound."""

    def __init__(self, *, expandable: bool, limit: int | None = None) -> None:
        self.expandable, self.limit = expandable, limit
        self.reserved = self.allocated = self.peak_reserved = self.peak_allocated = 0
        self._pools: dict[tuple[bool, int], _Pool] = {}  # by (small, stream)
        self._dropped: dict[int, _Block] = {}  # given back, but still to be read by another stream
        self._address = 0

    def allocate(self, size: int, stream: int = 0) -> _Block:
        """A block of at least ``size`` bytes. Raises ReplayedOutOfMemoryError at the limit."""
        size = max(ROUND, -(-size // ROUND) * ROUND)
        kind = (size <= SMALL, stream)
        pool = self._pools.get(kind)
        if pool is None:
            pool = self._pools[kind] = _Pool(size <= SMALL)
        block = self._best(pool, size) or self._grow(pool, size)
        if block is None:
            for key in list(self._dropped):  # the device is waited for first
                self.complete(key)
            self._release()
            block = self._best(pool, size) or self._grow(pool, size)
            if block is None:
                raise ReplayedOutOfMemoryError
        block.free = False
        self._split(block, size)
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def drop(self, key: int, block: _Block) -> None:
        """A block's tensor is gone, but its bytes are still to be read: they count no more, and cannot be used yet."""
        self.allocated -= block.size
        self._dropped[key] = block

    def complete(self, key: int) -> None:
        """What was dropped under ``key`` has been read; nothing, when the device was waited for in the meantime."""
        block = self._dropped.pop(key, None)
        if block is not None:
            self.allocated += block.size
            self.free(block)

    def free(self, block: _Block) -> None:
        """Give a block back to its pool, merged with its free neighbours."""
        self.allocated -= block.size
        block.free = True
        for other in (block.before, block.next):
            if other is not None and other.free and other.mapped:
                other.pool.blocks.remove(other)
                block = self._merge(block, other)
        block.pool.blocks.add(block)

    def empty_cache(self) -> None:
        """torch.cuda.empty_cache()."""
        self._release()

    def _best(self, pool: _Pool, size: int) -> _Block | None:
        blocks = pool.blocks
        at = blocks.bisect_key_left((size, -1))
        if at == len(blocks):
            return None
        block: _Block = blocks.pop(at)
        return block

    def _take(self, amount: int) -> bool:
        if self.limit is not None and self.reserved + amount > self.limit:
            return False
        self.reserved += amount
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def _grow(self, pool: _Pool, size: int) -> _Block | None:
        if self.expandable:
            return self._map(pool, size)
        if size <= SMALL:
            amount = SMALL_SEGMENT
        elif size < MIN_LARGE:
            amount = LARGE_SEGMENT
        else:
            amount = -(-size // ROUND_LARGE) * ROUND_LARGE
        if not self._take(amount):
            return None
        self._address += amount + (1 << 30)  # never adjacent to another segment
        return _Block(pool, self._address, amount)

    def _map(self, pool: _Pool, size: int) -> _Block | None:
        """Map pages: into the first hole that is large enough with its free neighbours, else at the end."""
        hole = self._hole(pool, size)
        if hole is not None:
            return self._fill(hole, size)
        end = pool.end
        spare = end.size if end is not None and end.free and end.mapped else 0
        amount = -(-(size - spare) // pool.page) * pool.page
        if not self._take(amount):
            return None
        start = end.address + end.size if end is not None else 0
        block = _Block(pool, start, amount)
        block.before = end
        if end is not None:
            end.next = block
        pool.end = block
        if spare and end is not None:
            pool.blocks.remove(end)
            block = self._merge(block, end)
        return block

    def _hole(self, pool: _Pool, size: int) -> _Block | None:
        block, best = pool.end, None
        while block is not None:
            if not block.mapped:
                room = block.size
                for other in (block.before, block.next):
                    if other is not None and other.free and other.mapped:
                        room += other.size
                if room >= size:
                    best = block
            block = block.before
        return best

    def _fill(self, hole: _Block, size: int) -> _Block | None:
        before = hole.before
        spare = before.size if before is not None and before.free and before.mapped else 0
        amount = min(hole.size, -(-max(0, size - spare) // hole.pool.page) * hole.pool.page)
        if not self._take(amount):
            return None
        if amount < hole.size:
            rest = _Block(hole.pool, hole.address + amount, hole.size - amount)
            rest.mapped = False
            self._link(hole, rest)
            hole.size = amount
        hole.mapped = True
        block = hole
        for other in (hole.before, hole.next):
            if other is not None and other.free and other.mapped:
                other.pool.blocks.remove(other)
                block = self._merge(block, other)
        if block.size < size:  # the page rounding fell short of the neighbour's room
            block.pool.blocks.add(block)
            return self._map(block.pool, size)
        return block

    def _link(self, block: _Block, after: _Block) -> None:
        after.before, after.next = block, block.next
        if block.next is not None:
            block.next.before = after
        block.next = after
        if block.pool.end is block:
            block.pool.end = after

    def _split(self, block: _Block, size: int) -> None:
        rest = block.size - size
        if rest >= ROUND if block.pool.small else rest > SMALL:
            piece = _Block(block.pool, block.address + size, rest)
            block.size = size
            self._link(block, piece)
            block.pool.blocks.add(piece)

    def _merge(self, block: _Block, other: _Block) -> _Block:
        """One block of two neighbours; the one in front stays."""
        front, back = (other, block) if other.address < block.address else (block, other)
        front.size += back.size
        front.next = back.next
        if back.next is not None:
            back.next.before = front
        if back.pool.end is back:
            back.pool.end = front
        front.free, front.mapped = True, True
        return front

    def _release(self) -> None:
        """Give back what is wholly free: segments, or whole pages of an expandable range."""
        for pool in self._pools.values():
            for block in list(pool.blocks):
                if self.expandable:
                    self._unmap(block)
                elif block.before is None and block.next is None:
                    pool.blocks.remove(block)
                    self.reserved -= block.size

    def _unmap(self, block: _Block) -> None:
        page = block.pool.page
        start = -(-block.address // page) * page
        end = (block.address + block.size) // page * page
        if end <= start:
            return
        block.pool.blocks.remove(block)
        tail = block.address + block.size - end
        head = start - block.address
        hole = block
        if head:
            hole = _Block(block.pool, start, end - start)
            block.size = head
            self._link(block, hole)
            block.pool.blocks.add(block)
        hole.size = end - start
        hole.mapped = False
        self.reserved -= hole.size
        if tail:
            rest = _Block(block.pool, end, tail)
            self._link(hole, rest)
            rest.pool.blocks.add(rest)


def replay(events: Iterable[Event], *, expandable: bool, limit: int | None = None) -> Replay:
    """Run a timeline through the allocator."""
    allocator = Allocator(expandable=expandable, limit=limit)
    blocks: dict[int, tuple[_Block, str]] = {}
    alive: dict[str, int] = {}
    seen, phase = Replay(), "load"
    peak = 0
    phase_peak: dict[str, int] = {}
    for event in events:
        kind = event.kind
        if kind == "alloc":
            try:
                block = allocator.allocate(event.size, event.stream)
            except ReplayedOutOfMemoryError:
                seen.survived = False
                break
            blocks[event.key] = (block, event.part)
            alive[event.part] = alive.get(event.part, 0) + block.size
            if allocator.allocated > phase_peak.get(phase, 0):
                phase_peak[phase] = allocator.allocated
                if allocator.allocated > peak:
                    peak, seen.phase = allocator.allocated, phase
                    seen.parts = dict(alive)
        elif kind == "drop":
            block, part = blocks.pop(event.key)
            alive[part] -= block.size
            allocator.drop(event.key, block)
        elif kind == "free":
            if event.key not in blocks:
                allocator.complete(event.key)
                continue
            block, part = blocks.pop(event.key)
            alive[part] -= block.size
            allocator.free(block)
        elif kind == "phase":
            if event.part == "empty_cache":
                allocator.empty_cache()
                continue
            if phase == "load":
                seen.load_reserved = allocator.peak_reserved
            phase = event.part
    seen.allocated, seen.reserved = allocator.peak_allocated, allocator.peak_reserved
    seen.phases = phase_peak
    seen.load_allocated = phase_peak.get("load", 0)
    return seen


def required_capacity(events: tuple[Event, ...], free: Replay, *, expandable: bool, tolerance: float = 0.002) -> int:
    """The limit on the allocator (bytes) from which on the timeline survives, to a fraction of ``tolerance``.

    ``free`` is its replay without a limit.

    A larger limit can hurt: a tight one makes the allocator give segments back early, a looser one lets them be cut up
    first. So limits are tried downward from what is reserved without one, and the first that fails ends the search.
    """
    memory = tuple(event for event in events if event.kind in ("alloc", "drop", "free", "phase"))
    low, high = free.allocated, free.reserved
    stride = max(1, int(0.01 * low))
    failed: int | None = None
    while high > low:
        tried = max(low, high - stride)
        if not replay(memory, expandable=expandable, limit=tried).survived:
            failed = tried
            break
        high = tried
    while failed is not None and high - failed > tolerance * high:
        middle = (failed + high) // 2
        if replay(memory, expandable=expandable, limit=middle).survived:
            high = middle
        else:
            failed = middle
    return high
