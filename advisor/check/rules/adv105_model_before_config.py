"""ADV105: the model is loaded before anything says that ZeRO-3 is on."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import configured_before, finding, loads, spread
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Loads in a run with stage 3 that come before the Trainer's arguments, Accelerator or HfDeepSpeedConfig is made."""
    for run in project.runs:
        for load in loads(run):
            zero = run.zero3_at(load.call)
            if zero is None or not zero.at_load:
                continue
            if load.inside or configured_before(run, load.call) is not False:
                continue
            if spread(load.get(run, "device_map")) != "none":
                continue  # ADV101 or ADV106
            yield finding(
                RULE, load.node,
                f"the model is loaded before what turns ZeRO-3 on ({zero.said()}) is made, so every process loads all of it "
                "into host memory",
            )  # fmt: skip


RULE = Rule(
    code="ADV105",
    name="model-before-zero3-config",
    severity="error",
    what="from_pretrained runs before TrainingArguments(deepspeed=…), Accelerator() or HfDeepSpeedConfig exists, "
    "under ZeRO-3.",
    why="from_pretrained shards the model only if ZeRO-3 is known by then. Otherwise every rank reads the whole "
    "checkpoint into host memory, in fp32 unless told otherwise: ranks times the checkpoint, which more GPUs "
    "only make worse.",
    fix="make TrainingArguments (or HfDeepSpeedConfig, or Accelerator) first, keep it alive, and load the model "
    "after it",
    since="every transformers with ZeRO-3",
    check=check,
)
