"""What the caller of an apply chose beside the plan, and where its progress goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.execute.watch import Peaks

REHEARSAL_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything beside the plan. Times in seconds."""

    rehearse: bool = False
    script: tuple[str, ...] = ()  # the user's own script and its arguments
    launcher: str | None = None  # another launcher than the plan's
    data: Path | None = None
    packed: bool = False
    steps: int | None = None
    epochs: float = 1.0
    learning_rate: float | None = None
    save_every: int | None = None
    resume: Path | None = None
    output: Path = Path("advisor-output")
    prompts: tuple[str, ...] = ()
    interactive: bool = False
    force: bool = False
    fallback: bool = False  # out of GPU memory: take the plan's next way
    time_limit: float | None = None
    stall_limit: float | None = 1800.0
    trust_remote_code: bool = False
    log: Path | None = None
    hostfile: Path | None = None
    node_rank: int | None = None  # of several nodes that are each started by hand or by a batch system
    master_addr: str | None = None
    seed: int = 0
    keep_record: bool = True

    @property
    def optimizer_steps(self) -> int | None:
        """Optimizer steps to take; None: the whole data."""
        return self.steps or (REHEARSAL_STEPS if self.rehearse else None)


@dataclass
class Hooks:
    """Where progress goes: ``on_event`` gets each rank's events, ``on_tick`` the peaks so far, ``on_output`` what a
    user's script prints, ``say`` sentences between runs."""

    on_event: Callable[[dict[str, Any]], None] = field(default=lambda event: None)
    on_tick: Callable[[Peaks, float], None] = field(default=lambda peaks, seconds: None)
    on_output: Callable[[str], None] = field(default=lambda text: None)
    say: Callable[[str], None] = field(default=lambda text: None)
