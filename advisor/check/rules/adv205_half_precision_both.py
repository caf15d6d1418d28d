"""ADV205: bf16 and fp16 at once, or a different one in each place."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import deepspeed_configs, finding, place
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node, truth

_OTHER = {"fp16": "bf16", "bf16": "fp16"}


def check(project: Project) -> Iterator[Finding | Doubt]:
    """DeepSpeed configs by themselves; the Trainer's arguments; and each against the other and against accelerate's."""
    for config in deepspeed_configs(project):
        if _on(config, "fp16") and _on(config, "bf16"):
            node = config.get("bf16", "enabled") or config
            yield finding(
                RULE, node, f"bf16 and fp16 are both enabled (fp16: line {_line(config.get('fp16', 'enabled'))})"
            )
    for run in project.runs:
        yield from _arguments(run)
        for zero in run.zeros:
            if zero.config is not None and not (_on(zero.config, "fp16") and _on(zero.config, "bf16")):
                yield from _against(run, zero.config, zero.through)


def _arguments(run: Run) -> Iterator[Finding]:
    for arguments in run.arguments:
        both = [run.value(arguments.values.get(name)) for name in ("bf16", "fp16")]
        if (
            all(node is not None and node.value is not None and truth(node.value) is True for node in both)
            and both[1] is not None
        ):
            yield finding(RULE, both[1], "bf16 and fp16 are both on in the Trainer's arguments")


def _against(run: Run, config: Node, through: str) -> Iterator[Finding]:
    for kind, other in _OTHER.items():
        if not _on(config, kind):
            continue
        node = config.get(kind, "enabled")
        if node is None:
            continue
        wanted = run.argument(other)
        if run.arguments and wanted is not None and truth(wanted[0].value) is True:
            yield finding(
                RULE,
                wanted[0],
                f"{other} is on in the Trainer's arguments, and {kind} in the DeepSpeed config ({place(node)})",
            )
            continue
        plain = [
            one for one in run.arguments if one.whole and one.kind in ("TrainingArguments", "Seq2SeqTrainingArguments")
        ]
        named = run.argument(kind, f"{kind}_full_eval")
        if through == "arguments" and plain and kind not in run.options and (named is None or named[0].value is False):
            yield finding(
                RULE, named[0] if named is not None else plain[0].node,
                f"{kind} is enabled in the DeepSpeed config ({place(node)}), and the Trainer's arguments do not turn it on",
                fix=f"set {kind}=True in the arguments, or \"auto\" in the config",
            )  # fmt: skip
        mixed = _mixed(run)
        if mixed is not None and mixed.value == other:
            yield finding(
                RULE,
                mixed,
                f"mixed_precision is {other}, and {kind} is enabled in the DeepSpeed config ({place(node)})",
            )


def _mixed(run: Run) -> Node | None:
    """accelerate's mixed_precision: its flag, or its config's."""
    if run.launch is not None and run.launch.launcher == "accelerate" and "mixed_precision" in run.launch.flags:
        return run.launch.flags["mixed_precision"]
    return run.accelerate.get("mixed_precision") if run.accelerate is not None else None


def _on(config: Node, kind: str) -> bool:
    section = config.get(kind) or (config.get("bfloat16") if kind == "bf16" else None)
    node = section.get("enabled") if section is not None else None
    return node is not None and node.value is True


def _line(node: Node | None) -> int:
    return node.line if node is not None else 0


RULE = Rule(
    code="ADV205",
    name="half-precision-both",
    severity="error",
    what="bf16 and fp16 both on, in one place or one in each of two: DeepSpeed config, Trainer's arguments, "
    "accelerate's mixed_precision.",
    why='DeepSpeed: "bfloat16 and fp16 modes cannot be simultaneously enabled". The Trainer: "At most one of '
    'fp16 and bf16 can be True, but not both", or a list of config values that mismatch its arguments.',
    fix='choose one: bf16 where every card has compute capability 8.0 or more, else fp16; "auto" in the '
    "DeepSpeed config follows the arguments",
    since="every DeepSpeed",
    check=check,
)
