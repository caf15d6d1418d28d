"""ADV102: a model spread over several GPUs by every one of several processes."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import alone_with_zero, finding, loads, place, quantized, shown, spread
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Loads whose map names several devices, in a run that surely has more than one process and no ZeRO-3."""
    for run in project.runs:
        zero = None if run.ranks.several else alone_with_zero(run)
        if not (run.ranks.several or zero is not None) or run.zero3 is not None:
            continue
        for load in loads(run):
            node = load.get(run, "device_map")
            if node is None or spread(node) != "several" or quantized(run, load) is not None:
                continue
            if zero is not None:
                yield finding(
                    RULE, node,
                    f"device_map={shown(node)} spreads the model over several GPUs, and a run with DeepSpeed ({zero.said()}) "
                    "is distributed, even of one process: it cannot be trained so",
                )  # fmt: skip
                continue
            at = run.ranks.node
            who = f"{run.ranks.words} starts {run.ranks.count} processes" + (
                f" ({place(at)})" if at is not None else ""
            )
            if run.trains:
                yield finding(
                    RULE, node,
                    f"device_map={shown(node)} spreads the model over several GPUs in each process, and {who}: it cannot be "
                    "trained so",
                )  # fmt: skip
            else:
                yield finding(
                    RULE, node,
                    f"device_map={shown(node)} spreads a copy of the model over all GPUs in each process, and {who}",
                    severity="warning",
                )  # fmt: skip


RULE = Rule(
    code="ADV102",
    name="device-map-over-several-processes",
    severity="error",
    what="A device_map that resolves to more than one device, in a run of several processes (DDP, ZeRO-1/2, FSDP).",
    why="Each process would spread its own copy over the same GPUs. accelerate refuses to train it: \"You can't "
    "train a model that has been loaded with `device_map='auto'` in any distributed mode.\" Older versions fail "
    "in DDP: its device_ids only work with modules on one device.",
    fix="device_map=None, so that each process holds the model on its own GPU ({'': local_rank} when it is "
    "quantized); to spread one model over the GPUs, start a single process: python script.py, or --num_processes "
    "1",
    since="every accelerate",
    check=check,
)
