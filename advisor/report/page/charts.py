"""Lines of memory against a size, as numbers that a template draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.curves import Curve
from advisor.units import GIB, format_bytes

_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 352, 14, 196  # the plot inside a view box of 360 by 236
_TITLES = {"micro_batch_size": "micro batch size, a GPU", "sequence_length": "sequence length, tokens"}


@dataclass(frozen=True, slots=True)
class Dot:
    """A predicted size at its place."""

    x: float
    y: float
    size: int
    needed: int
    text: str
    fits: bool
    now: bool
    anchor: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One curve as a drawing, its card's limit, and where the two meet."""

    title: str
    dots: tuple[Dot, ...]
    line: str
    limit_y: float
    limit: int
    ticks: tuple[tuple[float, str], ...]
    meets: int | None

    @property
    def sentence(self) -> str:
        """What the drawing says."""
        card = format_bytes(self.limit)
        if self.meets is None:
            return f"Within the card's {card} over the whole range drawn."
        if self.meets < self.dots[0].size:
            return f"Over the card's {card} over the whole range drawn."
        most = f"{self.meets:,}" if self.meets < 100 else f"about {float(f'{self.meets:.3g}'):,.0f}"
        return f"Within the card's {card} up to {most}."


def chart(curve: Curve) -> Chart:
    """Lay a curve out from zero bytes to a little over the larger of limit and line."""
    sizes = [size for size, _ in curve.points]
    top = max(curve.limit, max(amount for _, amount in curve.points)) * 1.08
    low, high = min(sizes), max(sizes)

    def x(size: float) -> float:
        return _LEFT + (size - low) / max(high - low, 1) * (_RIGHT - _LEFT)

    def y(amount: float) -> float:
        return _BOTTOM - amount / top * (_BOTTOM - _TOP)

    dots = tuple(
        Dot(
            round(x(size), 1), round(y(amount), 1), size, amount, f"{amount / GIB:.1f}", amount <= curve.limit,
            size == curve.now, "start" if x(size) < _LEFT + 40 else "end" if x(size) > _RIGHT - 40 else "middle",
        )
        for size, amount in curve.points
    )  # fmt: skip
    return Chart(
        title=_TITLES[curve.setting],
        dots=dots,
        line=" ".join(f"{dot.x},{dot.y}" for dot in dots),
        limit_y=round(y(curve.limit), 1),
        limit=curve.limit,
        ticks=tuple((round(y(amount), 1), f"{amount / GIB:g}") for amount in _ticks(top)),
        meets=_meets(curve),
    )


def _ticks(top: float) -> Iterator[float]:
    """About four round amounts of GiB."""
    for step in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000):
        if top / GIB / step <= 5:
            break
    amount = 0.0
    while amount < top / GIB:
        yield amount * GIB
        amount += step


def _meets(curve: Curve) -> int | None:
    """The largest size within the limit, on the line between predicted points; None when all are, 0 when none is."""
    if all(amount > curve.limit for _, amount in curve.points):
        return 0
    for (size, amount), (after, then) in zip(curve.points, curve.points[1:], strict=False):
        if amount <= curve.limit < then:
            return int(size + (curve.limit - amount) / (then - amount) * (after - size))
    return None
