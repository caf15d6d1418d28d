"""The result of the time model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.units import format_seconds


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

    @property
    def words(self) -> str:
        """The speed in a few words with its error: "0.34 s/step ±25%"; "speed unknown" where a rate is."""
        margin = f" ±{self.error:.0%}" if self.error else ""
        if self.step_seconds is not None:
            return f"{format_seconds(self.step_seconds)}/step{margin}"
        if self.decode_tokens_per_second is not None:
            return f"{self.decode_tokens_per_second:.3g} tok/s{margin}"
        return "speed unknown"
