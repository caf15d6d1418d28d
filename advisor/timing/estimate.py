"""The result of the time model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEstimate:
    """Seconds and rates of one job; None where a needed rate of the machine is unknown.

    ``step_seconds`` is one optimizer step (all accumulation micro-steps). ``tokens_per_second`` counts over all GPUs:
    trained tokens, or generated ones end to end (prefill included). ``error`` is the stated relative error (0.2 = 20%).
    ``parts`` splits the step or the token into compute, memory, launch, communication, offload, in seconds.
    """

    load_seconds: float | None = None
    step_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_tokens_per_second: float | None = None
    tokens_per_second: float | None = None
    error: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
