"""ADV601: versions that are known not to work together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.check.judge import finding, loads, quantized
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import UNKNOWN, Node
from advisor.check.versions import Versions
from advisor.software.known_bad import table


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Rows of known_bad.toml that hold for every version the pins admit, in a project that does what the row is about."""
    versions = Versions(project.pins)
    if not versions.pins:
        return
    tags = _tags(project)
    for row in table():
        if row.card is not None or not set(row.when) <= tags:
            continue
        named = {package: specifier for package, specifier in row.packages.items() if specifier != ">=0"}
        if not named or not all(versions.within(package, specifier) for package, specifier in named.items()):
            continue
        pins = [pin for package in named if (pin := versions.pin(package)) is not None]
        if "strict-zip" in row.id and _scheduled(project):
            continue
        words = " with ".join(f"{pin.package}{pin.specifier}" for pin in pins)
        yield finding(RULE, pins[0].node, f"{words}: {row.happens}", fix=row.fix)


def _tags(project: Project) -> set[str]:
    """What the project does, in the words of known_bad.toml."""
    found: set[str] = set()
    for run in project.runs:
        found |= _of(run)
    if any(True for _ in project.configs("deepspeed")):
        found.add("deepspeed")
    if any(pin.package == "deepspeed" for pin in project.pins):
        found.add("deepspeed")
    return found


def _of(run: Run) -> set[str]:
    found: set[str] = set()
    script = run.script
    calls = script.calls if script is not None else ()
    if run.arguments or any(call.last.endswith("Trainer") for call in calls):
        found.add("trainer")
    if run.zeros:
        found.add("deepspeed")
    if run.ranks.several:
        found.add("several_gpus")
    lora = run.argument("use_peft", "lora_r", "lora_rank", "adapter", "finetuning_type")
    if any(call.last in ("LoraConfig", "get_peft_model") for call in calls):
        found.add("lora")
    if lora is not None and re.fullmatch(r"true|q?lora|\d+", str(lora[0].value).lower()):
        found.add("lora")
    if any(quantized(run, load) is not None for load in loads(run)):
        found.add("qlora")
    for zero in run.zeros:
        device: Node | None = (
            zero.config.get("zero_optimization", "offload_optimizer", "device") if zero.config else None
        )
        if device is not None and device.value not in ("none", None, UNKNOWN):
            found.add("offload_optimizer")
    return found


def _scheduled(project: Project) -> bool:
    """Whether every DeepSpeed config names its own optimizer and scheduler, which goes around the strict zip."""
    configs = [zero.config for run in project.runs for zero in run.zeros if zero.config is not None]
    return bool(configs) and all(config.get("optimizer") and config.get("scheduler") for config in configs)


RULE = Rule(
    code="ADV601",
    name="version-trap",
    severity="warning",
    what="The project pins versions that are known to fail together for what it does (LoRA under DeepSpeed, "
    "resuming, quantization …).",
    why="Each row is a reported failure with its source; the list is the one that `advisor apply` holds against "
    "the installed versions. A row counts only when every version that the pins admit is affected.",
    fix="pin other versions, as the finding says",
    since="as the finding says",
    check=check,
)
