"""Rules, facts and plans in words, for ``advisor explain``. Imports nothing that is slow."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.decide.facts import FACTS, NONE, WAYS
from advisor.decide.rules import Node, all_nodes
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.plan import Plan

_WIDTH = 26


def facts_table() -> str:
    """Every declared fact: name, type, unit, meaning."""
    rows = [
        f"{fact.name:<{_WIDTH}} {fact.type:<7} {fact.unit:<9} {fact.doc}".rstrip() for fact in FACTS.values()
    ]  # fmt: skip
    return "\n".join([f"{'fact':<{_WIDTH}} {'type':<7} {'unit':<9} meaning", *rows])


def explain_code(code: str, rules_dir: Path | None = None) -> str:
    """A rule's or lint rule's text. Raises InputError naming the nearest codes for one that is unknown."""
    nodes = all_nodes(rules_dir)
    node = nodes.get(code.upper())
    if node is not None:
        return explain_node(node, nodes)
    if code in WAYS:
        return _explain_way(code, nodes)
    # The lint rules are many small modules: they are read only when the code is none of the tree's.
    from advisor.check.codes import all_rules, explain

    text = explain(code)
    if text is not None:
        return text
    known = [*nodes, *all_rules(), *WAYS]
    near = difflib.get_close_matches(code.upper(), known, n=3, cutoff=0.5) or difflib.get_close_matches(
        code, known, n=3
    )
    raise InputError(
        "explain",
        "is no code",
        found=code,
        expected=f"near: {', '.join(near)}" if near else "a code such as FIN030 or ADV101",
    )


def explain_node(node: Node, nodes: dict[str, Node]) -> str:
    """What a node asks, when it says yes, why, and where both answers lead."""
    lines = [f"{node.code}  {node.ask}", "", "yes when all of these hold:"]
    lines += [f"  {condition.text}" for condition in node.when]
    lines += ["", f"because  {node.because}", ""]
    for answer, target in (("yes", node.yes), ("no", node.no)):
        lines.append(f"{answer:<3} -> {_target(target, nodes)}")
    before = [f"{other.code} ({a})" for other in nodes.values() for a, t in _leads(other) if t == node.code]
    lines += ["", f"asked after  {', '.join(before) if before else 'nothing: it is the root'}", f"from  {node.file}"]
    return "\n".join(lines)


def _leads(node: Node) -> tuple[tuple[str, str], tuple[str, str]]:
    return (("yes", node.yes), ("no", node.no))


def _target(target: str, nodes: dict[str, Node]) -> str:
    if target in nodes:
        return f"{target}  {nodes[target].ask}"
    return "none  nothing fits" if target == NONE else f"{target}  ({WAYS[target]})"


def _explain_way(way: str, nodes: dict[str, Node]) -> str:
    lines = [f"{way}  {WAYS[way]}", "", "chosen at:"]
    ends = [
        f"  {node.code} ({answer})  {node.because}" for node in nodes.values() for answer, t in _leads(node) if t == way
    ]
    return "\n".join([*lines, *(ends or ["  no node of the rules"])])


def explain_plan(path: Path, why_not: str | None, rules_dir: Path | None = None) -> str:
    """A plan's decision with its path, or why it is not ``why_not`` (a strategy or a way such as zero3_cpu).

    The plan's own trace is read, not computed again. Raises InputError for a file that is no plan.
    """
    from advisor.plan import read_plan  # pydantic's models are slow to load, and codes need none

    plan = read_plan(path)
    if why_not is not None:
        return _why_not(plan, why_not)
    lines = [plan.sentence, ""]
    nodes = all_nodes(rules_dir)
    for step in plan.trace:
        lines.append(f"{step.code}  {step.ask} {'yes' if step.answer else 'no'} -> {step.to}")
        lines += [f"        {text}" for text in step.conditions]
        because = step.because or (nodes[step.code].because if step.code in nodes else "")
        lines += [f"        {because}"] if because else []
    return "\n".join(lines)


def _why_not(plan: Plan, asked: str) -> str:
    matching = [(label, reason) for label, reason in plan.why_not if _matches(label, asked)]
    if not matching:
        names = sorted({label.split("/")[0].split("+")[0] for label, _ in plan.why_not})
        if asked == plan.main.job.strategy:
            return f"{asked} is what the plan does: {plan.sentence}"
        raise InputError("--why-not", "is no candidate of the plan", found=asked, expected=f"one of {', '.join(names)}")
    return "\n".join(f"{label}: {reason}" for label, reason in matching)


def _matches(label: str, asked: str) -> bool:
    """Whether a label such as "zero3+cpu/full" is what is asked: the strategy, the whole label, or the way's name."""
    stem, _, method = label.partition("/")
    strategy = stem.split("+")[0]
    way = stem.replace("+cpu-optimizer", "_cpu").replace("+", "_")
    return asked in (label, stem, strategy, way, f"{strategy}/{method}")
