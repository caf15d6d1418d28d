"""Values with their place in a file, whatever the file is written in. What cannot be told is `UNKNOWN`.

A container holds nodes, so that a rule can say on which line the wrong entry stands. Beside plain values there are four
kinds that a program computes but that a rule can still judge: `Dotted` (a name of a library), `Called` (the result of a
call), `Option` (an argument of the command line, with its default) and `Rank` (the number of the process).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_DEPTH: Final = 60  # deeper values are UNKNOWN: no input may exhaust Python's stack
MAX_STEPS: Final = 20_000  # b = [a, a]; c = [b, b]; … doubles with every line, so work is bounded, not only depth


class Unknown:
    """The value of an expression that cannot be told without running it. There is one: `UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"


class AnyKey:
    """The key of an entry whose keys are computed: `{i: "20GiB" for i in range(n)}`. There is one: `ANY`."""

    def __repr__(self) -> str:
        return "ANY"


UNKNOWN: Final = Unknown()
ANY: Final = AnyKey()


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands: line and column from 1, ``start`` to ``end`` in characters of the file.

    ``value`` is a plain value, a dict of nodes, a tuple of nodes, one of the kinds below, or `UNKNOWN`. Offsets are -1
    where the file's text is not the value's own (a notebook, a joined string).
    """

    value: object
    path: str
    line: int
    column: int = 1
    start: int = -1
    end: int = -1
    key_line: int = 0
    key_start: int = -1

    def get(self, *keys: object) -> Node | None:
        """The node under a path of keys; None when one of them is not there."""
        node: Node | None = self
        for key in keys:
            if node is None or not isinstance(node.value, dict):
                return None
            node = node.value.get(key) if isinstance(key, (str, int, float, bool, bytes, type(None))) else None
        return node

    def plain(self, *keys: object) -> object:
        """The plain value under a path of keys; None when it is not there, `UNKNOWN` when it cannot be told."""
        node: Node | None = self
        for key in keys:
            if node is None or node.value is None:
                return None
            if not isinstance(node.value, dict):
                return UNKNOWN
            node = node.value.get(key)
        return None if node is None else plain(node)

    @property
    def items(self) -> Mapping[object, Node]:
        """Entries of a mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def known(self) -> bool:
        """Whether anything is known of it."""
        return self.value is not UNKNOWN


@dataclass(frozen=True, slots=True)
class Dotted:
    """A name that an import, or the language, gives: ``torch.bfloat16``."""

    name: str


@dataclass(frozen=True, slots=True)
class Called:
    """The result of a call. ``whole`` is False when arguments may be there that cannot be seen (``**kwargs``)."""

    name: str
    args: tuple[Node, ...] = ()
    kwargs: Mapping[str, Node] = field(default_factory=dict)
    whole: bool = True

    @property
    def last(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Option:
    """An argument of the command line: ``default`` counts when nobody gives it. ``taken`` says that a flag has no value."""

    flag: str
    default: Node


@dataclass(frozen=True, slots=True)
class Rank:
    """The number of the process, or the card that belongs to it."""

    source: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A shell word of which a part in the middle cannot be told: ``--nproc_per_node=$N``, ``$HOME/train.py``."""

    prefix: str
    suffix: str


def plain(node: Node) -> object:
    """The value without places: dicts, lists and scalars. What cannot be told is `UNKNOWN` where it stands."""
    steps = 0

    def value(of: Node, depth: int) -> object:
        nonlocal steps
        steps += 1
        if depth > MAX_DEPTH or steps > MAX_STEPS:
            return UNKNOWN
        if isinstance(of.value, dict):
            return {key: value(item, depth + 1) for key, item in of.value.items()}
        if isinstance(of.value, tuple):
            return [value(item, depth + 1) for item in of.value]
        return of.value

    return value(node, 0)


def number(value: object) -> float | int | None:
    """A number as configs write it, also as text (YAML reads 1e-5 as text); None for anything else, and for booleans."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            try:
                return float(value)
            except ValueError:
                return None
    return None


def integer(value: object) -> int | None:
    """A whole number, also as text; None for anything else."""
    found = number(value)
    return found if isinstance(found, int) else None


def truth(value: object) -> bool | None:
    """A switch as configs and flags write it; None when it cannot be told."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return bool(value)
    if value is None:
        return False
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "yes", "on", "1", "y", "t"):
            return True
        if word in ("false", "no", "off", "0", "n", "f", "", "none", "null"):
            return False
    return None
