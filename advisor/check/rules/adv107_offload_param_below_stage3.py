"""ADV107: parameter offload asked for below stage 3."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.edits import without
from advisor.check.judge import finding, shown
from advisor.check.project import Project, stage_of
from advisor.check.types import Doubt, Edit, Finding, Rule
from advisor.check.values import Node, integer

_NOWHERE = (None, "none", "None", "")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """offload_param in DeepSpeed configs, accelerate configs and flags, and DeepSpeedPlugin, beside a stage of 0, 1 or 2."""
    seen: list[Node] = [fact.root for fact in project.configs("deepspeed")]
    seen += [zero.config for run in project.runs for zero in run.zeros if zero.config is not None]
    for config in seen:
        section = config.get("zero_optimization", "offload_param")
        device = config.get("zero_optimization", "offload_param", "device") or section
        stage, place = stage_of(config)
        # It does nothing there, so taking it away changes nothing.
        edits = without(project.read.texts, section) if section is not None else ()
        yield from _judge(device, stage, place, edits)
        cpu = config.get("zero_optimization", "cpu_offload_params")
        if cpu is not None and cpu.value is True:
            yield from _judge(cpu, stage, place)
    for fact in project.configs("accelerate"):
        section = fact.root.get("deepspeed_config")
        if section is not None and section.get("deepspeed_config_file") is None:
            stage_node = section.get("zero_stage")
            if stage_node is not None:
                yield from _judge(section.get("offload_param_device"), integer(stage_node.value), stage_node)
    for run in project.runs:
        flags = run.launch.flags if run.launch is not None and run.launch.launcher == "accelerate" else {}
        if "offload_param_device" in flags and "zero_stage" in flags:
            yield from _judge(flags["offload_param_device"], integer(flags["zero_stage"].value), flags["zero_stage"])
        for call in run.script.named("DeepSpeedPlugin") if run.script is not None else ():
            stage_node = run.value(call.get("zero_stage"))
            if stage_node is not None:
                yield from _judge(run.value(call.get("offload_param_device")), integer(stage_node.value), stage_node)


def _judge(device: Node | None, stage: int | None, place: Node, edits: tuple[Edit, ...] = ()) -> Iterator[Finding]:
    if device is None or stage is None or stage >= 3 or device.value in _NOWHERE or not device.known:
        return
    if isinstance(device.value, dict) and not device.value:
        return
    yield finding(
        RULE, device,
        f"offload_param ({shown(device)}) is asked for with ZeRO stage {stage} (line {place.line}), which ignores it: the "
        "parameters stay whole on every GPU",
        edits=edits,
    )  # fmt: skip


RULE = Rule(
    code="ADV107",
    name="offload-param-below-stage-3",
    severity="error",
    what="offload_param, or offload_param_device, together with a ZeRO stage below 3.",
    why="Only stage 3 partitions parameters, so only stage 3 can offload them. Below it the setting is silently "
    "ignored, and the model must fit whole on every GPU.",
    fix="set the stage to 3, or delete offload_param",
    since="every DeepSpeed",
    check=check,
)
