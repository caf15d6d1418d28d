"""ADV103: a model spread over all GPUs, under a launcher that starts a process for each of them."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import finding, loads, place, quantized, shown, spread
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Loads whose map names several devices, where the launcher was not told how many processes to start."""
    for run in project.runs:
        ranks = run.ranks
        if ranks.node is None or ranks.stated or ranks.several or ranks.count == 1 or run.zero3 is not None:
            continue
        if ranks.words.endswith("--cpu") or ranks.words == "python":
            continue
        for load in loads(run):
            node = load.get(run, "device_map")
            if node is not None and spread(node) == "several" and quantized(run, load) is None:
                yield finding(
                    RULE, node,
                    f"device_map={shown(node)} makes a pipeline over all GPUs in one process, but {ranks.words} starts a "
                    f"process for each GPU it finds ({place(ranks.node)})",
                )  # fmt: skip


RULE = Rule(
    code="ADV103",
    name="pipeline-under-launcher",
    severity="warning",
    what="A device_map over several GPUs (a naive pipeline) under a launcher that takes every GPU unless told "
    "otherwise.",
    why="On a machine with several GPUs the run is distributed, and accelerate refuses a model that is spread "
    'over devices "in any distributed mode". A naive pipeline also leaves all but one GPU idle at any time.',
    fix='start one process: python script.py, or --num_processes 1 (and "balanced" rather than '
    '"balanced_low_0" to train); or drop the device_map and let every process hold the model',
    since="every accelerate",
    check=check,
)
