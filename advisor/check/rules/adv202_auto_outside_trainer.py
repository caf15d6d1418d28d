"""ADV202: "auto" in a DeepSpeed config that nothing fills."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.facts import Call, ScriptFacts
from advisor.check.judge import doubt, finding
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node

# What accelerate fills by itself, without the Trainer.
_ACCELERATE_FILLS = frozenset(
    {
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save", "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_prefetch_bucket_size", "zero_optimization.stage3_param_persistence_threshold",
        "zero_optimization.offload_param.device", "zero_optimization.offload_param.nvme_path",
        "zero_optimization.offload_optimizer.device", "zero_optimization.offload_optimizer.nvme_path",
        "zero_optimization.stage3_gather_fp16_weights_on_model_save", "fp16.enabled", "bf16.enabled",
        "optimizer.params.lr", "optimizer.params.weight_decay", "optimizer.params.torch_adam", "scheduler.params.warmup_min_lr",
        "scheduler.params.warmup_max_lr", "scheduler.params.warmup_num_steps", "scheduler.params.total_num_steps",
    }
)  # fmt: skip


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Configs given to deepspeed.initialize or HfDeepSpeedConfig with any "auto", and to accelerate with one it leaves."""
    for run in project.runs:
        for zero in run.zeros:
            config = zero.config
            if config is None or zero.through == "arguments" or any(one.last == "parsed" for one in _calls(run.script)):
                continue
            found = list(_autos(config, "", 0))
            if zero.through in ("accelerate", "plugin"):
                if (
                    run.arguments
                    or any(call.last.endswith("Trainer") for call in _calls(run.script))
                    or run.script is None
                ):
                    continue
                found = [(name, node) for name, node in found if name not in _ACCELERATE_FILLS]
                reader = "accelerate fills only what it knows"
            elif zero.through == "initialize":
                reader = "deepspeed.initialize reads the config as it is"
            else:
                if run.arguments or any(call.last.endswith("Trainer") for call in _calls(run.script)):
                    continue
                reader = "HfDeepSpeedConfig and zero.Init take the config as it is"
            if not found:
                continue
            if run.script is not None and _written_into(run.script.path, project):
                yield doubt(RULE, found[0][1], f'{found[0][0]} is "auto"; whether the script fills it cannot be told')
                continue
            names = ", ".join(name for name, _ in found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
            yield finding(RULE, found[0][1], f'"auto" in {names} is filled by the Trainer alone, and {reader}')


def _calls(script: ScriptFacts | None) -> tuple[Call, ...]:
    return script.calls if script is not None else ()


def _written_into(path: str, project: Project) -> bool:
    """Whether the script writes into a config before it is used: it may well fill the values."""
    text = project.read.texts.get(path, "")
    return 'train_micro_batch_size_per_gpu"]' in text or 'train_batch_size"]' in text or "train_batch_size']" in text


def _autos(node: Node, name: str, depth: int) -> Iterator[tuple[str, Node]]:
    if depth > 6:
        return
    for key, item in node.items.items():
        inner = f"{name}.{key}" if name else str(key)
        if item.value == "auto":
            yield inner, item
        elif item.items:
            yield from _autos(item, inner, depth + 1)


RULE = Rule(
    code="ADV202",
    name="auto-outside-trainer",
    severity="error",
    what='"auto" values in a DeepSpeed config that goes to deepspeed.initialize, HfDeepSpeedConfig, or '
    "accelerate without the Trainer.",
    why='"auto" is no word of DeepSpeed: the Trainer replaces it by its arguments. By hand the text reaches '
    "DeepSpeed, which fails on it, or takes its default without a word (bf16.enabled: false). accelerate fills "
    "batch sizes, clipping, buckets, learning rate and weight decay, and refuses the rest.",
    fix="write numbers (buckets: hidden_size^2, 0.9 * hidden_size^2, 10 * hidden_size), or let the Trainer read "
    "the config",
    since="every DeepSpeed",
    check=check,
)
