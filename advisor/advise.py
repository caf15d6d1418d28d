"""The one flow: candidates, facts, the rule tree, a decision, what would change it, and its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from advisor.cache import cached, source_digest
from advisor.changes import changes
from advisor.corrections import corrected_by_own_runs
from advisor.decide.rules import load_tree
from advisor.decide.types import Decision
from advisor.deciding import decide
from advisor.hardware.load import profile_paths
from advisor.hardware.profile import HardwareProfile
from advisor.job import Workload
from advisor.models.spec import ModelSpec
from advisor.plan import Plan
from advisor.planning import make_plan
from advisor.staged import with_serving
from advisor.strategies.common import parameter_count
from advisor.ways_out import ways_out


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
    model = replace(model, parameters=parameter_count(model))
    machine = corrected_by_own_runs(machine)
    decision = decide(model, machine, workload, rules_dir)
    plan = None
    if decision.chosen is None:
        decision = replace(decision, ways_out=_kept(ways_out, model, machine, workload, decision, rules_dir))
    else:
        decision = replace(decision, changes=_kept(changes, model, machine, workload, decision, rules_dir))
        plan = make_plan(model, machine, workload, decision)
        if workload.then is not None:
            plan = with_serving(plan, model, machine, workload, rules_dir)
    return Advice(decision=decision, plan=plan, model=model, machine=machine, workload=workload)


def _kept(
    look: Callable[[ModelSpec, HardwareProfile, Workload, Decision, Path | None], tuple[str, ...]],
    model: ModelSpec, machine: HardwareProfile, workload: Workload, decision: Decision, rules_dir: Path | None,
) -> tuple[str, ...]:  # fmt: skip
    """``look``'s sentences, from the disk cache while question, candidates, rules, profiles and code are the same."""
    key = {
        "look": look.__name__,
        "model": [model.name, dict(model.config), model.parameters, model.quantization_config],
        "machine": machine.model_dump(mode="json"),
        "workload": asdict(workload),
        "candidates": repr(decision.candidates),
        "rules": [repr(node) for node in load_tree(workload.task, rules_dir).nodes.values()],
        "profiles": [path.read_text(encoding="utf-8") for path in profile_paths().values()],
        "code": source_digest(
            "changes", "ways_out", "grown", "quick", "deciding", "decide", "strategies", "memory", "timing"
        ),
    }
    found = cached("changes", key, lambda: list(look(model, machine, workload, decision, rules_dir)))
    return tuple(found)
