"""ADV501: nn.DataParallel, by accident."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.check.judge import finding, place
from advisor.check.project import Project
from advisor.check.ranks import visible_devices
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node, integer


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Plain starts of Trainer scripts where several GPUs are visible, and explicit DataParallel (as information)."""
    for run in project.runs:
        launch = run.launch
        if launch is not None and launch.launcher == "python" and run.ranks.count == 1 and run.script is not None:
            trainers = [call for call in run.script.calls if call.last.endswith("Trainer") and not _foreign(call.name)]
            own = "CUDA_VISIBLE_DEVICES" in run.script.environment  # what the script sets itself comes last
            seen = _visible(run.script.environment, {}) if own else _visible(launch.environment, launch.slurm)
            if trainers and seen is not None:
                count, node = seen
                yield finding(
                    RULE, launch.node,
                    f"plain python starts a {trainers[0].last} script where {count} GPUs are visible "
                    f"({place(node)}): it becomes "
                    "nn.DataParallel",
                )  # fmt: skip
    for script in project.scripts:
        for call in script.named("DataParallel"):
            if call.name.startswith("torch"):
                yield finding(
                    RULE, call.node, "nn.DataParallel gathers everything on the first GPU at every step; DDP does not",
                    severity="info", fix="torchrun or accelerate launch with DistributedDataParallel",
                )  # fmt: skip


def _foreign(name: str) -> bool:
    return name.startswith(("pytorch_lightning", "lightning"))


def _visible(environment: Mapping[str, Node], slurm: Mapping[str, Node]) -> tuple[int, Node] | None:
    """How many GPUs the launch line, or the Slurm script, shows to the process, when there are several."""
    ids = visible_devices(environment)
    if ids is not None:
        return (len(ids), environment["CUDA_VISIBLE_DEVICES"]) if len(ids) > 1 else None
    for key in ("gres", "gpus_per_node", "gpus"):
        node = slurm.get(key)
        count = integer(str(node.value).rpartition(":")[2]) if node is not None else None
        if node is not None and count is not None:
            return (count, node) if count > 1 else None
    return None


RULE = Rule(
    code="ADV501",
    name="data-parallel-by-accident",
    severity="warning",
    what="A Trainer script is started as plain python where several GPUs are visible.",
    why="The Trainer then wraps the model in nn.DataParallel: one process, all gradients and outputs gathered on "
    "the first GPU, a batch that grows with the GPUs, and gradient checkpointing or quantized models that may "
    "crash.",
    fix="torchrun --nproc_per_node N or accelerate launch to use the GPUs; CUDA_VISIBLE_DEVICES=0 to use one",
    since="every transformers",
    check=check,
)
