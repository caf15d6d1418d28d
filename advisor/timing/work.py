"""Seconds of a traced phase on the device, by roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.memory.trace.types import Segment, Trace
from advisor.timing.rates import FP32_TILE, Rates


@dataclass(slots=True)
class PhaseWork:
    """All operators of one phase, summed by label (operators of one label are alike in FLOPs a byte)."""

    sums: dict[str, tuple[float, float]] = field(default_factory=dict)  # label -> FLOPs, bytes
    operators: float = 0

    def add(self, label: str, flops: float, moved: float, times: float) -> None:
        """Count one operator, ``times`` times."""
        before = self.sums.get(label, (0.0, 0.0))
        self.sums[label] = (before[0] + flops * times, before[1] + moved * times)
        self.operators += times


def phases(trace: Trace) -> Mapping[str, PhaseWork]:
    """The work of each phase of the whole model: of the last micro-step, of the mean decoded token."""
    found: dict[str, PhaseWork] = {}
    last: dict[str, int] = {}
    for segment in trace.segments:
        last[segment.phase] = max(last.get(segment.phase, 0), segment.step)
    for segment, operators in zip(trace.segments, trace.operators, strict=True):
        # Two decoded tokens are traced, at the first and the last length; everything grows linearly between them.
        if segment.phase == "decode":
            times = 1 / (last["decode"] + 1)
        else:
            times = float(segment.step == last[segment.phase])
        work = found.setdefault(segment.phase, PhaseWork())
        for operator in operators:
            work.add(operator.label, operator.flops, operator.moved, times * _copies(segment, trace))
    return found


def _copies(segment: Segment, trace: Trace) -> int:
    """How often a segment of the cut model stands in the whole one."""
    for stack in trace.stacks:
        if stack.name == segment.stack and stack.head <= segment.layer < stack.head + stack.period:
            return stack.copies
    return 1


def _tile_waste(intensity: int) -> float:
    """How much more an fp32 product computes than it needs, by the binary logarithm of its FLOPs a byte.

    With one thin side of r the intensity is about r / 2. A vector (r below 4) has kernels of its own.
    """
    thin = 2.0 ** (intensity + 1)
    return max(1.0, FP32_TILE / thin) if thin >= 4 else 1.0


def device_seconds(work: PhaseWork, rates: Rates) -> tuple[float, float] | None:
    """(seconds bound by arithmetic, seconds bound by traffic) on one card that does all of it.

    Each label takes the longer of its arithmetic at the matrix rate and its traffic. None where a rate is unknown.
    """
    if rates.memory is None:
        return None
    compute = traffic = 0.0
    for label, (flops, moved) in work.sums.items():
        _, dtype, intensity = label.split(":")
        by_traffic = moved / rates.memory
        by_compute = 0.0
        if flops:
            rate = rates.matrix.get(dtype) or rates.matrix["fp32"]
            if rate is None:
                return None
            by_compute = flops * (_tile_waste(int(intensity)) if dtype == "fp32" else 1.0) / rate
        if by_compute > by_traffic:
            compute += by_compute
        else:
            traffic += by_traffic
    return compute, traffic
