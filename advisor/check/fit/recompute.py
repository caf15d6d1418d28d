"""The fit half: budgets computed again for the target machine, by the code that recommends, and held against it.

The target is the plan's machine or the one that was named, never the machine that the check runs on. Torch is imported
below here, when a budget has to be traced, and nowhere else in a check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.check.fit import drift
from advisor.check.fit.codes import BUDGET_CHANGED, DOES_NOT_FIT, HEADROOM, REFUSED, PlanFile
from advisor.check.types import Doubt, Finding
from advisor.errors import InputError
from advisor.units import format_bytes

if TYPE_CHECKING:
    from advisor.ask import Ask
    from advisor.hardware.profile import HardwareProfile
    from advisor.memory.budget import Budget
    from advisor.models.spec import ModelSpec
    from advisor.plan import Plan, PlanStep

# A budget that differs from the promise by more than this share is drift: the same code with the same versions on the
# same profile gives the same bytes, and less than the memory model's own error decides nothing.
BUDGET_DRIFT = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What the fit half found; ``sentences`` say what was computed, fit or not."""

    findings: tuple[Finding, ...]
    doubts: tuple[Doubt, ...] = ()
    sentences: tuple[str, ...] = ()


def check_plan(file: PlanFile, target: HardwareProfile | None, min_headroom: float | None) -> Fit:
    """Hold a plan against ``target`` (None: the plan's own machine, as its profile is now) and against what it was made with.

    ``min_headroom`` is a share of the card and of host RAM that must stay free. Raises InputError for a file that is no
    plan and for a config that transformers cannot read.
    """
    from advisor.plan import read_plan
    from advisor.planning import spec_of

    plan = read_plan(file.path)
    machine = target if target is not None else drift.renewed(plan.hardware)
    now = drift.model_now(plan)
    changed = [] if isinstance(now, InputError) else list(drift.model(file, plan, now))
    findings = [*drift.software(file, plan, target), *changed, *drift.hardware(file, plan, machine)]
    doubts = tuple(drift.doubts(file, plan, target, now))
    sentences: list[str] = []
    # A model that changed is what would run: its budget is the one that counts.
    model = now if changed and not isinstance(now, InputError) else spec_of(plan)
    for number, step in enumerate(plan.steps):
        line = file.line("promise", number)
        found, sentence = _step(str(file.path), line, plan, step, model, machine, min_headroom)
        findings += found
        sentences += [sentence] if sentence else []
    findings += _hand_over(file, plan, model, machine)
    return Fit(findings=tuple(findings), doubts=doubts, sentences=tuple(sentences))


def check_question(asked: Ask, min_headroom: float | None) -> Fit:
    """Decide from a fresh question and hold the choice against the head-room. The decision is ``recommend``'s own."""
    from advisor.advise import recommend

    advice = recommend(asked.model, asked.machine, asked.workload)
    decision, chosen = advice.decision, advice.decision.chosen
    if chosen is None:
        ways = decision.ways_out[0] if decision.ways_out else None
        return Fit(findings=(DOES_NOT_FIT.finding("", 0, decision.sentence, ways),))
    assert chosen.budget is not None
    found = tuple(_headroom("", 0, chosen.label, chosen.budget, advice.machine, min_headroom))
    return Fit(findings=found, sentences=(decision.sentence,))


def _step(
    path: str,
    line: int,
    plan: Plan,
    step: PlanStep,
    model: ModelSpec,
    machine: HardwareProfile,
    min_headroom: float | None,
) -> tuple[list[Finding], str | None]:
    """One phase of a plan: can it run there, does it fit, with how much to spare, and as it was promised?"""
    from advisor.strategies.registry import STRATEGIES
    from advisor.strategies.verdict import judge

    label = f"{step.name} ({step.job.strategy} on {machine.name})"
    reason = _refusal(step, model, machine)
    if reason is not None:
        return [REFUSED.finding(path, line, f"{label} cannot run: {reason}")], None
    budget = STRATEGIES[step.job.strategy].budget(model, machine, step.job)
    judgement = judge(model, machine, step.job, budget)
    promised = [*_promised(path, line, step, budget, label)] if machine.name == plan.hardware.name else []
    if judgement.verdict == "does_not_fit":
        return [DOES_NOT_FIT.finding(path, line, f"{label} does not fit: {judgement.reason}"), *promised], None
    findings = [*_headroom(path, line, label, budget, machine, min_headroom), *promised]
    spare = f", {judgement.headroom:.0%} of the fullest card free" if judgement.headroom is not None else ""
    return findings, f"{label}: {judgement.reason}{spare}."


