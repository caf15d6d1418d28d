"""ADV203: an optimizer in the DeepSpeed config and another in the code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.check.judge import finding, place, shown
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import UNKNOWN, Called, Node

_OPTIMIZER = re.compile(r"\w*Adam\w*|SGD|Adafactor|Lion\w*|Adagrad|RMSprop|LAMB")
_PLAIN_OPTIM = frozenset({"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw", None})


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Runs whose DeepSpeed config names an optimizer and whose script makes, or asks for, another one."""
    for run in project.runs:
        for zero in run.zeros:
            named = zero.config.get("optimizer") if zero.config is not None else None
            if zero.config is not None and named is None:
                yield from _dummy(run, zero.config)
            if named is None or named.value in (None, UNKNOWN):
                continue
            kind = shown(named.get("type"))
            if zero.through == "initialize":
                yield from _initialize(run, named, kind)
            elif zero.through in ("accelerate", "plugin") and not run.arguments:
                yield from _prepared(run, named, kind)
            if run.arguments:
                yield from _trainer(run, named, kind)


def _initialize(run: Run, named: Node, kind: str) -> Iterator[Finding]:
    for call in run.script.named("initialize") if run.script is not None else ():
        node = run.value(call.get("optimizer"))
        if "deepspeed" in call.name and node is not None and isinstance(node.value, Called):
            yield finding(
                RULE, node,
                f"optimizer= is given to deepspeed.initialize, whose config names {kind} ({place(named)}): the "
                "one given wins, and "
                "the config's is not made",
            )  # fmt: skip


def _prepared(run: Run, named: Node, kind: str) -> Iterator[Finding]:
    script = run.script
    if script is None or not script.calls_any("prepare") or script.calls_any("DummyOptim"):
        return
    for call in script.calls:
        if _OPTIMIZER.fullmatch(call.last) and not call.last.endswith(("Config", "Kwargs")):
            yield finding(
                RULE,
                call.node,
                f"{call.last} is made here and the DeepSpeed config names {kind} ({place(named)}): accelerate "
                "takes one of them",
            )
            return


def _dummy(run: Run, config: Node) -> Iterator[Finding]:
    for call in run.script.named("DummyOptim") if run.script is not None else ():
        if not call.maybe:
            yield finding(
                RULE,
                call.node,
                f"DummyOptim stands for an optimizer that the DeepSpeed config ({place(config)}) does not name",
            )


def _trainer(run: Run, named: Node, kind: str) -> Iterator[Finding]:
    for call in run.script.calls if run.script is not None else ():
        if call.last.endswith("Trainer"):
            node = run.value(call.get("optimizers"))
            first = node.value[0] if node is not None and isinstance(node.value, tuple) and node.value else None
            if first is not None and isinstance(first.value, Called) and node is not None:
                yield finding(
                    RULE,
                    node,
                    f"optimizers= is given to {call.last}, and the DeepSpeed config names {kind} ({place(named)})",
                )
    optim = run.argument("optim")
    if optim is not None and isinstance(optim[0].value, str) and optim[0].value not in _PLAIN_OPTIM:
        yield finding(
            RULE,
            optim[0],
            f"optim={shown(optim[0])} is asked for, and the DeepSpeed config names {kind} ({place(named)}), "
            "which is the one made",
        )


RULE = Rule(
    code="ADV203",
    name="two-optimizers",
    severity="error",
    what="The DeepSpeed config names an optimizer and the code brings its own, or DummyOptim stands for one that "
    "no config names.",
    why='accelerate refuses both: "You cannot specify an optimizer in the config file and in the code at the '
    'same time." deepspeed.initialize takes the one in the code, and the Trainer the one in the config, without '
    "a word.",
    fix="keep one: delete the optimizer from the DeepSpeed config, or use the config's "
    "(accelerate.utils.DummyOptim in an accelerate script)",
    since="every DeepSpeed",
    check=check,
)
