"""What a strategy is to the rest of the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName, Workload
from advisor.memory.budget import Budget
from advisor.models.spec import ModelSpec
from advisor.timing.estimate import TimeEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a job: the command (argv, with ``{script}`` where the user's script goes) and its environment."""

    launcher: str  # python | torchrun | accelerate | deepspeed
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanParts:
    """What a strategy adds to a plan: engine files by name (JSON or YAML values), the device map, how to launch."""

    launch: Launch
    deepspeed: Mapping[str, Any] | None = None  # DeepSpeed json
    accelerate: Mapping[str, Any] | None = None  # accelerate launch's yaml
    device_map: Mapping[str, int | str] | None = None
    max_memory: Mapping[str, str] | None = None  # GiB strings, as accelerate wants them
    offload_folder: bool = False
    estimators: Mapping[str, Any] = field(
        default_factory=dict
    )  # what the engine's own estimator says, with the gap explained
    steps: tuple[str, ...] = ()  # extra plan steps: communicator warm-up, checkpoint preloading, convert


class Strategy(Protocol):
    """One way to place a model on a machine."""

    name: StrategyName
    title: str

    def refuses(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> str | None:
        """One sentence why this strategy cannot be used here at all; None when it can."""

    def jobs(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterable[Job]:
        """The candidates worth looking at, best first by the strategy's own order."""

    def settle(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> Job | str:
        """``job`` with what follows from its other settings (a device map, bucket sizes), or why there is none.

        The search changes a job's batch, checkpointing or optimizer and then settles it again.
        """

    def budget(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
        """The job's memory on this machine."""

    def time(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> TimeEstimate:
        """The job's speed on this machine."""

    def plan(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> PlanParts:
        """Everything the engine needs to run the job; accelerate's and DeepSpeed's planners are called here."""
