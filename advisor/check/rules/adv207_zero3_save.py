"""ADV207: a save under ZeRO-3 that holds no weights."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.facts import Call
from advisor.check.judge import deepspeed_configs, finding, place
from advisor.check.project import Project, Run, Zero, stage_of
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Called, Node, truth

_SAVES = frozenset({"save_model", "save_16bit_model", "get_state_dict", "save_pretrained", "save", "_save"})
_CARES = ("GatheredParameters", "get_state_dict", "_zero3_consolidated_16bit_state_dict", "is_deepspeed_zero3_enabled")
_KEYS = ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Saves in runs with stage 3 whose config does not consolidate; state_dict() taken directly, whatever it says."""
    reported: set[tuple[str, int]] = set()
    for run in project.runs:
        for one in _saves(run):
            zero = run.zero3
            if zero is not None:
                reported.add((zero.node.path, zero.node.line))
            yield one
    for config in deepspeed_configs(project):
        stage, place_of = stage_of(config)
        node = next((found for key in _KEYS if (found := config.get("zero_optimization", key)) is not None), None)
        if stage == 3 and node is not None and node.value is False and (place_of.path, place_of.line) not in reported:
            yield finding(
                RULE, node, "consolidated saves are off: a checkpoint holds shards, which zero_to_fp32.py has to join",
                severity="info",
            )  # fmt: skip


def _saves(run: Run) -> Iterator[Finding]:
    for call in run.script.calls if run.script is not None else ():
        zero = run.zero3_at(call) if call.last in _SAVES else None
        if zero is None:
            continue
        gathers, node = _gathers(run, zero)
        if call.last in ("save_model", "save_16bit_model") and gathers is False:
            yield finding(RULE, call.node, _words(f"{call.last}()", node, zero), severity="warning")
        elif call.last == "get_state_dict" and gathers is False:
            yield finding(RULE, call.node, _words("get_state_dict()", node, zero))
        elif call.last == "save_pretrained" and _of_model(call) and not _gathered(run, call):
            yield finding(
                RULE, call.node,
                f"save_pretrained() under ZeRO-3 ({zero.said()}) saves what is left on one rank: empty tensors",
                fix="trainer.save_model(), or save_pretrained(…, state_dict=accelerator.get_state_dict(model))",
            )  # fmt: skip
        elif call.last == "_save" and _direct(run, call):
            yield finding(
                RULE, call.node,
                f"trainer._save(state_dict=model.state_dict()) under ZeRO-3 ({zero.said()}) saves empty tensors",
                fix="trainer.save_model(), with stage3_gather_16bit_weights_on_model_save",
            )  # fmt: skip
        elif call.last == "save" and _state_dict(run, call):
            yield finding(
                RULE, call.node,
                f"torch.save(model.state_dict()) under ZeRO-3 ({zero.said()}) saves empty tensors: each rank holds a part",
                fix="trainer.save_model() or accelerator.get_state_dict(model), or save_checkpoint() and zero_to_fp32.py",
            )  # fmt: skip


def _gathers(run: Run, zero: Zero) -> tuple[bool | None, Node | None]:
    """Whether the config consolidates on save, and where it says so."""
    if zero.config is not None:
        section = zero.config.get("zero_optimization")
        for key in _KEYS:
            node = section.get(key) if section is not None else None
            if node is not None:
                return (None if node.value == "auto" else truth(node.value)), node
        return (False if section is not None and section.items else None), None
    if run.accelerate is not None:
        node = run.accelerate.get("deepspeed_config", "zero3_save_16bit_model")
        return (truth(node.value) if node is not None else False), node
    if run.launch is not None and zero.through == "accelerate":
        node = run.launch.flags.get("zero3_save_16bit_model")
        return (truth(node.value) if node is not None else False), node
    return None, None


def _words(what: str, node: Node | None, zero: Zero) -> str:
    said = f"is off ({place(node)})" if node is not None else "is not set"
    return (
        f"{what} under ZeRO-3 ({zero.said()}) gives no consolidated weights: "
        f"stage3_gather_16bit_weights_on_model_save {said}"
    )


def _of_model(call: Call) -> bool:
    """Whether what is saved is a model: by the name of what it comes from, else not known and left alone."""
    owner = call.name.removesuffix(".save_pretrained")
    if owner.endswith(("get_peft_model.()", "unwrap_model.()")):
        return True
    return owner.endswith(".from_pretrained.()") and ("Model" in owner or "For" in owner) and "Tokenizer" not in owner


def _gathered(run: Run, call: Call) -> bool:
    given = run.value(call.get("state_dict"))
    if given is not None and isinstance(given.value, Called) and given.value.last == "state_dict":
        return False
    inside = run.script is not None and run.script.calls_any(*_CARES)
    return inside or given is not None or not call.called.whole


def _direct(run: Run, call: Call) -> bool:
    """Whether the Trainer is handed what some state_dict() gave, and nothing in the script thinks of ZeRO-3."""
    script = run.script
    if script is None or call.get("state_dict") is None or script.calls_any(*_CARES):
        return False
    if any(one.last == "save_model" and one.function == call.function for one in script.calls):
        return False  # the usual function for both: save_model where DeepSpeed is on, this where it is not
    return any(one.last == "state_dict" and one.meets(call) and one.order < call.order for one in script.calls)


def _state_dict(run: Run, call: Call) -> bool:
    if not call.name.startswith("torch.") or run.script is None or run.script.calls_any(*_CARES):
        return False
    first = call.called.args[0].value if call.called.args else None
    return isinstance(first, Called) and first.last == "state_dict" and "optim" not in first.name


RULE = Rule(
    code="ADV207",
    name="zero3-save-without-weights",
    severity="error",
    what="Under ZeRO-3, a model is saved while stage3_gather_16bit_weights_on_model_save is off, or through its "
    "own state_dict().",
    why="Each rank holds a part of every parameter, and model.state_dict() sees tensors of no elements: files of "
    "a few hundred kB, and a size mismatch against shape [0] at the next load. The Trainer then writes a "
    "DeepSpeed checkpoint instead; accelerate's get_state_dict refuses.",
    fix="set stage3_gather_16bit_weights_on_model_save (accelerate: zero3_save_16bit_model) to true when 2 bytes "
    "a parameter fit in host memory; else run zero_to_fp32.py on the checkpoint afterwards",
    since="DeepSpeed 0.6.5, before as stage3_gather_fp16_weights_on_model_save",
    check=check,
)
