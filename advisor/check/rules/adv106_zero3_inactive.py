"""ADV106: ZeRO-3 is asked for, but a map of one device loads the model whole, and nothing complains."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import configured_before, finding, loads, shown, spread
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Loads onto one device that come before the DeepSpeed config, in a run with stage 3."""
    for run in project.runs:
        for load in loads(run):
            zero = run.zero3_at(load.call)
            node = load.get(run, "device_map")
            if (
                node is None
                or zero is None
                or not zero.at_load
                or load.inside
                or spread(node) not in ("single", "rank")
            ):
                continue
            if configured_before(run, load.call) is False:
                yield finding(
                    RULE, node,
                    f"device_map={shown(node)} loads the whole model on each GPU before ZeRO-3 ({zero.said()}) is known, so "
                    "nothing is sharded at load, and no error says so",
                )  # fmt: skip
        yield from _forgotten(run)


def _forgotten(run: Run) -> Iterator[Finding]:
    """HfDeepSpeedConfig made and kept nowhere: transformers holds a weak reference, so it is gone before the load."""
    script, zero = run.script, run.zero3
    if script is None or zero is None or zero.through != "hf" or run.arguments:
        return
    for call in script.named("HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig"):
        if not call.kept and any(load.call.flow == call.flow and load.call.order > call.order for load in loads(run)):
            yield finding(
                RULE, call.node,
                f"{call.last} is kept nowhere, and transformers holds it weakly: it is gone before the model is loaded, so "
                f"nothing is sharded at load ({zero.said()})",
                fix=f"dschf = {call.last}(…), kept as long as the model",
            )  # fmt: skip


RULE = Rule(
    code="ADV106",
    name="zero3-silently-inactive",
    severity="error",
    what="A device_map of one device ({'': local_rank}, 0, \"cuda:0\") at a load that runs before the ZeRO-3 "
    "config is made; or an HfDeepSpeedConfig that nothing keeps.",
    why="The guard against device_map asks whether ZeRO-3 is on at the time of the load. In this order it is not "
    "yet, so nothing is raised, and each GPU and each process takes the whole model, as if ZeRO-3 had not been "
    "asked for.",
    fix="make TrainingArguments (or HfDeepSpeedConfig, or Accelerator) before from_pretrained, and delete device_map",
    since="every transformers with ZeRO-3",
    check=check,
)
