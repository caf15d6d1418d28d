"""Edits that are sure to be right: each is made on the text and read back before it is offered.

What is read back must be the old text's meaning with that one change; comments in the way, or a place that is not where it
was thought to be, give no edit at all.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping

from advisor.check.types import Edit
from advisor.check.values import Node

_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"\s*")


def without(texts: Mapping[str, str], node: Node) -> tuple[Edit, ...]:
    """The edit that takes a call's argument or a JSON member away; none where it is not sure."""
    text = texts.get(node.path)
    if text is None or not 0 <= node.key_start < node.end <= len(text):
        return ()
    edit = _cut(text, node)
    if edit is None:
        return ()
    after = text[: edit.start] + edit.text + text[edit.end :]
    same = _same_json if node.path.lower().endswith(".json") else _same_call
    return (edit,) if same(text, after, node) else ()


def instead(texts: Mapping[str, str], node: Node, old: str, new: str) -> tuple[Edit, ...]:
    """The edit that puts the text ``new`` for the quoted text ``old``; none where something else stands there."""
    text = texts.get(node.path)
    if text is None or not 0 <= node.start < node.end <= len(text):
        return ()
    literal = text[node.start : node.end]
    if literal not in (f'"{old}"', f"'{old}'"):
        return ()
    return (Edit(path=node.path, start=node.start, end=node.end, text=f"{literal[0]}{new}{literal[0]}"),)


def _cut(text: str, node: Node) -> Edit | None:
    """From the key to the end of the value, with one comma: the one after it, else the one before."""
    start, end = node.key_start, node.end
    after = _end(_SPACE, text, end)
    if text[after : after + 1] == ",":
        end = _end(_BLANK, text, after + 1)
        if text[end : end + 1] in ("#", "/"):
            return None  # a remark that may be about what goes
        line = text.rfind("\n", 0, start) + 1
        if text[end : end + 1] in ("\n", "\r") and not text[line:start].strip():
            # It has its lines to itself: they go.
            end += 2 if text.startswith("\r\n", end) else 1
            start = line
        return Edit(path=node.path, start=start, end=end, text="")
    before = text[:start].rstrip()
    if before.endswith(","):
        return Edit(path=node.path, start=len(before) - 1, end=end, text="")
    return Edit(path=node.path, start=start, end=end, text="") if before.endswith(("(", "{")) else None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _same_json(before: str, after: str, node: Node) -> bool:
    """Whether the new text is the old value without one member of that name."""
    try:
        old, new = json.loads(before), json.loads(after)
        key = json.JSONDecoder().raw_decode(before, node.key_start)[0]
    except (ValueError, RecursionError):
        return False
    return any(json.dumps(one) == json.dumps(new) for one in _each_without(old, key))


def _each_without(value: object, key: object) -> list[object]:
    """Every value that comes of taking one member named ``key`` away."""
    found: list[object] = []
    if isinstance(value, dict):
        if key in value:
            found.append({name: item for name, item in value.items() if name != key})
        for name, item in value.items():
            found += [{**value, name: one} for one in _each_without(item, key)]
    return found


def _same_call(before: str, after: str, node: Node) -> bool:
    """Whether the new text is the old script without that one argument."""
    try:
        old, new = ast.parse(before.removeprefix("\ufeff")), ast.parse(after.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    try:
        wanted = ast.dump(new)
        for call in ast.walk(old):
            for word in list(call.keywords) if isinstance(call, ast.Call) else ():
                if word.lineno != node.key_line or not isinstance(call, ast.Call):
                    continue
                whole = call.keywords
                call.keywords = [one for one in whole if one is not word]
                if ast.dump(old) == wanted:
                    return True
                call.keywords = whole
    except RecursionError:
        return False
    return False
