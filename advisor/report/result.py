"""The answer as JSON: the documented, stable form that ``--json`` prints and other tools read.

Amounts are bytes, times seconds. ``advisor schema result`` prints its JSON Schema; fields are added, never renamed,
within a version.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from advisor import __version__
from advisor.decide.types import Candidate, Decision
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, Workload
from advisor.models.spec import ModelSpec

if TYPE_CHECKING:
    from advisor.advise import Advice
    from advisor.strategies.defaults import Default


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True)


class ModelResult(_Data):
    """The model that was found."""

    name: str
    loader_repo: str
    source: str
    parameters: int | None
    active_parameters: int | None
    model_type: str
    layers: int
    dtype: str
    gated: bool
    notes: tuple[str, ...]


class TimeResult(_Data):
    """Predicted times; ``error`` is the stated relative error."""

    load_seconds: float | None
    step_seconds: float | None
    prefill_seconds: float | None
    decode_tokens_per_second: float | None
    tokens_per_second: float | None
    error: float | None
    parts: dict[str, float]


class CandidateResult(_Data):
    """One strategy and method at its best settings.

    ``gpu_peak`` is what each GPU needs for the run to survive, runtime bytes included; ``gpu_parts`` splits the fullest
    GPU's need: its live bytes at that moment, "allocator" (held beyond live tensors) and "runtime".
    """

    strategy: str
    method: str | None
    settings: dict[str, Any]
    fits: bool
    verdict: Literal["fits", "tight", "does_not_fit", "refused"]
    reason: str
    gpu_peak: tuple[int, ...]
    gpu_allocated: tuple[int, ...]
    gpu_reserved: tuple[int, ...]
    gpu_parts: dict[str, int]
    host_ram: int | None
    host_ram_load: int | None
    disk: int | None
    peak_phase: str | None
    phases: dict[str, int]
    headroom: float | None
    shortfall: int
    time: TimeResult | None


class StepResult(_Data):
    """One node of the path through the rule tree."""

    code: str
    ask: str
    answer: bool
    to: str
    because: str
    conditions: tuple[dict[str, Any], ...]


class DecisionResult(_Data):
    """The decision. ``strategy`` is None when nothing fits; ``missing_bytes`` and ``ways_out`` say what would help."""

    strategy: str | None
    method: str | None
    fits: bool
    sentence: str
    path: tuple[StepResult, ...]
    settings: dict[str, Any]
    given_up: tuple[str, ...]
    why_not: dict[str, str]
    changes: tuple[str, ...]
    ways_out: tuple[str, ...]
    missing_bytes: int


class DefaultResult(_Data):
    """A value that was not asked for: what it became, and why."""

    name: str
    value: str
    why: str


class Recommendation(_Data):
    """What ``advisor recommend --json`` prints."""

    format: Literal["advisor-recommendation"] = "advisor-recommendation"
    version: Literal[1] = 1
    advisor_version: str = __version__
    model: ModelResult
    hardware: dict[str, Any]
    workload: dict[str, Any]
    defaults: tuple[DefaultResult, ...]
    decision: DecisionResult
    candidates: tuple[CandidateResult, ...]
    plan: str | None  # where the plan was written


def settings_of(job: Job | None) -> dict[str, Any]:
    """A job's settings as plain values, without what stands beside them (task, strategy, method)."""
    if job is None:
        return {}
    return {name: value for name, value in asdict(job).items() if name not in ("task", "strategy", "method")}


def parts_of(candidate: Candidate) -> dict[str, int]:
    """The fullest GPU's needed bytes split: live parts, the allocator's slack and the runtime; they sum to its need."""
    if candidate.budget is None or not candidate.budget.gpus:
        return {}
    gpu = candidate.budget.fullest
    parts: dict[str, int] = {name: amount for name, amount in gpu.parts.items() if amount}
    slack = gpu.required - sum(parts.values())
    if slack > 0:
        parts["allocator"] = slack
    parts["runtime"] = gpu.runtime
    return parts


def candidate_result(candidate: Candidate) -> CandidateResult:
    """One candidate as data."""
    budget, time = candidate.budget, candidate.time
    gpus = budget.gpus if budget else ()
    return CandidateResult(
        strategy=candidate.strategy,
        method=candidate.method,
        settings=settings_of(candidate.job),
        fits=candidate.fits,
        verdict=candidate.verdict,
        reason=candidate.reason,
        gpu_peak=tuple(gpu.needed for gpu in gpus),
        gpu_allocated=tuple(gpu.allocated for gpu in gpus),
        gpu_reserved=tuple(gpu.reserved for gpu in gpus),
        gpu_parts=parts_of(candidate),
        host_ram=budget.host_ram if budget else None,
        host_ram_load=budget.host_ram_load if budget else None,
        disk=budget.disk if budget else None,
        peak_phase=budget.peak_phase if budget else None,
        phases=dict(budget.phases) if budget else {},
        headroom=candidate.headroom,
        shortfall=candidate.shortfall,
        time=None
        if time is None
        else TimeResult(
            load_seconds=time.load_seconds,
            step_seconds=time.step_seconds,
            prefill_seconds=time.prefill_seconds,
            decode_tokens_per_second=time.decode_tokens_per_second,
            tokens_per_second=time.tokens_per_second,
            error=time.error,
            parts=dict(time.parts),
        ),
    )


def _decision_result(decision: Decision) -> DecisionResult:
    chosen = decision.chosen
    return DecisionResult(
        strategy=chosen.strategy if chosen else None,
        method=chosen.method if chosen else None,
        fits=chosen is not None and chosen.fits,
        sentence=decision.sentence,
        path=tuple(
            StepResult(
                code=step.code,
                ask=step.ask,
                answer=step.answer,
                to=step.to,
                because=step.because,
                conditions=tuple({"text": c.text, "holds": c.holds, "values": dict(c.values)} for c in step.conditions),
            )
            for step in decision.path
        ),
        settings=settings_of(chosen.job if chosen else None),
        given_up=decision.given_up,
        why_not=dict(decision.why_not),
        changes=decision.changes,
        ways_out=decision.ways_out,
        missing_bytes=decision.missing_bytes,
    )


def _model_result(model: ModelSpec, parameters: int | None) -> ModelResult:
    return ModelResult(
        name=model.name,
        loader_repo=model.loader_repo,
        source=model.source,
        parameters=model.parameters or parameters,
        active_parameters=model.active_parameters,
        model_type=model.model_type,
        layers=model.layers,
        dtype=model.dtype,
        gated=model.gated,
        notes=model.notes,
    )


def _machine(machine: HardwareProfile) -> dict[str, Any]:
    return machine.model_dump(mode="json", exclude={"sources"}, exclude_none=True)


def _workload(workload: Workload) -> dict[str, Any]:
    return asdict(workload)


def taken(advice: Advice) -> tuple[Default, ...]:
    """The values that the user left open, as they were filled in."""
    from advisor.strategies.defaults import listed

    return listed(advice.model, advice.machine, advice.workload)


def recommendation(advice: Advice, plan: str | None) -> Recommendation:
    """The whole answer as data; ``plan`` is the path of the written plan."""
    return Recommendation(
        model=_model_result(advice.model, None),
        hardware=_machine(advice.machine),
        workload=_workload(advice.workload),
        defaults=tuple(DefaultResult(**asdict(default)) for default in taken(advice)),
        decision=_decision_result(advice.decision),
        candidates=tuple(candidate_result(candidate) for candidate in advice.decision.candidates),
        plan=plan,
    )
