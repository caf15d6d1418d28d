"""plan.json: the decision as a file. Versioned, validated, and data only: reading one runs nothing.

The engine's files (DeepSpeed json, accelerate yaml, device map) stand inside it; ``apply`` writes them beside the plan
when an engine wants a path.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor import __version__
from advisor.errors import InputError, explain_validation
from advisor.files import read_json, write_whole
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, Method, StrategyName, Workload

PLAN_FORMAT = "advisor-plan"
PLAN_VERSION = 1


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanModel(_Data):
    """The model as planned. ``config`` is its config.json content, so a plan runs (rehearses) without a download."""

    name: str
    loader_repo: str
    kind: Literal["causal", "seq2seq", "masked"]
    config: dict[str, Any]
    parameters: int | None = None
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    quantization_config: dict[str, Any] | None = None
    checkpoint_bytes: int | None = None
    path: str | None = None
    source: Literal["local", "catalogue", "cache", "hub"]
    trust_remote_code: bool = False
    gated: bool = False


class PlanLaunch(_Data):
    """How the job is started. ``argv`` is a list, never a shell line; "{script}" stands for the script and its args."""

    launcher: Literal["python", "torchrun", "accelerate", "deepspeed"]
    argv: tuple[str, ...]
    environment: dict[str, str] = Field(default_factory=dict)


class PromisedGpu(_Data):
    """Predicted bytes of one GPU."""

    parts: dict[str, int]
    allocated: int
    reserved: int
    required: int
    runtime: int
    load_allocated: int


class Promise(_Data):
    """What the plan predicts, to be held against what happens. Bytes and seconds."""

    gpus: tuple[PromisedGpu, ...]
    host_ram: int
    host_ram_load: int
    host_pinned: int = 0
    disk: int = 0
    peak_phase: str = ""
    load_seconds: float | None = None
    step_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_tokens_per_second: float | None = None
    tokens_per_second: float | None = None
    time_error: float | None = None


class PlanStep(_Data):
    """One phase of a plan: most have one; staged work has "train", "convert" and "serve"."""

    name: str
    job: Job
    launch: PlanLaunch
    deepspeed: dict[str, Any] | None = None
    accelerate: dict[str, Any] | None = None
    device_map: dict[str, int | str] | None = None
    max_memory: dict[str, str] | None = None
    offload_folder: str | None = None
    estimators: dict[str, Any] = Field(default_factory=dict)
    advice: tuple[str, ...] = ()
    promise: Promise


class TraceStep(_Data):
    """One question on the way to the decision; ``conditions`` are their texts with the values that were seen."""

    code: str
    ask: str
    answer: bool
    to: str
    conditions: tuple[str, ...]
    because: str = ""


class PlannedGpus(PromisedGpu):
    """``count`` GPUs in device order that are predicted alike."""

    count: int


class PlannedCandidate(_Data):
    """One way that was looked at: its verdict and its figures, so that a report needs no second search."""

    label: str
    strategy: StrategyName
    method: Method | None = None
    verdict: Literal["fits", "tight", "does_not_fit", "refused"]
    reason: str
    chosen: bool = False
    gpus: tuple[PlannedGpus, ...] = ()
    host_ram: int | None = None
    step_seconds: float | None = None
    decode_tokens_per_second: float | None = None
    tokens_per_second: float | None = None
    time_error: float | None = None


class Plan(_Data):
    """A whole plan."""

    format: Literal["advisor-plan"] = "advisor-plan"
    version: Literal[1] = 1
    advisor_version: str = __version__
    created: str  # ISO time
    model: PlanModel
    hardware: HardwareProfile
    workload: Workload | None = None  # what was asked
    sentence: str  # the decision in one sentence
    path: tuple[str, ...]  # codes of the nodes walked
    trace: tuple[TraceStep, ...] = ()  # the same with questions and values, for ``advisor explain``
    candidates: tuple[PlannedCandidate, ...] = ()
    given_up: tuple[str, ...] = ()  # methods that were given up on the way, and why
    changes: tuple[str, ...] = ()  # what would change the answer
    why_not: tuple[tuple[str, str], ...] = ()  # candidate label, reason
    steps: tuple[PlanStep, ...]
    fallbacks: tuple[PlanStep, ...] = ()  # the next best candidates that fit, in order
    software: dict[str, str] = Field(default_factory=dict)  # versions the plan was made with
    handover: dict[str, Any] | None = None  # staged work: what the conversion needs

    @property
    def main(self) -> PlanStep:
        """The first phase."""
        return self.steps[0]


def read_plan(path: Path) -> Plan:
    """Read and validate a plan. Raises InputError for anything that is no plan, or one of a newer version."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != PLAN_FORMAT:
        raise InputError(str(path), "is not an advisor plan", expected=f'an object with "format": "{PLAN_FORMAT}"')
    version = value.get("version")
    if isinstance(version, int) and version > PLAN_VERSION:
        raise InputError(
            str(path),
            "was written by a newer advisor",
            field="version",
            found=version,
            expected=f"at most {PLAN_VERSION}; upgrade advisor or write the plan again",
        )
    try:
        return Plan.model_validate(value)
    except ValidationError as error:
        raise explain_validation(str(path), error) from error


def check_writable(path: Path) -> None:
    """Raise InputError unless a plan may be written to ``path``: a folder that can be written to, no foreign file."""
    if path.is_dir():
        raise InputError(str(path), "is a folder", expected="the name of a file to write")
    if path.exists():
        try:
            old = read_json(path)
        except InputError:
            old = None
        if not isinstance(old, dict) or old.get("format") != PLAN_FORMAT:
            raise InputError(str(path), "exists and is no advisor plan, so it is left alone", expected="another --out")
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(str(path), "cannot be written", expected="a writable folder")


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan whole. Never over a file that is no plan: raises InputError instead."""
    check_writable(path)
    write_whole(path, plan.model_dump_json(indent=2, exclude_none=True) + "\n")
