"""ADV401: sizes in max_memory that are not what they look like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from advisor.check.edits import instead
from advisor.check.facts import Call
from advisor.check.judge import finding
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_TEN, _TWO = ("KB", "MB", "GB"), ("KIB", "MIB", "GIB")
_CARDS = frozenset({4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 46, 48, 64, 80, 94, 96, 128, 141, 180, 192, 288})
SMALL = 2**20  # fewer bytes than the smallest weight that anybody loads


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Every max_memory that can be read: arguments of calls, and keys of YAML and JSON files."""
    seen: set[tuple[str, int, int]] = set()
    for run in project.runs:
        for node, pretrained in _memories(run):
            for key, item in node.items.items():
                place = (item.path, item.line, item.column)
                if place not in seen:
                    seen.add(place)
                    yield from _judge(item, key, pretrained, project.read.texts)


def _memories(run: Run) -> Iterator[tuple[Node, bool]]:
    """Each max_memory, and whether a pretrained model is about: bytes may well be enough for a toy."""
    given = run.options.get("max_memory")
    if given is not None:
        yield given, True
    for call in run.script.calls if run.script is not None else ():
        for node in _of(run, call):
            yield node, call.last in ("from_pretrained", "pipeline") or _loads_in(run, call.flow)


def _loads_in(run: Run, flow: int) -> bool:
    return any(one.flow == flow for one in run.script.named("from_pretrained", "from_config")) if run.script else False


def _of(run: Run, call: Call) -> Iterator[Node]:
    node = run.value(call.get("max_memory"))
    if node is not None:
        yield node
    for name in ("model_kwargs", "model_init_kwargs"):
        inner = run.value(call.get(name))
        memory = inner.get("max_memory") if inner is not None else None
        if memory is not None:
            yield memory
    if node is None and call.last in ("infer_auto_device_map", "get_balanced_memory", "get_max_memory"):
        at = 0 if call.last == "get_max_memory" else 1
        if len(call.called.args) > at:
            found = run.value(call.called.args[at])
            if found is not None:
                yield found


def _judge(item: Node, key: object, pretrained: bool, texts: Mapping[str, str]) -> Iterator[Finding]:
    value = item.value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if pretrained and 0 < value < SMALL:
            yield finding(
                RULE,
                item,
                f"max_memory of {value} is {value} bytes, so nothing fits there",
                fix=f'"{value}GiB", or bytes',
            )
        return
    if not isinstance(value, str):
        return
    match = _SIZE.fullmatch(value)
    if match is None:
        return
    amount, unit = match.groups()
    upper = unit.upper()
    if upper in _TEN and unit.endswith("b"):
        bits = f"{float(amount) / 8:g}{unit[:-1].upper()}B"
        yield finding(
            RULE, item, f"{value!r} ends in a small b, which is read as bits: {bits}, an eighth of what it looks like",
            fix=f'"{amount}{unit[0].upper()}iB"', edits=instead(texts, item, value, f"{amount}{unit[0].upper()}B"),
        )  # fmt: skip
    elif upper not in (*_TEN, *_TWO):
        yield finding(
            RULE, item, f"{value!r} is no size that accelerate can read: it knows KB, MB, GB, KiB, MiB and GiB",
            severity="error", fix=f'"{_in_gib(amount, upper)}"',
        )  # fmt: skip
    elif upper == "GB" and float(amount) in _CARDS and key != "cpu" and key != "disk":
        yield finding(
            RULE, item, f"{value!r} is {amount}e9 bytes, 7% less than the {amount} GiB of a card of that size",
            severity="info", fix=f'"{amount}GiB" less what activations need',
        )  # fmt: skip


def _in_gib(amount: str, unit: str) -> str:
    factor = 1024 if unit.startswith("T") else 1
    return f"{float(amount) * factor:g}GiB"


RULE = Rule(
    code="ADV401",
    name="max-memory-units",
    severity="warning",
    what="A max_memory size with a small b (bits), a suffix that is not read, a bare small number (bytes), or GB "
    "where GiB was meant.",
    why='accelerate reads "24gb" as 24 gigabits, 3 GB; 24 as 24 bytes, so the whole model lands on the CPU '
    'without a word; "24G", "24" and "1TB" raise a ValueError; "24GB" is 24,000,000,000 bytes, 7.4% less '
    'than "24GiB".',
    fix='write GiB texts ("22GiB") or whole bytes',
    since="every accelerate",
    check=check,
)
