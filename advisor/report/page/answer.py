"""What a page shows: one answer, read from a plan's file or taken from the advice that was just given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.curves import Curve
from advisor.hardware.profile import HardwareProfile
from advisor.job import Workload
from advisor.plan import Plan, PlannedCandidate, TraceStep

if TYPE_CHECKING:
    from advisor.advise import Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The decision with everything that was looked at. ``plan`` is None where nothing fits."""

    model: str
    model_type: str
    parameters: int | None
    layers: int
    gated: bool
    machine: HardwareProfile
    workload: Workload | None
    sentence: str
    trace: tuple[TraceStep, ...]
    candidates: tuple[PlannedCandidate, ...]
    given_up: tuple[str, ...]
    why_not: tuple[tuple[str, str], ...]
    changes: tuple[str, ...]
    ways_out: tuple[str, ...]
    notes: tuple[str, ...]
    plan: Plan | None
    curves: tuple[Curve, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether there is something to run."""
        return self.plan is not None


def of_plan(plan: Plan, curves: tuple[Curve, ...] = ()) -> Answer:
    """The answer that a plan keeps. ``curves`` are computed beside it: a plan holds decisions, not drawings."""
    from advisor.planning import spec_of

    model = spec_of(plan)
    return Answer(
        model=model.name,
        model_type=str(model.config.get("model_type", "")),
        parameters=model.parameters,
        layers=model.layers,
        gated=model.gated,
        machine=plan.hardware,
        workload=plan.workload,
        sentence=plan.sentence,
        trace=plan.trace,
        candidates=plan.candidates,
        given_up=plan.given_up,
        why_not=plan.why_not,
        changes=plan.changes,
        ways_out=(),
        notes=plan.hardware.notes,
        plan=plan,
        curves=curves,
    )


def of_advice(advice: Advice, curves: tuple[Curve, ...] = ()) -> Answer:
    """The answer as it was just given; the plan's own words where there is a plan, so that both roads show the same."""
    from advisor.planning import planned, trace_of

    decision = advice.decision
    if advice.plan is not None:
        notes = (*advice.model.notes, *advice.machine.notes)
        return replace(of_plan(advice.plan, curves), notes=notes)
    return Answer(
        model=advice.model.name,
        model_type=advice.model.model_type,
        parameters=advice.model.parameters,
        layers=advice.model.layers,
        gated=advice.model.gated,
        machine=advice.machine,
        workload=advice.workload,
        sentence=decision.sentence,
        trace=tuple(trace_of(step) for step in decision.path),
        candidates=tuple(planned(candidate, chosen=False) for candidate in decision.candidates),
        given_up=decision.given_up,
        why_not=decision.why_not,
        changes=decision.changes,
        ways_out=decision.ways_out,
        notes=(*advice.model.notes, *advice.machine.notes),
        plan=None,
    )
