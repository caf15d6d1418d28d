"""The decision tree as a drawing: on to the next question downwards, ends to the right, the branch that was taken lit.

"no" goes down and "yes" to the right, unless "no" is an end and "yes" goes on: then they change places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.decide.facts import NONE, WAYS
from advisor.decide.rules import Tree
from advisor.errors import InputError
from advisor.plan import TraceStep

_WIDE, _TALL = 268, 58  # a column and a row, in the drawing's units
_BOX, _HIGH = 84, 28
_LEAF = 132


@dataclass(frozen=True, slots=True)
class Box:
    """A question or an end. ``kind`` is "ask" or "end"; ``words`` say it in full."""

    kind: str
    text: str
    words: str
    x: float
    y: float
    width: float
    lit: bool

    @property
    def height(self) -> float:
        """All boxes are as high."""
        return _HIGH


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from a question to where an answer leads, as an SVG path, with its label's place."""

    path: str
    answer: str
    x: float
    y: float
    lit: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """The whole tree; sizes in the units of the view box."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    name: str


def drawing(task: str, trace: tuple[TraceStep, ...]) -> Drawing | None:
    """The tree of ``task`` with ``trace`` lit; None when the trace was walked through other rules than ours."""
    from advisor.decide.rules import load_tree

    try:
        tree = load_tree(task)
    except InputError:
        return None
    known = all(
        step.code in tree.nodes and tree.nodes[step.code].to(step.answer) == step.to for step in trace
    )  # fmt: skip
    return draw(tree, trace) if known and trace else None


def draw(tree: Tree, trace: tuple[TraceStep, ...] = ()) -> Drawing:
    """The whole of a tree, with what ``trace`` took lit."""
    lit = {(step.code, step.answer) for step in trace}
    places = _places(tree)
    boxes = [
        Box("ask", code, node.ask, *_corner(places[code]), _BOX, any(step.code == code for step in trace))
        for code, node in tree.nodes.items()
    ]
    edges: list[Edge] = []
    for code, node in tree.nodes.items():
        down = _down(tree, code)
        for answer, target in ((True, node.yes), (False, node.no)):
            taken = (code, answer) in lit
            if target in tree.nodes:
                edges.append(_edge(places[code], places[target], answer, answer == down, taken))
            else:
                box, edge = _end(places[code], target, answer, answer == down, taken)
                boxes.append(box)
                edges.append(edge)
    # What is lit is drawn last, over the rest.
    edges.sort(key=lambda edge: edge.lit)
    width = max(box.x + box.width for box in boxes) + 8
    height = max(box.y + box.height for box in boxes) + 8
    return Drawing(width, height, tuple(boxes), tuple(edges), tree.name)


def _down(tree: Tree, code: str) -> bool:
    """The answer whose line goes down."""
    node = tree.nodes[code]
    return node.no not in tree.nodes and node.yes in tree.nodes


def _places(tree: Tree) -> dict[str, tuple[int, int]]:
    """(column, row) of each question: as deep as its longest way, a column further right for each first "yes"."""
    depth: dict[str, int] = {}
    for code in _ordered(tree):
        for target in (tree.nodes[code].yes, tree.nodes[code].no):
            if target in tree.nodes:
                depth[target] = max(depth.get(target, 0), depth.get(code, 0) + 1)
    places: dict[str, tuple[int, int]] = {}
    taken: set[tuple[int, int]] = set()

    def visit(code: str, column: int) -> None:
        if code not in tree.nodes or code in places:
            return
        row, node, down = depth.get(code, 0), tree.nodes[code], _down(tree, code)
        below, aside = (node.yes, node.no) if down else (node.no, node.yes)
        # An end below its question takes a place as a question does.
        own = {row} if below in tree.nodes else {row, row + 1}
        while any((column, line) in taken for line in own):
            column += 1
        places[code] = (column, row)
        taken.update((column, line) for line in own)
        visit(below, column)
        visit(aside, column + 1)

    visit(tree.root.code, 0)
    return places


def _ordered(tree: Tree) -> Iterator[str]:
    """Codes, each after all that lead to it."""
    waits = dict.fromkeys(tree.nodes, 0)
    for node in tree.nodes.values():
        for target in {node.yes, node.no} & set(waits):
            waits[target] += 1
    ready = [code for code, count in waits.items() if count == 0]
    while ready:
        code = ready.pop()
        yield code
        for target in {tree.nodes[code].yes, tree.nodes[code].no} & set(waits):
            waits[target] -= 1
            if waits[target] == 0:
                ready.append(target)


def _corner(place: tuple[int, int]) -> tuple[float, float]:
    return 8 + place[0] * _WIDE, 8 + place[1] * _TALL


def _edge(start: tuple[int, int], end: tuple[int, int], answer: bool, down: bool, lit: bool) -> Edge:
    x0, y0 = _corner(start)
    x1, y1 = _corner(end)
    words = "yes" if answer else "no"
    if not down:
        x0, y0 = x0 + _BOX, y0 + _HIGH / 2
        if x1 > x0:
            x1 += _BOX / 2
            path = f"M{x0},{y0}H{x1 - 8}Q{x1},{y0} {x1},{y0 + 8}V{y1}"
        else:
            path = f"M{x0},{y0}H{x0 + 14}V{y1 + _HIGH / 2}H{x1 + _BOX}"
        return Edge(path, words, x0 + 4, y0 - 4, lit)
    x0, y0, x1 = x0 + _BOX / 2, y0 + _HIGH, x1 + _BOX / 2
    if x1 == x0:
        return Edge(f"M{x0},{y0}V{y1}", words, x0 + 4, y0 + 12, lit)
    bend = y1 - 10
    return Edge(f"M{x0},{y0}V{bend}H{x1}V{y1}", words, x0 + 4, y0 + 12, lit)


def _end(start: tuple[int, int], target: str, answer: bool, down: bool, lit: bool) -> tuple[Box, Edge]:
    x, y = _corner(start)
    meaning = "nothing fits" if target == NONE else WAYS.get(target, target)
    name, words = "nothing fits" if target == NONE else target, "yes" if answer else "no"
    if not down:
        box = Box("end", name, meaning, x + _BOX + 26, y, _LEAF, lit)
        return box, Edge(f"M{x + _BOX},{y + _HIGH / 2}H{x + _BOX + 26}", words, x + _BOX + 3, y + _HIGH / 2 - 4, lit)
    box = Box("end", name, meaning, x + _BOX / 2 - 28, y + _TALL, _LEAF, lit)
    return box, Edge(f"M{x + _BOX / 2},{y + _HIGH}V{y + _TALL}", words, x + _BOX / 2 + 4, y + _HIGH + 12, lit)
