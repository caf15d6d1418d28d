"""ADV504: more processes than GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import finding, place
from advisor.check.project import Project
from advisor.check.ranks import visible_devices
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import integer


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Launches on one machine with more processes than CUDA_VISIBLE_DEVICES, or the target machine, has GPUs."""
    for run in project.runs:
        launch, ranks = run.launch, run.ranks
        if (
            launch is None
            or ranks.count is None
            or ranks.node is None
            or not ranks.stated
            or launch.launcher == "python"
        ):
            continue
        nodes = launch.flags.get("nnodes") or launch.flags.get("num_nodes") or launch.flags.get("num_machines")
        listed = run.accelerate.get("num_machines") if run.accelerate is not None else None
        machines = nodes if nodes is not None else listed
        if launch.launcher == "srun" or (machines is not None and integer(machines.value) != 1):
            continue
        ids = visible_devices(launch.environment) if launch.launcher != "deepspeed" else None
        target = project.settings.hardware
        node = launch.environment.get("CUDA_VISIBLE_DEVICES")
        if ids is not None and node is not None and any(one.startswith("MIG-") for one in ids) and ranks.count > 1:
            yield finding(
                RULE, ranks.node,
                f"{ranks.count} processes are started where CUDA_VISIBLE_DEVICES ({place(node)}) names MIG instances: CUDA "
                "shows only the first of them",
                fix="a single process, on one MIG instance",
            )  # fmt: skip
        elif ids is not None and node is not None and ids != ["-1"] and 0 < len(ids) < ranks.count:
            yield finding(
                RULE, ranks.node,
                f"{ranks.count} processes are started where CUDA_VISIBLE_DEVICES ({place(node)}) shows {len(ids)} GPUs",
            )  # fmt: skip
        elif target is not None and target.gpus is not None and target.gpus < ranks.count:
            yield finding(
                RULE, ranks.node, f"{ranks.count} processes are started, and {target.name} has {target.gpus} GPUs"
            )


RULE = Rule(
    code="ADV504",
    name="more-processes-than-gpus",
    severity="error",
    what="A launcher starts more processes on a machine than it has, or shows, GPUs.",
    why='The process without a card stops: "CUDA error: invalid device ordinal".',
    fix="as many processes as GPUs",
    since="every launcher",
    check=check,
)
