"""JSON and YAML with the place of every value. No tags, no objects; depth and size are bounded; bad files give None."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import yaml

from advisor.check.values import MAX_DEPTH, UNKNOWN, Node

MAX_NODES: Final = 50_000
_SPACE = re.compile(r"[ \t\r\n]*")
_ATOM = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|NaN|-?Infinity")
_DECODER: Any = json.JSONDecoder()  # its parse_string takes the place after the quote and gives that after the string
_STRING = _DECODER.parse_string
_ATOMS: dict[str, object] = {"true": True, "false": False, "null": None}


class _BadTextError(Exception):
    """The text is not what its name says."""


def json_node(text: str, path: str) -> Node | None:
    """A JSON text as a tree of nodes; None when it is not JSON, or nested deeper or larger than any config is."""
    try:
        reader = _Json(text, path)
        found, at = reader.value(reader.skip(1 if text.startswith("\ufeff") else 0), 0)
        return found if reader.skip(at) == len(text) else None
    except (_BadTextError, ValueError, IndexError):
        return None


class _Json:
    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.ends = [match.start() for match in re.finditer("\n", text)]
        self.line = 0  # places only grow, so lines are counted along
        self.nodes = 0

    def skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def place(self, at: int) -> tuple[int, int]:
        while self.line < len(self.ends) and self.ends[self.line] < at:
            self.line += 1
        return self.line + 1, at - (self.ends[self.line - 1] if self.line else -1)

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise _BadTextError
        line, column = self.place(at)
        found: object
        sign = self.text[at]
        if sign == "{":
            found, end = self.mapping(at + 1, depth)
        elif sign == "[":
            found, end = self.sequence(at + 1, depth)
        elif sign == '"':
            found, end = _STRING(self.text, at + 1, False)
        else:
            match = _ATOM.match(self.text, at)
            if match is None:
                raise _BadTextError
            word, end = match.group(), match.end()
            found = _ATOMS[word] if word in _ATOMS else json.loads(word)
        return Node(found, self.path, line, column, at, end), end

    def mapping(self, at: int, depth: int) -> tuple[dict[object, Node], int]:
        found: dict[object, Node] = {}
        at = self.skip(at)
        if self.text[at] == "}":
            return found, at + 1
        while True:
            if self.text[at] != '"':
                raise _BadTextError
            line, start = self.place(at)[0], at
            key, at = _STRING(self.text, at + 1, False)
            at = self.skip(at)
            if self.text[at] != ":":
                raise _BadTextError
            node, at = self.value(self.skip(at + 1), depth + 1)
            found[key] = Node(node.value, node.path, node.line, node.column, node.start, node.end, line, start)
            at = self.skip(at)
            if self.text[at] == "}":
                return found, at + 1
            if self.text[at] != ",":
                raise _BadTextError
            at = self.skip(at + 1)

    def sequence(self, at: int, depth: int) -> tuple[tuple[Node, ...], int]:
        found: list[Node] = []
        at = self.skip(at)
        if self.text[at] == "]":
            return (), at + 1
        while True:
            node, at = self.value(at, depth + 1)
            found.append(node)
            at = self.skip(at)
            if self.text[at] == "]":
                return tuple(found), at + 1
            if self.text[at] != ",":
                raise _BadTextError
            at = self.skip(at + 1)


def yaml_nodes(text: str, path: str) -> list[Node]:
    """The documents of a YAML text as trees of nodes; empty when it is not YAML or too deep or large.

    An alias is the node that it names, not a copy, so that a bomb of aliases stays as small as its text.
    """
    try:
        return _Yaml(path).documents(text)
    except (_BadTextError, yaml.YAMLError, ValueError, RecursionError):
        return []


_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCALARS = {
    "tag:yaml.org,2002:null": "construct_yaml_null", "tag:yaml.org,2002:bool": "construct_yaml_bool",
    "tag:yaml.org,2002:int": "construct_yaml_int", "tag:yaml.org,2002:float": "construct_yaml_float",
}  # fmt: skip


class _Yaml:
    def __init__(self, path: str) -> None:
        self.path = path
        self.loader: Any = yaml.SafeLoader("")
        self.anchors: dict[str, Node] = {}

    def documents(self, text: str) -> list[Node]:
        """Events one by one with an own stack: no recursion, whatever the nesting."""
        found: list[Node] = []
        stack: list[tuple[Any, list[Node]]] = []
        count = 0
        for event in yaml.parse(text, Loader=_PARSER):
            count += 1
            if count > MAX_NODES or len(stack) > MAX_DEPTH:
                raise _BadTextError
            if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                stack.append((event, []))
                continue
            if isinstance(event, yaml.DocumentStartEvent):
                self.anchors.clear()
                continue
            if isinstance(event, yaml.ScalarEvent):
                node = self.node(event, self.scalar(event), event.end_mark)
            elif isinstance(event, yaml.AliasEvent):
                target = self.anchors.get(str(event.anchor))
                if target is None:
                    raise _BadTextError
                node = self.node(event, target.value, event.end_mark)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                start, children = stack.pop()
                is_map = isinstance(start, yaml.MappingStartEvent)
                node = self.node(start, self.mapping(children) if is_map else tuple(children), event.end_mark)
                event = start
            else:
                continue
            if getattr(event, "anchor", None) and not isinstance(event, yaml.AliasEvent):
                self.anchors[str(event.anchor)] = node
            if stack:
                stack[-1][1].append(node)
            else:
                found.append(node)
        return found

    def node(self, event: Any, value: object, end: Any) -> Node:
        mark = event.start_mark
        return Node(value, self.path, mark.line + 1, mark.column + 1, mark.index, end.index)

    def scalar(self, event: Any) -> object:
        tag = event.tag or self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        make = _SCALARS.get(str(tag))
        if make is None:
            return event.value if tag in ("tag:yaml.org,2002:str", "!") or not event.tag else UNKNOWN
        try:
            return getattr(self.loader, make)(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, IndexError):
            return UNKNOWN

    def mapping(self, children: list[Node]) -> dict[object, Node]:
        found: dict[object, Node] = {}
        merged: dict[object, Node] = {}
        for key, node in zip(children[::2], children[1::2], strict=True):
            if key.value == "<<":
                for source in node.value if isinstance(node.value, tuple) else (node,):
                    if isinstance(source.value, dict):
                        merged = {**source.value, **merged}
            elif isinstance(key.value, (str, int, float, bool, type(None))):
                found[key.value] = Node(
                    node.value, node.path, node.line, node.column, node.start, node.end, key.line, key.start
                )
        return {**merged, **found}
