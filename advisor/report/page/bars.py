"""Memory bars: every candidate's GPUs against the card, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.hardware.profile import HardwareProfile
from advisor.plan import PlannedCandidate, PlannedGpus
from advisor.report.page.answer import Answer
from advisor.units import format_bytes

# In drawing order: letter, what it is. The letter carries the meaning where colour does not.
PARTS: dict[str, tuple[str, str]] = {
    "weights": ("W", "the model's parameters as stored"),
    "gradients": ("G", "gradients of what is trained"),
    "optimizer": ("O", "optimizer states and master weights"),
    "activations": ("A", "what the forward pass keeps"),
    "logits": ("L", "scores over the vocabulary"),
    "kv_cache": ("K", "keys and values of earlier tokens"),
    "buffers": ("B", "gather, prefetch and reduce buckets"),
    "temporary": ("T", "what one operator or the step needs only then"),
    "allocator": ("a", "held by torch's allocator beyond live tensors"),
    "runtime": ("R", "outside torch: context, libraries, communicators"),
}
_REST = ("?", "other")


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a bar; ``width`` in percent of the bar."""

    part: str
    letter: str
    width: float
    size: int


@dataclass(frozen=True, slots=True)
class Bar:
    """One GPU, or several alike, of a candidate. Sizes in bytes, positions in percent of the drawn scale."""

    name: str
    segments: tuple[Segment, ...]
    needed: int
    limit: int
    mark: float  # where the card ends
    beyond: bool  # the bar goes on past the drawing

    @property
    def free(self) -> int:
        """Head-room; negative when the card is too small."""
        return self.limit - self.needed

    @property
    def words(self) -> str:
        """Need against limit, and what is left or missing."""
        rest = f"{format_bytes(self.free)} free" if self.free >= 0 else f"{format_bytes(-self.free)} too much"
        share = f" ({abs(self.free) / self.limit:.0%})" if self.limit else ""
        return f"{format_bytes(self.needed)} of {format_bytes(self.limit)}, {rest}{share}"

    @property
    def spoken(self) -> str:
        """The whole bar in words with exact bytes."""
        parts = ", ".join(f"{s.part.replace('_', ' ')} {s.size:,} bytes" for s in self.segments)
        return f"{self.name}: {self.words}. {parts}. Needed {self.needed:,} of {self.limit:,} bytes."


@dataclass(frozen=True, slots=True)
class Row:
    """A candidate with its bars; none when it was refused."""

    candidate: PlannedCandidate
    bars: tuple[Bar, ...]


def rows(answer: Answer) -> tuple[Row, ...]:
    """All candidates on one scale: the chosen one first, then what fits, then the rest."""
    order = {"fits": 1, "tight": 2, "does_not_fit": 3, "refused": 4}
    candidates = sorted(answer.candidates, key=lambda c: 0 if c.chosen else order[c.verdict])
    limit = max(answer.machine.capacities, default=0)
    needs = [needed(gpu) for candidate in candidates for gpu in candidate.gpus]
    # A hopeless candidate must not squeeze the others: bars end at 1.4 times the card.
    scale = max(int(limit * 1.06), min(int(max(needs, default=1) * 1.04), int(limit * 1.4)), 1)
    return tuple(Row(candidate, tuple(_bars(candidate, answer.machine, scale))) for candidate in candidates)


def needed(gpu: PlannedGpus) -> int:
    """The smallest card on which the run survives, runtime included."""
    return gpu.required + gpu.runtime


def _bars(candidate: PlannedCandidate, machine: HardwareProfile, scale: int) -> Iterator[Bar]:
    first = 0
    capacities = machine.capacities
    for gpu in candidate.gpus:
        last = first + gpu.count - 1
        limit = min(capacities[first : last + 1], default=max(capacities, default=0))
        name = f"GPU {first}" if gpu.count == 1 else f"GPU {first} to {last}, each"
        yield Bar(name, tuple(_segments(gpu, scale)), needed(gpu), limit, 100 * limit / scale, needed(gpu) > scale)
        first = last + 1


def parts_of(gpu: PlannedGpus) -> dict[str, int]:
    """The need split: live parts, the allocator's slack and the runtime; they sum to the need."""
    parts = {name: size for name, size in gpu.parts.items() if size > 0}
    slack = gpu.required - sum(parts.values())
    if slack > 0:
        parts["allocator"] = slack
    parts["runtime"] = gpu.runtime
    return parts


def _segments(gpu: PlannedGpus, scale: int) -> Iterator[Segment]:
    left = 100.0
    parts = parts_of(gpu)
    for name in sorted(parts, key=lambda part: list(PARTS).index(part) if part in PARTS else len(PARTS)):
        width = min(100 * parts[name] / scale, left)
        left -= width
        yield Segment(name, PARTS.get(name, _REST)[0], width, parts[name])


def legend(shown: tuple[Row, ...]) -> tuple[tuple[str, str, str], ...]:
    """(part, letter, meaning) of every part that occurs."""
    seen = {segment.part for row in shown for bar in row.bars for segment in bar.segments}
    return tuple((name, letter, text) for name, (letter, text) in PARTS.items() if name in seen)
