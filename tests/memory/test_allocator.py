"""The allocator by hand: figures that follow from torch's published constants."""

from advisor.memory.allocator import replay, required_capacity
from advisor.memory.timeline import Event

MIB = 1 << 20


def _events(*moves: tuple[str, int, int]) -> tuple[Event, ...]:
    return tuple(Event(kind, key, size, "temporary") for kind, key, size in moves)  # type: ignore[arg-type]


def test_a_byte_takes_512_of_a_segment_of_two_mebibytes() -> None:
    seen = replay(_events(("alloc", 1, 1)), expandable=False)
    assert (seen.allocated, seen.reserved) == (512, 2 * MIB)


def test_requests_under_ten_mebibytes_share_segments_of_twenty() -> None:
    seen = replay(_events(("alloc", 1, 8 * MIB), ("alloc", 2, 8 * MIB), ("alloc", 3, 8 * MIB)), expandable=False)
    assert seen.reserved == 40 * MIB


def test_a_hole_between_live_blocks_is_lost_by_default_and_not_with_expandable_segments() -> None:
    moves = [("alloc", 1, 30 * MIB), ("alloc", 2, 30 * MIB), ("free", 1, 0), ("free", 2, 0), ("alloc", 3, 60 * MIB)]
    assert replay(_events(*moves), expandable=False).reserved == 120 * MIB
    assert replay(_events(*moves), expandable=True).reserved == 60 * MIB


def test_under_pressure_whole_free_segments_are_given_back() -> None:
    events = _events(("alloc", 1, 30 * MIB), ("free", 1, 0), ("alloc", 2, 60 * MIB))
    assert replay(events, expandable=False, limit=60 * MIB).survived
    assert not replay(events, expandable=False, limit=58 * MIB).survived
    assert 60 * MIB <= required_capacity(events, replay(events, expandable=False), expandable=False) <= 61 * MIB
