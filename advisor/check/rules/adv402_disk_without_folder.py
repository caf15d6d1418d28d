"""ADV402: modules on disk, and no folder for them."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import devices, finding, loads, quantized
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node

_CALLS = ("load_checkpoint_and_dispatch", "load_checkpoint_in_model", "dispatch_model")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Loads and dispatches whose explicit map has "disk", without offload_folder."""
    for run in project.runs:
        for load in loads(run):
            node = load.get(run, "device_map")
            how = quantized(run, load)
            if how is not None and "llm_int8_enable_fp32_cpu_offload" not in how.config:
                continue  # refused with a folder as well: ADV305
            if load.whole and load.get(run, "offload_folder") is None:
                yield from _judge(node, "offload_folder")
        yield from _dispatches(run)


def _dispatches(run: Run) -> Iterator[Finding]:
    for call in run.script.named(*_CALLS) if run.script is not None else ():
        name = "offload_dir" if call.last == "dispatch_model" else "offload_folder"
        if call.called.whole and run.value(call.get(name, "offload_dir", "offload_folder")) is None:
            yield from _judge(run.value(call.get("device_map")), name)


def _judge(node: Node | None, name: str) -> Iterator[Finding]:
    away = [key for key, item in devices(node) if item.value == "disk"]
    if node is not None and node.value == "disk":
        away = ["the model"]
    if away and node is not None:
        more = f" and {len(away) - 1} more" if len(away) > 1 else ""
        yield finding(RULE, node, f"device_map sends {away[0]!r}{more} to disk, and no {name} says where")


RULE = Rule(
    code="ADV402",
    name="disk-without-offload-folder",
    severity="error",
    what='A device_map with "disk" entries and no offload_folder.',
    why='"The current `device_map` had weights offloaded to the disk. Please provide an `offload_folder` for '
    'them." (Safetensors can be read from the checkpoint itself; .bin files cannot.) The disk is also the '
    "slowest place: a spill is often avoided by naming what every card may take.",
    fix='offload_folder="offload" on a disk with room for those weights; or max_memory that lets the cards '
    "take more, so that nothing spills",
    since="every accelerate",
    check=check,
)
