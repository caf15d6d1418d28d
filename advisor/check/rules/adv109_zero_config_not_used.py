"""ADV109: a ZeRO config lies ready, and the launch line does not give it to the launcher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from advisor.check.judge import finding
from advisor.check.project import Project, Run, stage_of
from advisor.check.types import Doubt, Finding, Rule


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Launches without the config that lies beside them: accelerate's for DeepSpeed, or a DeepSpeed file for the Trainer."""
    yield from _accelerate(project)
    yield from _deepspeed(project)


def _deepspeed(project: Project) -> Iterator[Finding]:
    """The deepspeed launcher starts a Trainer script, and nothing gives the Trainer the only DeepSpeed file there is."""
    files = [fact for fact in project.configs("deepspeed") if stage_of(fact.root)[0] not in (None, 0)]
    if len(files) != 1 or files[0] not in project.orphans:
        return
    for run in project.runs:
        launch, script = run.launch, run.script
        if launch is None or launch.launcher != "deepspeed" or script is None or not _beside(run, files[0].path):
            continue
        takes = run.arguments and all(arguments.whole for arguments in run.arguments)
        if takes and run.argument("deepspeed") is None and not run.zeros and not script.calls_any("initialize"):
            name = PurePath(files[0].path).name
            yield finding(
                RULE, launch.node,
                f"the deepspeed launcher starts {PurePath(script.path).name}, and nothing gives {name} to the Trainer: ZeRO is "
                "silently not active",
                fix=f"--deepspeed {name} after the script, or TrainingArguments(deepspeed=…)",
            )  # fmt: skip


def _accelerate(project: Project) -> Iterator[Finding]:
    orphans = [
        fact for fact in project.orphans
        if fact.kind == "accelerate" and str(fact.root.plain("distributed_type")).upper() == "DEEPSPEED"
    ]  # fmt: skip
    others = [fact for fact in project.configs("accelerate") if fact not in orphans]
    if len(orphans) != 1 or others:
        return
    config = orphans[0]
    near = [run for run in project.runs if run.launch is not None and _beside(run, config.path)]
    for run in near:
        launch = run.launch
        if launch is None or run.zeros or run.fsdp is not None or run.script is None:
            continue
        if launch.launcher == "accelerate" and any(
            name in launch.flags for name in ("config_file", "use_deepspeed", "use_fsdp", "multi_gpu", "cpu")
        ):
            continue
        uses = (
            run.script.calls_any("Accelerator")
            or run.arguments
            or any(c.last.endswith("Trainer") for c in run.script.calls)
        )
        if launch.launcher in ("python", "torchrun", "accelerate") and uses:
            yield finding(
                RULE, launch.node,
                f"this starts {PurePath(run.script.path).name} without {PurePath(config.path).name}, which sets up DeepSpeed: "
                "ZeRO is silently not active",
                fix=f"accelerate launch --config_file {PurePath(config.path).as_posix()} {PurePath(run.script.path).name}",
            )  # fmt: skip


def _beside(run: Run, path: str) -> bool:
    launch = run.launch
    if launch is None:
        return False
    folder, other = PurePath(launch.path).parent, PurePath(path).parent
    return folder == other or folder in other.parents


RULE = Rule(
    code="ADV109",
    name="zero-config-not-used",
    severity="warning",
    what="A launch line without --config_file (or --deepspeed), beside the project's only config that asks for "
    "DeepSpeed.",
    why="accelerate reads a config only when it is given (or its default one in the home folder), and the "
    "deepspeed launcher alone starts ranks, no DeepSpeed. The script then runs with the whole model on every "
    "GPU: the memory of a plain run, and no error.",
    fix="accelerate launch --config_file FILE script.py",
    since="every accelerate",
    check=check,
)
