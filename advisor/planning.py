"""A decision as a plan: engine files, device map, launch, what is promised, and what to fall back to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from advisor.cache import version_of
from advisor.decide.facts import speed_of
from advisor.decide.types import Candidate, Decision, Step
from advisor.decide.walk import shown
from advisor.hardware.profile import HardwareProfile
from advisor.job import Workload
from advisor.memory.budget import GpuBudget
from advisor.models.spec import ModelSpec
from advisor.plan import (
    Plan,
    PlanLaunch,
    PlanModel,
    PlannedCandidate,
    PlannedGpus,
    PlanStep,
    Promise,
    PromisedGpu,
    TraceStep,
)
from advisor.strategies.registry import STRATEGIES
from advisor.strategies.search import exact, near_limit

FALLBACKS = 2
_PACKAGES = ("torch", "transformers", "accelerate", "deepspeed", "peft", "bitsandbytes")


def make_plan(model: ModelSpec, machine: HardwareProfile, workload: Workload, decision: Decision) -> Plan:
    """The plan of a decision: the chosen candidate's step, and the next best that fit as fallbacks."""
    chosen = decision.chosen
    assert chosen is not None
    return Plan(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=PlanModel(
            name=model.name,
            loader_repo=model.loader_repo,
            kind=model.kind,
            config=dict(model.config),
            parameters=model.parameters,
            dtype=model.dtype,
            quantization_config=dict(model.quantization_config) if model.quantization_config else None,
            checkpoint_bytes=model.checkpoint_bytes,
            path=str(model.path) if model.path else None,
            source=model.source,
            trust_remote_code=model.trust_remote_code,
            gated=model.gated,
        ),
        hardware=machine,
        workload=workload,
        sentence=decision.sentence,
        path=tuple(step.code for step in decision.path),
        trace=tuple(trace_of(step) for step in decision.path),
        candidates=tuple(planned(candidate, candidate is chosen) for candidate in decision.candidates),
        given_up=decision.given_up,
        changes=decision.changes,
        why_not=decision.why_not,
        steps=(step_of(model, machine, chosen),),
        fallbacks=tuple(step_of(model, machine, other) for other in _fallbacks(model, machine, decision)),
        software={name: version for name in _PACKAGES if (version := version_of(name)) is not None},
    )


def spec_of(plan: Plan) -> ModelSpec:
    """The model of a plan, as planned: nothing is looked up again."""
    model = plan.model
    return ModelSpec(
        name=model.name,
        asked=model.name,
        loader_repo=model.loader_repo,
        source=model.source,
        kind=model.kind,
        config=model.config,
        parameters=model.parameters,
        dtype=model.dtype,
        quantization_config=model.quantization_config,
        checkpoint_bytes=model.checkpoint_bytes,
        path=Path(model.path) if model.path else None,
        trust_remote_code=model.trust_remote_code,
        gated=model.gated,
    )


def trace_of(step: Step) -> TraceStep:
    """A step of the path as a plan keeps it."""
    return TraceStep(
        because=step.because,
        code=step.code,
        ask=step.ask,
        answer=step.answer,
        to=step.to,
        conditions=tuple(f"{c.text}: {'yes' if c.holds else 'no'} ({shown(c)})" for c in step.conditions),
    )


def planned(candidate: Candidate, chosen: bool) -> PlannedCandidate:
    """A candidate as a plan keeps it; GPUs that are alike stand there once."""
    budget, time = candidate.budget, candidate.time
    alike = groupby(budget.gpus if budget else ())
    return PlannedCandidate(
        label=candidate.label,
        strategy=candidate.strategy,
        method=candidate.method,
        verdict=candidate.verdict,
        reason=candidate.reason,
        chosen=chosen,
        gpus=tuple(PlannedGpus(count=sum(1 for _ in group), **_gpu(gpu)) for gpu, group in alike),
        host_ram=budget.host_ram if budget else None,
        step_seconds=time.step_seconds if time else None,
        decode_tokens_per_second=time.decode_tokens_per_second if time else None,
        tokens_per_second=time.tokens_per_second if time else None,
        time_error=time.error if time else None,
    )


def _gpu(gpu: GpuBudget) -> dict[str, Any]:
    return {
        "parts": {str(name): size for name, size in gpu.parts.items()},
        "allocated": gpu.allocated,
        "reserved": gpu.reserved,
        "required": gpu.required,
        "runtime": gpu.runtime,
        "load_allocated": gpu.load_allocated,
    }


def _fallbacks(model: ModelSpec, machine: HardwareProfile, decision: Decision) -> Iterator[Candidate]:
    """What to start when the chosen job runs out of memory: the fastest others that need less of a GPU."""
    chosen = decision.chosen
    assert chosen is not None and chosen.budget is not None
    limit = chosen.budget.fullest.needed if chosen.budget.gpus else 0
    others = [c for c in decision.candidates if c.fits and c is not chosen and c.method == chosen.method]
    left = FALLBACKS
    for other in sorted(others, key=lambda candidate: -(speed_of(candidate) or 0.0)):
        if left == 0:
            return
        if other.budget is None or not other.budget.gpus or other.budget.fullest.needed >= limit:
            continue
        assert other.job is not None
        # Far from the cards' limits the formula decides the same, and a replay costs seconds.
        found = exact(other, model, machine) if near_limit(machine, other.job, other.budget) else other
        if found.fits:
            left -= 1
            yield found


def step_of(model: ModelSpec, machine: HardwareProfile, candidate: Candidate) -> PlanStep:
    """One phase of a plan, with everything its engine needs. The candidate must have a job and a budget."""
    job, budget, time = candidate.job, candidate.budget, candidate.time
    assert job is not None and budget is not None
    parts = STRATEGIES[candidate.strategy].plan(model, machine, job)
    if parts.device_map is not None and job.strategy == "device_map":
        job = replace(job, device_map=dict(parts.device_map))
    return PlanStep(
        name="train" if job.trains else "serve",
        job=job,
        launch=PlanLaunch(
            launcher=parts.launch.launcher,  # type: ignore[arg-type]  # pydantic checks it
            argv=parts.launch.argv,
            environment=dict(parts.launch.environment),
        ),
        deepspeed=dict(parts.deepspeed) if parts.deepspeed is not None else None,
        accelerate=dict(parts.accelerate) if parts.accelerate is not None else None,
        device_map=dict(parts.device_map) if parts.device_map is not None else None,
        max_memory=dict(parts.max_memory) if parts.max_memory is not None else None,
        offload_folder="offload" if parts.offload_folder else None,
        estimators=dict(parts.estimators),
        advice=parts.steps,
        promise=Promise(
            gpus=tuple(PromisedGpu(**_gpu(gpu)) for gpu in budget.gpus),
            host_ram=budget.host_ram,
            host_ram_load=budget.host_ram_load,
            host_pinned=budget.host_pinned,
            disk=budget.disk,
            peak_phase=budget.peak_phase,
            load_seconds=time.load_seconds if time else None,
            step_seconds=time.step_seconds if time else None,
            prefill_seconds=time.prefill_seconds if time else None,
            decode_tokens_per_second=time.decode_tokens_per_second if time else None,
            tokens_per_second=time.tokens_per_second if time else None,
            time_error=time.error if time else None,
        ),
    )
