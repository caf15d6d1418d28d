"""What several rules ask of a run: which calls load a model, where its parts go, what was quantized, what ran before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from advisor.check.combine import is_arguments
from advisor.check.facts import Call
from advisor.check.project import Project, Run, Zero
from advisor.check.types import Doubt, Edit, Finding, Rule, Severity
from advisor.check.values import UNKNOWN, Called, Dotted, Node, Rank, truth

_MODEL = re.compile(r"Model|For[A-Z]|LMHead|FastLanguage|FastVision|\?")
_NO_MODEL = re.compile(
    r"^Peft|Tokenizer|Config|Processor|UNet|ControlNet|Transformer2D|Diffusion|Pipeline|Sentence|Extractor|Scheduler|Adapter|"
    r"Autoencoder|Dataset|TF[A-Z]|Flax"
)
SPREADING = ("auto", "balanced", "balanced_low_0", "sequential")


def finding(
    rule: Rule, node: Node, message: str, fix: str | None = None, severity: Severity | None = None,
    edits: tuple[Edit, ...] = (),
) -> Finding:  # fmt: skip
    """A finding of ``rule`` where ``node`` stands."""
    return Finding(
        code=rule.code, severity=severity or rule.severity, path=node.path, line=node.key_line or node.line,
        column=node.column, message=message, fix=rule.fix if fix is None else fix, edits=edits,
    )  # fmt: skip


def doubt(rule: Rule, node: Node, message: str) -> Doubt:
    """What ``rule`` could not tell where ``node`` stands."""
    return Doubt(path=node.path, line=node.key_line or node.line, message=message, code=rule.code)


def place(node: Node) -> str:
    """``ds.json, line 4``: where a thing stands, for a message about another place."""
    return f"{PurePath(node.path).name}, line {node.line}"


def shown(node: Node | None) -> str:
    """A value as its language writes it, as far as it is known, in few characters."""
    return "" if node is None else _words(node.value, 0)[:80]


def _words(value: object, depth: int) -> str:
    if depth > 3:
        return "…"
    match value:
        case dict():
            parts = [
                f"{_words(key, depth + 1)}: {_words(item.value, depth + 1)}" for key, item in list(value.items())[:4]
            ]
            return "{" + ", ".join([*parts, *(["…"] if len(value) > 4 else [])]) + "}"
        case tuple():
            return "[" + ", ".join(_words(item.value, depth + 1) for item in value[:4]) + "]"
        case Rank(source=source):
            return source
        case Dotted(name=name):
            return name
        case Called(name=name):
            return f"{name.rpartition('.')[2]}(…)"
        case str() | int() | float() | bool() | None:
            return repr(value)
    return "…"


@dataclass(frozen=True, slots=True)
class Load:
    """One load of a model: its arguments by name, and the call of the flow that it happens in."""

    call: Call
    kwargs: Mapping[str, Node]
    whole: bool
    inside: bool = False  # the Trainer loads it, so its arguments are there already

    @property
    def node(self) -> Node:
        """Where it stands."""
        return self.call.node

    def get(self, run: Run, *names: str) -> Node | None:
        """The first of these arguments that is given, with options put in."""
        for name in names:
            if name in self.kwargs:
                return run.value(self.kwargs[name])
        return None

    @property
    def kind(self) -> str:
        """The class that loads: ``AutoModelForCausalLM``."""
        return self.call.name.removesuffix(".from_pretrained").rpartition(".")[2]


def loads(run: Run) -> Iterator[Load]:
    """Every load of a model: ``X.from_pretrained``, ``pipeline``, and what a Trainer is told to load with."""
    for call in run.script.calls if run.script is not None else ():
        called = call.called
        if call.last == "from_pretrained":
            owner = call.name.removesuffix(".from_pretrained").rpartition(".")[2]
            if _MODEL.search(owner) and not _NO_MODEL.search(owner) and (owner != "?" or "device_map" in called.kwargs):
                yield Load(call, called.kwargs, called.whole)
        elif call.last == "pipeline" and "model" in {*called.kwargs, *(["model"] if len(called.args) > 1 else [])}:
            inner = run.value(called.kwargs.get("model_kwargs"))
            more = {str(key): node for key, node in inner.items.items()} if inner is not None else {}
            model = run.value(called.kwargs.get("model") or (called.args[1] if len(called.args) > 1 else None))
            if model is None or isinstance(model.value, str) or not model.known:
                yield Load(call, {**called.kwargs, **more}, called.whole)
        elif is_arguments(call.name, run.script) or call.last.endswith("Trainer"):
            inner = run.value(called.kwargs.get("model_init_kwargs"))
            if inner is not None and inner.items:
                yield Load(call, {str(key): node for key, node in inner.items.items()}, True, inside=True)


def spread(node: Node | None) -> str:
    """Where a device_map puts a model: none, single, rank (this process's own card), several, or unknown."""
    if node is None or node.value is None:
        return "none"
    value = node.value
    if value is UNKNOWN:
        return "unknown"
    if isinstance(value, Rank):
        return "rank"
    if isinstance(value, str):
        return "several" if value in SPREADING else "rank" if value == "cuda" else "single"
    if isinstance(value, (int, float)):
        return "single"
    if isinstance(value, Called):
        if value.last in ("infer_auto_device_map",):
            return "several"
        return "single" if value.last == "device" and value.args and value.args[0].known else "unknown"
    if isinstance(value, dict):
        if any(isinstance(item.value, Rank) for item in value.values()):
            return "rank"
        known = {str(_device(item.value)) for item in value.values() if item.known}
        if len(known) > 1:
            return "several"
        return "single" if known and all(item.known for item in value.values()) else "unknown"
    return "unknown"


def _device(value: object) -> object:
    return value.removeprefix("cuda:") if isinstance(value, str) else value


def devices(node: Node | None) -> list[tuple[object, Node]]:
    """The entries of an explicit map: module and where it goes."""
    return list(node.items.items()) if node is not None else []


@dataclass(frozen=True, slots=True)
class Quantized:
    """A load in 4 or 8 bits: ``node`` says where, ``config`` holds the arguments of its BitsAndBytesConfig."""

    bits: int
    node: Node
    config: Mapping[str, Node]
    whole: bool


def quantized(run: Run, load: Load) -> Quantized | None:
    """How bitsandbytes quantizes a load; None when it surely does not, or cannot be told."""
    for name, bits in (("load_in_4bit", 4), ("load_in_8bit", 8)):
        node = load.get(run, name)
        if node is not None and truth(node.value):
            return Quantized(bits, node, load.kwargs, load.whole)
    config = load.get(run, "quantization_config", "bnb_config")
    return None if config is None else bits_of(run, config)


def bits_of(run: Run, config: Node) -> Quantized | None:
    """What a BitsAndBytesConfig, or a dict with its arguments, asks for."""
    if isinstance(config.value, Called) and config.value.last == "BitsAndBytesConfig":
        kwargs, whole = config.value.kwargs, config.value.whole
    elif isinstance(config.value, dict):
        kwargs, whole = {str(key): node for key, node in config.value.items()}, True
    else:
        return None
    for name, bits in (("load_in_4bit", 4), ("load_in_8bit", 8)):
        node = run.value(kwargs.get(name))
        if node is not None and truth(node.value):
            return Quantized(bits, replace(node, path=node.path), kwargs, whole)
    return None


def configured_before(run: Run, call: Call) -> bool | None:
    """Whether what turns DeepSpeed on was made before ``call`` ran; None when their order cannot be told.

    That is the Trainer's arguments, an Accelerator, HfDeepSpeedConfig, or DeepSpeedPlugin.
    """
    script = run.script
    if script is None:
        return None
    makers = ("Accelerator", "HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig", "DeepSpeedPlugin", "parsed")
    made = [one for one in script.calls if one.last in makers or is_arguments(one.name, script)]
    same = [one for one in made if one.flow == call.flow]
    if any(one.order < call.order for one in same):
        return True
    handed = any(re.search(r"arg|accelerator|config|cfg", name) for name in script.given.get(call.flow, ()))
    if handed or not same:
        return None
    return False


def alone_with_zero(run: Run) -> Zero | None:
    """ZeRO-1 or 2 in a run that nothing is seen to launch. accelerate calls such a run distributed whatever the number of its
    processes (``distributed_type`` is DEEPSPEED), and refuses a model on several devices there, too."""
    if run.launch is not None or run.ranks.node is not None:
        return None
    return next((zero for zero in run.zeros if zero.stage in (1, 2) and zero.through != "initialize"), None)


def deepspeed_configs(project: Project) -> Iterator[Node]:
    """Every DeepSpeed config once: files, parts of files, and dicts in scripts that a run uses."""
    seen: set[tuple[str, int, int]] = set()
    used = [zero.config for run in project.runs for zero in run.zeros if zero.config is not None]
    for config in [*(fact.root for fact in project.configs("deepspeed")), *used]:
        key = (config.path, config.line, config.column)
        if key not in seen:
            seen.add(key)
            yield config


def dtype(node: Node | None) -> str | None:
    """A dtype by its long name: ``torch.bfloat16``, "bf16" and "bfloat16" are one; None when it cannot be told."""
    if node is None:
        return None
    text = node.value.name if isinstance(node.value, Dotted) else node.value
    if not isinstance(text, str):
        return None
    word = text.removeprefix("torch.").lower()
    short = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
    return short.get(word, word)
