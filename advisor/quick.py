"""A quick look: each strategy's leanest job by formula, without search or replay. For machines that are only compared.

Device maps are left out: accelerate's planner would cost more than all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from advisor.decide.rules import Tree
from advisor.decide.types import Candidate
from advisor.deciding import choose, methods
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies import limits
from advisor.strategies.defaults import filled
from advisor.strategies.estimate import estimate
from advisor.strategies.reasons import hopeless
from advisor.strategies.registry import STRATEGIES
from advisor.strategies.verdict import judge


def first_fit(model: ModelSpec, machine: HardwareProfile, workload: Workload, tree: Tree) -> Candidate | None:
    """What the rules choose among the leanest jobs; with method auto, of the first method that fits. None if none."""
    for method in methods(workload):
        asked = replace(workload, method=method) if method else workload
        found = tuple(candidates(model, machine, asked, hopeless_too=False))
        _, chosen = choose(tree, machine, asked, model, found, method or "")
        if chosen is not None:
            return chosen
    return None


def candidates(
    model: ModelSpec, machine: HardwareProfile, workload: Workload, *, hopeless_too: bool = True
) -> Iterator[Candidate]:
    """Every strategy's leanest jobs with a verdict by formula; refused ones are left out.

    Without ``hopeless_too``, neither is traced what holds more than a card at all times.
    """
    for strategy in STRATEGIES.values():
        if strategy.name == "device_map" or strategy.refuses(model, machine, workload) is not None:
            continue
        for job in strategy.jobs(model, machine, workload):
            if not hopeless_too and hopeless(model, machine, job):
                continue
            if limits.objection(model, machine, filled(workload, machine), job) is None:
                yield from _judged(model, machine, job)


def _judged(model: ModelSpec, machine: HardwareProfile, job: Job) -> Iterator[Candidate]:
    strategy = STRATEGIES[job.strategy]
    settled = strategy.settle(model, machine, job)
    if isinstance(settled, str):
        return
    budget = estimate(model, machine, settled)
    judged = judge(model, machine, settled, budget)
    yield Candidate(
        strategy=settled.strategy, method=settled.method, verdict=judged.verdict, reason=judged.reason, job=settled,
        budget=budget, time=strategy.time(model, machine, settled), shortfall=judged.shortfall,
        headroom=judged.headroom,
    )  # fmt: skip
