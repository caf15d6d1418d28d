"""ADV204: numbers of the DeepSpeed config that are not the Trainer's."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import finding, place, shown
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node, number

# The key in the DeepSpeed config, the Trainer's argument, its default.
_PAIRS = (
    (("gradient_clipping",), "max_grad_norm", 1.0),
    (("optimizer", "params", "lr"), "learning_rate", 5e-5),
    (("optimizer", "params", "eps"), "adam_epsilon", 1e-8),
    (("optimizer", "params", "weight_decay"), "weight_decay", 0.0),
    (("scheduler", "params", "warmup_max_lr"), "learning_rate", 5e-5),
)
# What an accelerate config may not say beside a deepspeed_config_file.
_IGNORED = ("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
            "offload_param_device", "zero3_save_16bit_model")  # fmt: skip


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Runs of the Trainer with a DeepSpeed config that holds numbers instead of "auto"; accelerate configs that say twice."""
    for run in project.runs:
        for zero in run.zeros:
            if zero.config is not None and zero.through in ("arguments", "accelerate") and run.arguments:
                yield from _pairs(run, zero.config)
    for fact in project.configs("accelerate"):
        section = fact.root.get("deepspeed_config")
        if section is None or section.plain("deepspeed_config_file") in (None, "none", ""):
            continue
        for name in _IGNORED:
            node = section.get(name)
            if node is not None and node.value is not None:
                yield finding(
                    RULE, node,
                    f"{name} {shown(node)} stands beside deepspeed_config_file, and accelerate accepts it only in that file",
                    fix=f"delete {name} here and set it in the DeepSpeed file",
                )  # fmt: skip
        mixed = fact.root.get("mixed_precision")
        if mixed is not None and isinstance(mixed.value, (str, bool)) and not _conflicts(project, fact.root, mixed):
            yield finding(
                RULE, mixed,
                f"mixed_precision {shown(mixed)} stands beside deepspeed_config_file, and accelerate accepts it only "
                "in that file",
                fix="delete mixed_precision here and enable bf16 or fp16 in the DeepSpeed file",
            )  # fmt: skip


def _conflicts(project: Project, root: Node, mixed: Node) -> bool:
    """Whether the DeepSpeed file enables the other type, which ADV205 says."""
    other = {"fp16": "bf16", "bf16": "fp16"}.get(str(mixed.value), "")
    used = [
        zero.config for run in project.runs for zero in run.zeros if run.accelerate is root and zero.config is not None
    ]
    return any(config.plain(other, "enabled") is True for config in used)


def _pairs(run: Run, config: Node) -> Iterator[Finding]:
    for keys, name, default in _PAIRS:
        node = config.get(*keys)
        theirs = number(node.value) if node is not None else None
        if node is None or theirs is None:
            continue
        given = run.argument(name)
        if given is not None:
            ours, at, words = number(given[0].value), given[0], f"{name}={shown(given[0])}"
        else:
            plain = [
                one
                for one in run.arguments
                if one.whole and one.kind in ("TrainingArguments", "Seq2SeqTrainingArguments")
            ]
            if not plain or name in run.options:
                continue
            ours, at, words = default, plain[0].node, f"{name}={default} (the default)"
        if ours is not None and float(ours) != float(theirs):
            yield finding(
                RULE, at, f"{words} is not the {'.'.join(keys)} {theirs} of the DeepSpeed config ({place(node)})"
            )


RULE = Rule(
    code="ADV204",
    name="config-mismatches-arguments",
    severity="error",
    what="Learning rate, weight decay, epsilon or clipping have one number in the DeepSpeed config and another "
    "in the Trainer's arguments; or an accelerate config repeats what its deepspeed_config_file must say.",
    why='The Trainer refuses to start: "Please correct the following DeepSpeed config values that mismatch '
    'TrainingArguments values". accelerate does the same for variables beside a deepspeed_config_file.',
    fix='write "auto" in the DeepSpeed config, so that the arguments decide',
    since="every transformers with DeepSpeed",
    check=check,
)
