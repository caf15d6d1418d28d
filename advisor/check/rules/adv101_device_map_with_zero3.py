"""ADV101: device_map given while ZeRO-3 is on."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import configured_before, doubt, finding, loads, shown, spread
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Loads with any device_map but None, in a run with stage 3 that exists when the model is loaded."""
    for run in project.runs:
        for load in loads(run):
            zero = run.zero3_at(load.call)
            node = load.get(run, "device_map")
            kind = spread(node)
            if node is None or zero is None or kind == "none":
                continue
            if kind == "unknown" and not isinstance(node.value, dict):
                yield doubt(
                    RULE,
                    node,
                    f"device_map cannot be told without running; with ZeRO-3 ({zero.said()}) it must be None",
                )
                continue
            if not zero.at_load and kind in ("single", "rank"):
                continue  # the load does not know of ZeRO-3: it puts the model on one card, which is then sharded
            before = True if load.inside else configured_before(run, load.call)
            if before is False and kind in ("single", "rank"):
                continue  # nothing is raised then: ADV106
            extra = " and low_cpu_mem_usage" if load.get(run, "low_cpu_mem_usage") is not None else ""
            late = (
                "; the model is loaded before the DeepSpeed config exists, so training in several processes fails instead"
                if before is False else ""
            )  # fmt: skip
            yield finding(
                RULE, node,
                f"device_map={shown(node)}{extra} is given while ZeRO-3 is on ({zero.said()}): both want to place the "
                f"parameters{late}",
            )  # fmt: skip


RULE = Rule(
    code="ADV101",
    name="device-map-with-zero3",
    severity="error",
    what="A model is loaded with a device_map, of any form, in a run that uses DeepSpeed ZeRO-3.",
    why="ZeRO-3 shards every parameter over the ranks while the model is made; a device_map puts whole modules "
    'on devices. transformers refuses: "DeepSpeed Zero-3 is not compatible with passing a `device_map`." Older '
    'versions say: "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a '
    "`device_map`.\" Any value but None counts: \"auto\", {'': 0}, 0, {'': local_rank}. The stage is read from "
    "what the DeepSpeed config says, not from its name.",
    fix="delete device_map (and low_cpu_mem_usage): under ZeRO-3 from_pretrained itself shards the model",
    since="every transformers with ZeRO-3",
    check=check,
)
