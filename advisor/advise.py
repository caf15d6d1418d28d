"""The one flow: candidates, facts, the rule tree, a decision and its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from advisor.cache import version_of
from advisor.decide import facts as facts_room
from advisor.decide.rules import load_tree
from advisor.decide.types import Candidate, Decision
from advisor.decide.walk import Walk, describe, turning_point, walk
from advisor.hardware.profile import HardwareProfile
from advisor.job import Method, Workload
from advisor.models.spec import ModelSpec
from advisor.plan import Plan, PlanLaunch, PlanModel, PlanStep, Promise, PromisedGpu
from advisor.strategies.registry import STRATEGIES
from advisor.strategies.search import candidates as search
from advisor.strategies.search import exact
from advisor.units import format_bytes

METHODS: tuple[Method, ...] = ("full", "lora", "qlora")
FALLBACKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The whole answer: the decision, its plan (None when nothing fits), and the question it answers."""

    decision: Decision
    plan: Plan | None
    model: ModelSpec
    machine: HardwareProfile
    workload: Workload


def recommend(model: ModelSpec, machine: HardwareProfile, workload: Workload, rules_dir: Path | None = None) -> Advice:
    """Decide how to do ``workload`` with ``model`` on ``machine``, and plan it.

    ``rules_dir`` lays a folder of rules over ours. Raises InputError for a config or rules that do not hold together.
    """
    found = search(model, machine, workload)
    decision = decide(model, machine, workload, found, rules_dir)
    plan = make_plan(model, machine, decision) if decision.chosen is not None else None
    return Advice(decision=decision, plan=plan, model=model, machine=machine, workload=workload)


def decide(
    model: ModelSpec,
    machine: HardwareProfile,
    workload: Workload,
    found: Sequence[Candidate],
    rules_dir: Path | None = None,
) -> Decision:
    """Walk the task's tree over the candidates; with ``method`` auto, for each method in turn until one fits."""
    tree = load_tree(workload.task, rules_dir)
    methods: tuple[Method | None, ...] = (None,)
    if workload.task == "finetune":
        methods = METHODS if workload.method == "auto" else (workload.method,)
    given_up: list[str] = []
    taken: Walk | None = None
    for method in methods:
        of_method = [candidate for candidate in found if candidate.method == method]
        taken = walk(tree, facts_room.build(of_method, machine, workload, model, method or ""))
        chosen = facts_room.best_by_way(of_method).get(taken.leaf)
        if chosen is None:
            given_up += [_given_up(method, of_method)] if method is not None else []
            chosen = _forced(workload, of_method)
        if chosen is not None:
            chosen_exact = exact(chosen, model, machine)
            if chosen_exact.fits:
                found = [chosen_exact if candidate is chosen else candidate for candidate in found]
                kept = given_up if method != methods[0] else []
                return _decision(chosen_exact, taken, tuple(found), machine, tuple(kept))
            given_up.append(f"{chosen.label}: {chosen_exact.reason}")
    assert taken is not None
    return _nothing(taken, tuple(found), machine, tuple(given_up))


def _forced(workload: Workload, found: Sequence[Candidate]) -> Candidate | None:
    """With --strategy the tree has the last word only on whether anything fits."""
    if workload.strategy is None:
        return None
    fitting = [candidate for candidate in found if candidate.fits]
    return max(fitting, key=lambda candidate: facts_room.speed_of(candidate) or 0.0, default=None)


def _given_up(method: Method, found: Sequence[Candidate]) -> str:
    near = min((c for c in found if c.budget is not None), key=lambda c: c.shortfall, default=None)
    return f"{method}: {near.label} comes nearest: {near.reason}" if near else f"{method}: no strategy can do it here"


def _decision(
    chosen: Candidate, taken: Walk, found: tuple[Candidate, ...], machine: HardwareProfile, given_up: tuple[str, ...]
) -> Decision:
    assert chosen.job is not None
    where = f"{chosen.job.gpus} GPU{'s' if chosen.job.gpus != 1 else ''} of {machine.name}"
    close = ", close to the limit" if chosen.verdict == "tight" else ""
    need = format_bytes(chosen.budget.fullest.needed) if chosen.budget and chosen.budget.gpus else "no GPU memory"
    sentence = f"Use {chosen.label} on {where}: it needs {need} of the fullest card{close}."
    return Decision(
        chosen=chosen,
        path=taken.path,
        candidates=found,
        sentence=sentence,
        given_up=given_up,
        why_not=tuple((other.label, _why_not(other, taken)) for other in found if other is not chosen),
    )


def _why_not(candidate: Candidate, taken: Walk) -> str:
    """A candidate that does not fit says so itself; one that fits lost at the node where the walk turned away."""
    if not candidate.fits:
        return candidate.reason
    turn = turning_point(taken, facts_room.way_of(candidate))
    return describe(turn) if turn is not None else f"fits, and is not the best of its kind: {candidate.reason}"


def _nothing(
    taken: Walk, found: tuple[Candidate, ...], machine: HardwareProfile, given_up: tuple[str, ...]
) -> Decision:
    weighed = [candidate for candidate in found if candidate.budget is not None]
    nearest = sorted(weighed, key=lambda candidate: candidate.shortfall)[:3]
    missing = nearest[0].shortfall if nearest else 0
    if not machine.gpus:
        sentence = f"{machine.name} has no GPU: nothing is planned for it; name a profile with --hardware."
    else:
        sentence = f"Nothing fits on {machine.name}: the nearest way is short of {format_bytes(missing)}."
    return Decision(
        chosen=None,
        path=taken.path,
        candidates=found,
        sentence=sentence,
        given_up=given_up,
        why_not=tuple((candidate.label, candidate.reason) for candidate in found),
        ways_out=tuple(f"{candidate.label} lacks {format_bytes(candidate.shortfall)}" for candidate in nearest),
        missing_bytes=missing,
    )


def make_plan(model: ModelSpec, machine: HardwareProfile, decision: Decision) -> Plan:
    """The plan of a decision: the chosen candidate's step, and the next best that fit as fallbacks."""
    chosen = decision.chosen
    assert chosen is not None
    others = [c for c in decision.candidates if c.fits and c is not chosen and c.method == chosen.method]
    others.sort(key=lambda candidate: -(facts_room.speed_of(candidate) or 0.0))
    packages = ("torch", "transformers", "accelerate", "deepspeed", "peft", "bitsandbytes")
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
        sentence=decision.sentence,
        path=tuple(step.code for step in decision.path),
        steps=(_step(model, machine, chosen),),
        fallbacks=tuple(_step(model, machine, exact(other, model, machine)) for other in others[:FALLBACKS]),
        software={name: version for name in packages if (version := version_of(name)) is not None},
    )


def _step(model: ModelSpec, machine: HardwareProfile, candidate: Candidate) -> PlanStep:
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
            gpus=tuple(
                PromisedGpu(
                    parts={str(name): size for name, size in gpu.parts.items()},
                    allocated=gpu.allocated,
                    reserved=gpu.reserved,
                    required=gpu.required,
                    runtime=gpu.runtime,
                    load_allocated=gpu.load_allocated,
                )
                for gpu in budget.gpus
            ),
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
