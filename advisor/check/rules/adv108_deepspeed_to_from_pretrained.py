"""ADV108: deepspeed= given to from_pretrained."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import finding
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import UNKNOWN

# Whose from_pretrained is known to take no such argument; a class of somebody's own may well.
_OWNERS = frozenset({"transformers", "peft", "trl", "optimum", "unsloth"})
_NAMES = ("deepspeed", "deepspeed_config", "ds_config")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """from_pretrained and from_config of the libraries' classes with a DeepSpeed argument."""
    for script in project.scripts:
        for call in script.named("from_pretrained", "from_config"):
            if call.name.partition(".")[0] not in _OWNERS:
                continue
            node = call.get(*_NAMES)
            if node is not None and node.value is not None and node.value is not UNKNOWN:
                name = next(name for name in _NAMES if name in call.called.kwargs)
                yield finding(RULE, node, f"{name}= is no argument of from_pretrained: it does not turn DeepSpeed on")
            elif node is not None and node.value is UNKNOWN:
                name = next(name for name in _NAMES if name in call.called.kwargs)
                yield finding(RULE, node, f"{name}= is no argument of from_pretrained, whatever its value")


RULE = Rule(
    code="ADV108",
    name="deepspeed-to-from-pretrained",
    severity="error",
    what="from_pretrained(…, deepspeed=…).",
    why="from_pretrained takes no DeepSpeed config: it hands unknown arguments on to the model's class, which "
    "fails with an unexpected keyword, or keeps them in the config and ignores them.",
    fix="give it to TrainingArguments(deepspeed=…), or make HfDeepSpeedConfig(config) before the load and keep "
    "it alive",
    since="every transformers",
    check=check,
)
