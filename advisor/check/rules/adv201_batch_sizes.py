"""ADV201: batch sizes that do not multiply."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.facts import Call
from advisor.check.judge import deepspeed_configs, finding, place, shown
from advisor.check.project import Project, Run, Zero
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node, integer

_DEFAULTS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}  # transformers' own
_PLAIN = ("TrainingArguments", "Seq2SeqTrainingArguments")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Each DeepSpeed config by itself, then against the processes and the Trainer's arguments of the runs that use it."""
    for config in deepspeed_configs(project):
        yield from _itself(config)
    for run in project.runs:
        for zero in run.zeros:
            if zero.config is not None and not _parallel(zero.config):
                if not any(True for _ in _itself(zero.config)):
                    yield from _against_ranks(run, zero)
                yield from _against_arguments(run, zero)
        yield from _before_the_group(run)


def _numbers(config: Node) -> tuple[int | None, int | None, int | None]:
    """train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps, as far as they are numbers."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    total, micro, steps = (integer(node.value) if (node := config.get(name)) is not None else None for name in names)
    return total, micro, steps


def _parallel(config: Node) -> bool:
    """Whether ranks share a batch, so that it is not spread over all of them."""
    return any(
        config.get(name) is not None for name in ("tensor_parallel", "sequence_parallel_size", "autotp", "pipeline")
    )


def _itself(config: Node) -> Iterator[Finding]:
    total, micro, steps = _numbers(config)
    node = config.get("train_batch_size")
    if node is None or total is None or total <= 0:
        return
    parts = [part for part in (micro, steps) if part is not None and part > 0]
    product = 1
    for part in parts:
        product *= part
    if product > 0 and total % product:
        words = " * ".join(map(str, parts))
        yield finding(
            RULE,
            node,
            f"train_batch_size {total} is no multiple of {words} (micro batch, accumulation), whatever the world size",
        )


def _against_ranks(run: Run, zero: Zero) -> Iterator[Finding]:
    config, world = zero.config, run.ranks.count
    if config is None or world is None or world < 1:
        return
    total, micro, steps = _numbers(config)
    node = config.get("train_batch_size")
    if node is None or total is None:
        return
    who = f"{world} processes" + (f" ({place(run.ranks.node)})" if run.ranks.node is not None else "")
    if micro is not None and steps is not None and total != micro * steps * world:
        yield finding(
            RULE, node,
            f"train_batch_size {total} is not {micro} * {steps} * {world} = {micro * steps * world} (micro "
            "batch, accumulation, "
            f"{who})",
        )  # fmt: skip
    elif (micro is None) != (steps is None) and total % ((micro or steps or 1) * world):
        part = f"micro batch {micro}" if micro is not None else f"accumulation {steps}"
        yield finding(RULE, node, f"train_batch_size {total} is no multiple of {part} times {who}")
    elif micro is None and steps is None and total % world and config.get("train_micro_batch_size_per_gpu") is None:
        yield finding(RULE, node, f"train_batch_size {total} does not divide over {who}")


def _against_arguments(run: Run, zero: Zero) -> Iterator[Finding]:
    """What the Trainer refuses: a number of the DeepSpeed config that is not the one of its arguments."""
    config = zero.config
    if config is None or zero.through not in ("arguments", "accelerate") or not run.arguments:
        return
    auto = run.argument("auto_find_batch_size")
    if auto is not None and auto[0].value is not False:
        return
    found: dict[str, int | None] = {}
    for ours, theirs in (
        ("train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
        ("gradient_accumulation_steps", "gradient_accumulation_steps"),
    ):
        node = config.get(ours)
        value, words, at = _argument(run, theirs)
        found[theirs] = value
        number = integer(node.value) if node is not None else None
        if node is not None and number is not None and value is not None and number != value:
            yield finding(
                RULE, at or node, f"{words} is not the {ours} {number} of the DeepSpeed config ({place(node)})"
            )
            return
    node = config.get("train_batch_size")
    total, each, steps, world = integer(node.value) if node else None, *found.values(), run.ranks.count
    if node is None or total is None or each is None or steps is None:
        return
    if world is not None and total != each * steps * world:
        yield finding(
            RULE, node,
            f"train_batch_size {total} is not {each} * {steps} * {world} = {each * steps * world} "
            "(per_device_train_batch_size, "
            "gradient_accumulation_steps, processes)",
        )  # fmt: skip
    elif world is None and total % (each * steps):
        yield finding(
            RULE, node,
            f"train_batch_size {total} is no multiple of {each} * {steps} (per_device_train_batch_size, "
            "gradient_accumulation_steps), whatever the world size",
        )  # fmt: skip


def _argument(run: Run, name: str) -> tuple[int | None, str, Node | None]:
    """A number of the Trainer's arguments, in words, and where; its default where it is surely not given."""
    given = run.argument(name)
    if given is not None:
        return integer(given[0].value), f"{name}={shown(given[0])}", given[0]
    for arguments in run.arguments:
        if arguments.kind in _PLAIN and arguments.whole and name not in run.options:
            return _DEFAULTS[name], f"{name}={_DEFAULTS[name]} (the default)", arguments.node
    return None, "", None


def _before_the_group(run: Run) -> Iterator[Finding]:
    """HfDeepSpeedConfig with a pinned total: zero.Init reads it before the processes know each other, as a world of one."""
    if run.script is None:
        return
    makers = ("init_distributed", "init_process_group", "Accelerator", "PartialState", "initialize", "parsed")
    for call in run.script.named("HfDeepSpeedConfig"):
        config = run.value(call.get("config_file_or_dict") or (call.called.args[0] if call.called.args else None))
        zero = next((zero for zero in run.zeros if zero.through == "hf" and zero.config is not None), None)
        root = config if config is not None and config.items else zero.config if zero is not None else None
        if root is None or _ran_before(run, call, makers):
            continue
        total, micro, steps = _numbers(root)
        node = root.get("train_batch_size")
        if (
            node is not None
            and total is not None
            and micro
            and steps
            and total != micro * steps
            and total % (micro * steps) == 0
        ):
            yield finding(
                RULE, node,
                f"train_batch_size {total} is read when the model is loaded, as {micro} * {steps} * 1: "
                "HfDeepSpeedConfig is made "
                "before the process group, so the world size is 1",
                fix="leave train_batch_size out of a config that is registered before the load, or call "
                "deepspeed.init_distributed() first",
            )  # fmt: skip


def _ran_before(run: Run, call: Call, names: tuple[str, ...]) -> bool:
    made = (
        [one for one in run.script.calls if one.last in names or one.last.endswith("TrainingArguments")]
        if run.script
        else []
    )
    return any(one.flow != call.flow or one.order < call.order for one in made)


RULE = Rule(
    code="ADV201",
    name="batch-sizes-do-not-multiply",
    severity="error",
    what="train_batch_size is not micro batch size times accumulation times world size, or the DeepSpeed config "
    "and the Trainer's arguments name different numbers.",
    why='DeepSpeed checks it when it starts: "Check batch related parameters. train_batch_size is not equal to '
    'micro_batch_per_gpu * gradient_acc_step * world_size 16 != 1 * 8 * 1". The Trainer checks its own '
    'arguments against the config: "ds train_batch_size=32 vs hf train_batch_size (calculated)=4".',
    fix='write "auto" for all three in a config that the Trainer or accelerate reads, or make the numbers multiply',
    since="every DeepSpeed",
    check=check,
)
