"""From candidates to a decision: facts, the walk through the rules, and a reason for every candidate that lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.decide.facts import best_by_way, build, show, speed_of, way_of
from advisor.decide.rules import Tree, load_tree
from advisor.decide.types import Candidate, Decision
from advisor.decide.walk import Walk, describe, turning_point, walk
from advisor.hardware.profile import HardwareProfile
from advisor.job import Method, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies.registry import STRATEGIES
from advisor.strategies.search import candidates as search
from advisor.strategies.search import exact
from advisor.units import format_bytes

METHODS: tuple[Method, ...] = ("full", "lora", "qlora")


@dataclass(frozen=True, slots=True)
class _Pick:
    """What one method came to: its candidates (the chosen one replayed), the walk, and the choice if any."""

    found: tuple[Candidate, ...]
    taken: Walk
    chosen: Candidate | None
    forced: bool = False


def decide(model: ModelSpec, machine: HardwareProfile, workload: Workload, rules_dir: Path | None = None) -> Decision:
    """Search and walk: for inference once, for fine-tuning method by method until one fits.

    Methods after the first that fits are not looked at. Raises InputError for a config or rules that do not hold.
    """
    tree = load_tree(workload.task, rules_dir)
    seen: list[Candidate] = []
    given_up: list[str] = []
    picks: list[_Pick] = []
    for method in methods(workload):
        asked = replace(workload, method=method) if method else workload
        pick = _pick(tree, model, machine, asked, method)
        picks.append(pick)
        seen = _joined(seen, pick.found, open_method=workload.method == "auto")
        if pick.chosen is not None:
            return _decided(pick, tuple(seen), machine, workload, tuple(given_up))
        if method is not None and machine.gpus:
            given_up.append(_given_up(method, pick.found))
    return _nothing(picks, tuple(seen), machine, tuple(given_up))


def methods(workload: Workload) -> tuple[Method | None, ...]:
    """The methods to look at in turn; one None for inference."""
    if workload.task == "inference":
        return (None,)
    return METHODS if workload.method == "auto" else (workload.method,)


def choose(
    tree: Tree, machine: HardwareProfile, workload: Workload, model: ModelSpec, found: Sequence[Candidate], method: str
) -> tuple[Walk, Candidate | None]:
    """One walk over candidates of one method, and the candidate that its leaf names; never one that does not fit."""
    taken = walk(tree, build(found, machine, workload, model, method))
    return taken, best_by_way(found).get(taken.leaf)


def _pick(tree: Tree, model: ModelSpec, machine: HardwareProfile, workload: Workload, method: Method | None) -> _Pick:
    """The choice for one method. What is chosen is replayed; one that then does not fit after all loses its place."""
    found = list(search(model, machine, replace(workload, strategy=None)))
    taken, free = _settled(tree, model, machine, workload, method, found)
    if workload.strategy is None:
        return _Pick(tuple(found), taken, free)
    # A forced strategy may be tuned further (leaner optimizers), so it is searched on its own.
    own = list(search(model, machine, workload))
    forced_walk, chosen = _settled(tree, model, machine, workload, method, own)
    if chosen is None:
        fitting = [candidate for candidate in own if candidate.fits]
        chosen = max(fitting, key=lambda candidate: speed_of(candidate) or 0.0, default=None)
    others = [candidate for candidate in found if candidate.strategy != workload.strategy]
    return _Pick((*own, *others), taken if free is not None else forced_walk, chosen, forced=True)


def _settled(
    tree: Tree, model: ModelSpec, machine: HardwareProfile, workload: Workload, method: Method | None,
    found: list[Candidate],
) -> tuple[Walk, Candidate | None]:  # fmt: skip
    """Walk until the chosen candidate holds when its memory is replayed. Replaces it in ``found``; each ends a round."""
    for _ in range(len(found) + 1):
        taken, chosen = choose(tree, machine, workload, model, found, method or "")
        if chosen is None:
            return taken, None
        replayed = exact(chosen, model, machine)
        found[next(index for index, candidate in enumerate(found) if candidate is chosen)] = replayed
        if replayed.fits:
            return taken, replayed
    raise AssertionError("every round takes a candidate away")


def _joined(seen: list[Candidate], found: tuple[Candidate, ...], *, open_method: bool) -> list[Candidate]:
    """Candidates of several methods; a strategy that is refused whatever the method stands there once."""
    refused = {(candidate.strategy, candidate.reason) for candidate in seen if candidate.job is None}
    joined = list(seen)
    for candidate in found:
        if candidate.job is None:
            if (candidate.strategy, candidate.reason) in refused:
                continue
            joined.append(replace(candidate, method=None) if open_method else candidate)
        else:
            joined.append(candidate)
    return joined


def _decided(
    pick: _Pick, found: tuple[Candidate, ...], machine: HardwareProfile, workload: Workload, given_up: tuple[str, ...]
) -> Decision:
    chosen, taken = pick.chosen, pick.taken
    assert chosen is not None
    return Decision(
        chosen=chosen,
        path=taken.path,
        candidates=found,
        sentence=_sentence(chosen, machine) + _as_asked(pick, workload),
        given_up=given_up,
        why_not=tuple((other.label, why_not(other, chosen, taken)) for other in found if other is not chosen),
    )


def _sentence(chosen: Candidate, machine: HardwareProfile) -> str:
    """What to do, where, and its two numbers."""
    job, budget = chosen.job, chosen.budget
    assert job is not None and budget is not None
    does = {"full": "Fine-tune all weights", "lora": "Fine-tune by LoRA", "qlora": "Fine-tune by QLoRA"}
    verb = does[job.method] if job.trains and job.method else "Generate"
    stored = f" from {job.quantization} weights" if job.quantization and not job.trains else ""
    places = " and ".join(
        f"{what} on {'host RAM' if place == 'cpu' else 'NVMe'}"
        for what, place in (("optimizer", job.offload_optimizer), ("parameters", job.offload_param))
        if place
    )
    moved = f", {places}" if places else ""
    if not places and way_of(chosen) in ("device_map_cpu", "device_map_disk"):
        moved = ", the rest in host RAM" + (" and on disk" if way_of(chosen).endswith("disk") else "")
    if job.trains and job.strategy == "device_map":
        moved += ", a naive pipeline in which one GPU works at a time"
    where = f"{job.gpus} of {machine.gpu_count}" if job.gpus != machine.gpu_count else f"{job.gpus}"
    cards = f"{where} GPU{'s' if machine.gpu_count != 1 else ''}"
    need = format_bytes(budget.fullest.needed) if budget.gpus else "no memory"
    card = max(machine.capacities, default=0)
    close = ", close to the limit" if chosen.verdict == "tight" else ""
    pace = f", {chosen.time.words}" if chosen.time is not None else ""
    what = STRATEGIES[chosen.strategy].title.split(" (")[0]
    return (
        f"{verb}{stored} with {chosen.strategy} ({what}{moved}) on {cards} of "
        f"{machine.name}: {need} of {format_bytes(card)} a GPU{close}{pace}."
    )


def _as_asked(pick: _Pick, workload: Workload) -> str:
    text = f" Method {workload.method} as asked." if workload.method != "auto" else ""
    if not pick.forced:
        return text
    said = pick.taken.leaf
    if said == way_of(pick.chosen) if pick.chosen else False:
        return f"{text} Strategy {workload.strategy} as asked; the rules choose it, too."
    node = pick.taken.path[-1].code
    return f"{text} Strategy {workload.strategy} as asked; the rules would have chosen {said} ({node})."


def why_not(candidate: Candidate, chosen: Candidate, taken: Walk) -> str:
    """A candidate that does not fit says so itself; one that fits lost where the walk turned away from it."""
    if not candidate.fits:
        return candidate.reason
    if candidate.method != chosen.method:
        return f"fits, but {chosen.method} fits as well and comes first; {candidate.reason}"
    turn = turning_point(taken, way_of(candidate))
    compared = _compared(candidate, chosen)
    if turn is None:
        return f"{compared}; the rules have no way to it from here" if compared else candidate.reason
    return "; ".join(part for part in (compared, describe(turn)) if part)


def _compared(candidate: Candidate, chosen: Candidate) -> str:
    """Both speeds, and whether they differ by more than they may be wrong."""
    one, other = speed_of(candidate), speed_of(chosen)
    if one is None or other is None:
        return ""
    error = max((t.error for t in (candidate.time, chosen.time) if t is not None and t.error is not None), default=0.0)
    text = f"{show(f'{way_of(candidate)}.speed', one)} against {show(f'{way_of(chosen)}.speed', other)}"
    if max(one, other) <= (1 + error) * min(one, other):
        return f"{text}, within the {error:.0%} that the estimates may be wrong by, so the simpler one is preferred"
    return text


def _given_up(method: Method, found: Sequence[Candidate]) -> str:
    near = nearest(found)
    return f"{method}: {near[0].label} comes nearest: {near[0].reason}" if near else f"{method}: no way to do it here"


def nearest(found: Sequence[Candidate]) -> list[Candidate]:
    """What does not fit for lack of memory, the smallest lack first; those without a budget can only guess theirs."""
    lacking = [candidate for candidate in found if candidate.verdict == "does_not_fit" and candidate.shortfall > 0]
    return sorted(lacking, key=lambda candidate: (candidate.budget is None, candidate.shortfall))


def _nothing(
    picks: list[_Pick], found: tuple[Candidate, ...], machine: HardwareProfile, given_up: tuple[str, ...]
) -> Decision:
    near = nearest(found)
    missing = near[0].shortfall if near else 0
    if not machine.gpus:
        name = machine.name[:1].upper() + machine.name[1:]
        sentence = f"{name} has no GPU, so nothing runs on it; below are machines that would do."
    elif near:
        sentence = (
            f"Nothing fits on {machine.name}: {near[0].label} comes nearest and is short of {format_bytes(missing)}."
        )
    else:
        sentence = f"Nothing can be done on {machine.name}: every strategy is refused for another reason than memory."
    return Decision(
        chosen=None,
        path=picks[-1].taken.path,
        candidates=found,
        sentence=sentence,
        given_up=given_up,
        why_not=tuple((candidate.label, candidate.reason) for candidate in found),
        missing_bytes=missing,
    )
