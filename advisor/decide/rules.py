"""The decision trees: TOML files, checked when loaded.

A file is a flattened binary tree. Each table is a node: ``ask`` (the question), ``when`` (conditions, all of which
must hold for a yes), ``yes`` and ``no`` (another node of the file, a way such as ``zero3_cpu``, or ``none``),
``because``. The first node is the root. Loading checks everything that could go wrong later: a tree that loads answers
every input, and its leaves name only what was asked to fit.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from advisor.data import data_dir
from advisor.decide.conditions import Compiled, ConditionError, compile_condition
from advisor.decide.facts import NONE, WAYS
from advisor.errors import InputError

TREES = ("inference", "finetune")
_KEYS = ("ask", "when", "yes", "no", "because")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One question of a tree."""

    code: str
    ask: str
    when: tuple[Compiled, ...]
    yes: str
    no: str
    because: str
    file: Path

    def to(self, answer: bool) -> str:
        """Where an answer leads."""
        return self.yes if answer else self.no


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A checked tree: its nodes by code, root first."""

    name: str
    nodes: Mapping[str, Node]

    @property
    def root(self) -> Node:
        """Where every walk begins."""
        return next(iter(self.nodes.values()))

    def reaches(self, start: str, leaf: str) -> bool:
        """Whether a walk from ``start`` (a code or a leaf) can end at ``leaf``."""
        seen: set[str] = set()
        open_ends = [start]
        while open_ends:
            here = open_ends.pop()
            if here == leaf:
                return True
            if here in self.nodes and here not in seen:
                seen.add(here)
                open_ends += (self.nodes[here].yes, self.nodes[here].no)
        return False


def load_tree(name: str, overlay: Path | None = None) -> Tree:
    """The tree ``inference`` or ``finetune``; nodes of ``overlay``/NAME.toml replace ours whole, or are added.

    Raises InputError naming file and node for anything that does not hold together.
    """
    if overlay is None:
        return _shipped(name)
    files = _overlay_files(overlay)
    nodes = dict(_read(_file(name)))
    if f"{name}.toml" in files:
        nodes |= _read(overlay / f"{name}.toml")
    return _checked(name, nodes)


@cache
def _shipped(name: str) -> Tree:
    return _checked(name, _read(_file(name)))


def _file(name: str) -> Path:
    return data_dir("rules") / f"{name}.toml"


def _overlay_files(folder: Path) -> set[str]:
    if not folder.is_dir():
        raise InputError("--rules", "is no folder", found=str(folder), expected="a folder of rules files")
    files = {path.name for path in folder.glob("*.toml") if not path.name.endswith(".cases.toml")}
    known = {f"{tree}.toml" for tree in TREES}
    for stranger in sorted(files - known):
        raise InputError(str(folder / stranger), "is no tree", expected=f"one of {', '.join(sorted(known))}")
    if not files:
        raise InputError("--rules", "holds no rules", found=str(folder), expected=" or ".join(sorted(known)))
    return files


def all_nodes(overlay: Path | None = None) -> dict[str, Node]:
    """The nodes of all trees by code. Raises InputError for a code that two trees share."""
    nodes: dict[str, Node] = {}
    for name in TREES:
        for code, node in load_tree(name, overlay).nodes.items():
            if code in nodes:
                raise InputError(str(node.file), f"is a code of {nodes[code].file}, too", field=code)
            nodes[code] = node
    return nodes


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's tables. Raises InputError naming file and place."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is not valid TOML ({error})") from error


def _read(path: Path) -> dict[str, Node]:
    text_of = _duplicates(path)
    if text_of:
        raise InputError(str(path), "stands there twice", field=text_of, expected="a code of its own for each node")
    return {code: _node(path, code, table) for code, table in read_toml(path).items()}


def _duplicates(path: Path) -> str:
    """A table header that occurs twice: TOML refuses it, too, but without the name of the node."""
    seen: set[str] = set()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""  # read_toml says it better
    for line in lines:
        header = line.split("#")[0].strip()
        if header.startswith("[") and not header.startswith("[["):
            if header in seen:
                return header.strip("[] ")
            seen.add(header)
    return ""


def _node(path: Path, code: str, table: object) -> Node:
    if not isinstance(table, dict):
        raise InputError(str(path), "is no node", field=code, found=table, expected=f"a table with {', '.join(_KEYS)}")
    for key in _KEYS:
        if key not in table:
            raise InputError(str(path), "is missing", field=f"{code}.{key}")
    for key in table:
        if key not in _KEYS:
            raise InputError(str(path), "is not known", field=f"{code}.{key}", expected=f"one of {', '.join(_KEYS)}")
    texts = {key: table[key] for key in _KEYS if key != "when"}
    for key, value in texts.items():
        if not isinstance(value, str) or not value.strip():
            raise InputError(
                str(path), "is no text", field=f"{code}.{key}", found=value, expected="a sentence or a name"
            )
    when = table["when"]
    if not isinstance(when, list) or not when or not all(isinstance(text, str) for text in when):
        raise InputError(
            str(path), "is no list of conditions", field=f"{code}.when", found=when, expected='["gpus > 1"]'
        )
    return Node(code=code, when=tuple(_condition(path, code, text) for text in when), file=path, **texts)


def _condition(path: Path, code: str, text: str) -> Compiled:
    try:
        return compile_condition(text)
    except ConditionError as error:
        raise InputError(str(path), str(error), field=f"{code}.when", found=text) from error


def _checked(name: str, nodes: dict[str, Node]) -> Tree:
    if not nodes:
        raise InputError(str(_file(name)), "has no node")
    tree = Tree(name=name, nodes=nodes)
    for node in nodes.values():
        for answer, target in (("yes", node.yes), ("no", node.no)):
            if target not in nodes and target not in WAYS and target != NONE:
                near = difflib.get_close_matches(target, [*nodes, *WAYS, NONE], n=3)
                raise InputError(
                    str(node.file), "leads to nothing", field=f"{node.code}.{answer}", found=target,
                    expected=f"a code of this tree, a way or {NONE}" + (f" (near: {', '.join(near)})" if near else ""),
                )  # fmt: skip
    order = list(_order(tree))
    for node in nodes.values():
        if node not in order:
            raise InputError(str(node.file), f"cannot be reached from {tree.root.code}", field=node.code)
    _guarded(order)
    return tree


def _order(tree: Tree) -> Iterator[Node]:
    """Nodes reached from the root, each after all that lead to it. Raises InputError for a cycle."""
    done: dict[str, Node] = {}
    on_way: list[str] = []

    def visit(code: str) -> None:
        node = tree.nodes.get(code)
        if node is None or code in done:
            return
        if code in on_way:
            circle = " -> ".join([*on_way[on_way.index(code) :], code])
            raise InputError(str(node.file), f"leads in a circle: {circle}", field=on_way[-1])
        on_way.append(code)
        visit(node.no)
        visit(node.yes)
        on_way.pop()
        done[code] = node

    visit(tree.root.code)
    return reversed(done.values())


def _guarded(order: list[Node]) -> None:
    """On every path to a way's leaf, ``WAY.fits`` was asked and answered yes. Raises InputError otherwise."""
    held: dict[str, set[str]] = {order[0].code: set()}
    for node in order:
        before = held[node.code]
        for answer, target, after in (("yes", node.yes, before | _sure(node)), ("no", node.no, before)):
            if target in WAYS and f"{target}.fits" not in after:
                raise InputError(
                    str(node.file), f"ends at {target} without having asked whether it fits",
                    field=f"{node.code}.{answer}", expected=f"{target}.fits in `when` on every way there",
                )  # fmt: skip
            held[target] = held[target] & after if target in held else set(after)


def _sure(node: Node) -> set[str]:
    """Facts that are certainly true after a yes: the conditions that are nothing but a fact."""
    return {condition.text.strip() for condition in node.when if condition.facts == (condition.text.strip(),)}
