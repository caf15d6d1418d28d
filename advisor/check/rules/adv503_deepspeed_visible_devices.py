"""ADV503: CUDA_VISIBLE_DEVICES that the deepspeed launcher does not read."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import finding, shown
from advisor.check.project import Project
from advisor.check.ranks import visible_devices
from advisor.check.types import Doubt, Finding, Rule

_CHOOSES = ("include", "i", "exclude", "e", "num_gpus", "num_nodes")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """deepspeed launches with CUDA_VISIBLE_DEVICES and a flag that chooses GPUs, or with names instead of numbers."""
    for run in project.runs:
        launch = run.launch
        if launch is None or launch.launcher != "deepspeed":
            continue
        ids = visible_devices(launch.environment)
        node = launch.environment.get("CUDA_VISIBLE_DEVICES")
        if ids is None or node is None:
            continue
        flag = next((name for name in _CHOOSES if name in launch.flags), None)
        if any(one.startswith(("GPU-", "MIG-")) for one in ids):
            yield finding(
                RULE, node, f"CUDA_VISIBLE_DEVICES {shown(node)} names cards by UUID, and the deepspeed "
                    "launcher reads numbers alone",
                severity="error",
            )  # fmt: skip
        elif flag is not None and ids != [str(number) for number in range(len(ids))]:
            yield finding(
                RULE, node,
                f"CUDA_VISIBLE_DEVICES {shown(node)} is ignored by the deepspeed launcher because of --{flag}: "
                "it counts from card 0",
            )  # fmt: skip


RULE = Rule(
    code="ADV503",
    name="deepspeed-visible-devices",
    severity="warning",
    what="CUDA_VISIBLE_DEVICES in front of the deepspeed launcher together with --include, --exclude or "
    "--num_gpus, or with UUIDs.",
    why="With one of those flags the launcher sets CUDA_VISIBLE_DEVICES itself, and yours is dropped: the job "
    'lands on other cards. Each entry is read as a number, so a UUID ends with "invalid literal for int()".',
    fix="deepspeed --include localhost:2,3 and no CUDA_VISIBLE_DEVICES; or torchrun or accelerate launch",
    since="every DeepSpeed",
    check=check,
)
