"""From facts to a leaf, with the trace; and back from a leaf to the answer that led elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.decide.facts import Value
from advisor.decide.rules import Tree
from advisor.decide.types import Condition, Step


@dataclass(frozen=True, slots=True)
class Walk:
    """One walk through a tree: the steps and the leaf (a way, or "none")."""

    tree: Tree
    path: tuple[Step, ...]
    leaf: str


def walk(tree: Tree, facts: Mapping[str, Value]) -> Walk:
    """Answer questions from the root until a leaf. A checked tree has no cycle, so this ends."""
    path: list[Step] = []
    target = tree.root.code
    while target in tree.nodes:
        node = tree.nodes[target]
        conditions = tuple(condition.evaluate(facts) for condition in node.when)
        answer = all(condition.holds for condition in conditions)
        target = node.to(answer)
        path.append(
            Step(
                code=node.code, ask=node.ask, answer=answer, to=target, because=node.because, conditions=conditions
            )
        )  # fmt: skip
    return Walk(tree, tuple(path), target)


def turning_point(taken: Walk, leaf: str) -> Step | None:
    """The last step of the walk from which ``leaf`` could still be reached: there the answer led elsewhere.

    None when the walk ended at ``leaf``, or when the tree has no such leaf.
    """
    if taken.leaf == leaf:
        return None
    open_steps = [step for step in taken.path if taken.tree.reaches(step.code, leaf)]
    return open_steps[-1] if open_steps else None


def shown(condition: Condition) -> str:
    """The values that a condition saw."""
    return ", ".join(f"{name} = {value}" for name, value in condition.values)


def describe(step: Step) -> str:
    """A step as a clause: the answer; for a no, the conditions that failed with their values."""
    asked = f"{step.code} asked “{step.ask}”"
    if step.answer:
        return f"{asked}: yes, which comes first"
    seen = "; ".join(
        condition.text if condition.values == ((condition.text, "yes"),) else f"{condition.text} ({shown(condition)})"
        for condition in step.conditions
        if not condition.holds
    )
    return f"{asked}: no, {seen} does not hold"
