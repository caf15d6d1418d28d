"""Candidates and the decision among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.job import Job, Method, StrategyName
from advisor.memory.budget import Budget
from advisor.timing.estimate import TimeEstimate

Verdict = Literal["fits", "tight", "does_not_fit", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One strategy and method at its own best settings on the asked machine.

    ``verdict``: "fits"; "tight" (fits, but inside the stated error of the prediction: said so); "does_not_fit";
    "refused" (the strategy cannot be used here, ``budget`` is None). ``reason`` is one sentence with its numbers.
    ``shortfall`` is how many bytes are missing on the fullest GPU (or in host RAM, see ``reason``); 0 when it fits.
    ``headroom`` is the free fraction of the fullest card.
    """

    strategy: StrategyName
    method: Method | None
    verdict: Verdict
    reason: str
    job: Job | None = None
    budget: Budget | None = None
    time: TimeEstimate | None = None
    shortfall: int = 0
    headroom: float | None = None

    @property
    def fits(self) -> bool:
        """Whether a run would survive."""
        return self.verdict in ("fits", "tight")

    @property
    def label(self) -> str:
        """Name in output: the strategy with what it stores and moves, and its method: "zero3+cpu/full", "single+nf4".

        "+cpu-optimizer" moves the optimizer alone.
        """
        text: str = self.strategy
        job = self.job
        if job is not None:
            if job.quantization and not job.trains:
                text += f"+{job.quantization}"
            if job.offload_param or job.offload_optimizer:
                text += f"+{job.offload_param}" if job.offload_param else f"+{job.offload_optimizer}-optimizer"
            if job.nodes > 1:
                text += f"+{job.nodes}-nodes"
        return f"{text}/{self.method}" if self.method else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a node as it was evaluated: its text, the values it saw, and how it came out."""

    text: str
    holds: bool
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node on the path through the tree."""

    code: str
    ask: str
    answer: bool
    to: str
    because: str
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome: the leaf of the tree, the candidate it names, and how it was reached.

    ``chosen`` is None when nothing fits; then ``ways_out`` holds the nearest changes that would make something fit.
    """

    chosen: Candidate | None
    path: tuple[Step, ...]
    candidates: tuple[Candidate, ...]
    sentence: str
    given_up: tuple[str, ...] = ()  # what --method auto gave up on the way, and why
    why_not: tuple[tuple[str, str], ...] = ()  # candidate label, reason
    changes: tuple[str, ...] = ()  # what would change the answer, computed
    ways_out: tuple[str, ...] = ()
    missing_bytes: int = 0
