"""ADV206: bf16, tf32 or FlashAttention-2 on a card that has none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.check.judge import deepspeed_configs, finding, loads
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node, truth

# Names that clusters give cards of compute capability below 8.0, as Slurm writes them.
_OLD_CARDS = re.compile(
    r"(?:^|[:_\-,&|(])(v100s?|p100|p40|t4|k80|rtx_?[68]000|rtx_?20[678]0(?:_?ti|_?super)?|gtx\w*|titan\w*)(?![a-z0-9])",
    re.I,
)


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Every run on the target machine when it is given; else runs of Slurm scripts that name an older card."""
    target = project.settings.hardware
    old = target is not None and target.compute_capability is not None and target.compute_capability < (8, 0)
    if target is not None and old:
        card = f"{target.name} has compute capability {'.'.join(map(str, target.compute_capability or ()))}"
        for config in deepspeed_configs(project):
            yield from _deepspeed(config, card)
    for run in project.runs:
        name = None if target is not None else _asked(run)
        if target is not None and old:
            yield from _run(run, card)
        elif name is not None:
            yield from _run(run, f"the job asks for {name}, a card of compute capability below 8.0")
            for zero in run.zeros:
                if zero.config is not None:
                    yield from _deepspeed(
                        zero.config, f"the job asks for {name}, a card of compute capability below 8.0"
                    )


def _asked(run: Run) -> str | None:
    """The older card that a Slurm script asks for."""
    for key in ("gres", "gpus", "gpus_per_node", "constraint", "gpus_per_task"):
        node = run.launch.slurm.get(key) if run.launch is not None else None
        match = _OLD_CARDS.search(str(node.value)) if node is not None and isinstance(node.value, str) else None
        if match is not None:
            return match.group(1)
    return None


def _run(run: Run, card: str) -> Iterator[Finding]:
    for name in ("bf16", "bf16_full_eval", "tf32"):
        found = run.argument(name)
        if found is not None and truth(found[0].value) is True:
            yield finding(RULE, found[0], f"{name} is on, and {card}")
    mixed = run.accelerate.get("mixed_precision") if run.accelerate is not None else None
    if run.launch is not None and run.launch.launcher == "accelerate":
        mixed = run.launch.flags.get("mixed_precision", mixed)
    for call in run.script.named("Accelerator") if run.script is not None else ():
        mixed = run.value(call.get("mixed_precision")) or mixed
    if mixed is not None and mixed.value == "bf16":
        yield finding(RULE, mixed, f"mixed_precision is bf16, and {card}")
    for load in loads(run):
        node = load.get(run, "attn_implementation")
        if node is not None and node.value in ("flash_attention_2", "flash_attention_3"):
            yield finding(
                RULE, node, f"{node.value} needs compute capability 8.0, and {card}", fix='attn_implementation="sdpa"'
            )


def _deepspeed(config: Node, card: str) -> Iterator[Finding]:
    node = config.get("bf16", "enabled") or config.get("bfloat16", "enabled")
    if node is not None and node.value is True:
        yield finding(RULE, node, f"bf16 is enabled, and {card}")


RULE = Rule(
    code="ADV206",
    name="precision-unsupported-by-card",
    severity="error",
    what="bf16 or tf32 training, or FlashAttention-2, on a card of compute capability below 8.0 (V100, T4, RTX "
    "20, Quadro RTX).",
    why='The Trainer refuses: "Your setup doesn\'t support bf16/gpu." The card is the one of --hardware, or the '
    "one that a Slurm script asks for.",
    fix='fp16 instead of bf16 ("auto" or fp16.enabled in the DeepSpeed config), and no tf32',
    since="every transformers",
    check=check,
)
