"""ADV104: low_cpu_mem_usage=True with ZeRO-3."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.edits import without
from advisor.check.judge import configured_before, finding, loads, spread
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import truth
from advisor.check.versions import Versions

IGNORED_SINCE = "4.50"  # the guard asks for device_map alone from about here on


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Loads with low_cpu_mem_usage=True in a run with stage 3, unless the pinned transformers ignores it."""
    if Versions(project.pins).within("transformers", f">={IGNORED_SINCE}"):
        return
    old = Versions(project.pins).within("transformers", f"<{IGNORED_SINCE}")
    for run in project.runs:
        for load in loads(run):
            zero = run.zero3_at(load.call)
            node = load.get(run, "low_cpu_mem_usage")
            if node is None or zero is None or not zero.at_load or truth(node.value) is not True:
                continue
            mapped = spread(load.get(run, "device_map")) != "none"
            if mapped or (not load.inside and configured_before(run, load.call) is False):
                continue  # one fault, one finding: ADV101, ADV105
            yield finding(
                RULE, node, f"low_cpu_mem_usage=True is given while ZeRO-3 is on ({zero.said()})",
                severity="error" if old else "warning", edits=without(project.read.texts, node),
            )  # fmt: skip


RULE = Rule(
    code="ADV104",
    name="low-cpu-mem-with-zero3",
    severity="error",
    what="A model is loaded with low_cpu_mem_usage=True in a run that uses DeepSpeed ZeRO-3, whatever its config "
    "file is called.",
    why='transformers up to about 4.49 refuses: "DeepSpeed Zero-3 is not compatible with '
    '`low_cpu_mem_usage=True` or with passing a `device_map`." Later versions ignore the argument. A warning '
    "unless the pinned version is an old one.",
    fix="delete low_cpu_mem_usage: under ZeRO-3 from_pretrained loads shard by shard anyway",
    since="transformers before 4.50",
    check=check,
)