def _refusal(step: PlanStep, model: ModelSpec, machine: HardwareProfile) -> str | None:
    """Why this very job cannot run on the machine, whatever the memory."""
    from advisor.job import Workload
    from advisor.strategies import limits
    from advisor.strategies.registry import STRATEGIES

    job = step.job
    each, cards = job.gpus // max(1, job.nodes), len(machine.cards)
    if cards < each or machine.nodes < job.nodes:
        nodes = f" on each of {job.nodes} nodes" if job.nodes > 1 else ""
        there = f" on each of {machine.nodes} nodes" if machine.nodes > 1 else ""
        return f"it uses {each} GPUs{nodes}, {machine.name} has {cards}{there}"
    work = Workload(task=job.task, method=job.method or "auto", quantization=job.quantization)
    return STRATEGIES[job.strategy].refuses(model, machine, work) or limits.objection(model, machine, work, job)


def _headroom(
    path: str, line: int, label: str, budget: Budget, machine: HardwareProfile, min_headroom: float | None
) -> Iterator[Finding]:
    """Cards and host RAM that keep less free than ``min_headroom``."""
    if min_headroom is None:
        return
    cards = [
        (need, room, f"GPU {index}")
        for index, (need, room) in enumerate(zip((gpu.needed for gpu in budget.gpus), machine.capacities, strict=False))
    ]
    host = machine.host.memory_total if machine.host.memory_available is None else machine.host.memory_available
    host_need = max(budget.host_ram, budget.host_ram_load)
    # Alike ranks have alike budgets: the fullest card speaks for all.
    tightest = max(cards, key=lambda card: card[0] / card[1], default=None)
    places = [tightest] if tightest is not None else []
    if host:
        places.append((host_need, host, "host RAM"))
    for need, room, name in places:
        free = (room - need) / room
        if free < min_headroom:
            yield HEADROOM.finding(
                path,
                line,
                f"{label} leaves {free:.1%} of {name} free, less than the {min_headroom:.0%} asked for: needs "
                f"{format_bytes(need)} of {format_bytes(room)}",
            )


def _promised(path: str, line: int, step: PlanStep, budget: Budget, label: str) -> Iterator[Finding]:
    """The fullest card's and the host's bytes, now and as the plan promised."""
    promise = step.promise
    pairs = [("host RAM", max(promise.host_ram, promise.host_ram_load), max(budget.host_ram, budget.host_ram_load))]
    if promise.gpus and budget.gpus:
        pairs.insert(0, ("a GPU", max(gpu.required + gpu.runtime for gpu in promise.gpus), budget.fullest.needed))
    for name, then, now in pairs:
        if then and abs(now - then) > BUDGET_DRIFT * then:
            yield BUDGET_CHANGED.finding(
                path,
                line,
                f"{label} needs {format_bytes(now)} of {name} as computed now, the plan promised {format_bytes(then)} "
                f"({(now - then) / then:+.1%})",
                severity="warning" if now > then else "info",
            )


def _hand_over(file: PlanFile, plan: Plan, model: ModelSpec, machine: HardwareProfile) -> Iterator[Finding]:
    """Staged work: the host RAM and disk that the conversion between two steps takes."""
    from advisor.staged import hand_over

    if plan.handover is None:
        return
    now = hand_over(model, machine, plan.main.job)
    if not now["fits"]:
        text = f"the hand-over from training to serving does not fit on {machine.name}: {now['summary']}"
        yield DOES_NOT_FIT.finding(str(file.path), file.line("handover"), text)
