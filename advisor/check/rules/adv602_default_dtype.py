"""ADV602: a model loaded in fp32 because nothing says otherwise, or because the keyword is not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.check.judge import Load, devices, finding, loads, quantized
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node
from advisor.check.versions import Versions

RENAMED = "4.56"  # dtype= is read from here on; before, it goes unnoticed
NEW_DEFAULT = "5.0"  # the checkpoint's own dtype is the default from here on
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*[bB](?![a-zA-Z])")
_LARGE = re.compile(
    r"llama-?[23]|mistral|mixtral|falcon-\d|phi-?[34]|deepseek|command-r|gemma-?\d?-?(?:2|7|9|12|27)b|gpt-j|gpt-neox|dbrx|grok|yi-",
    re.IGNORECASE,
)  # fmt: skip


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Loads of large models without a dtype (unless transformers 5 is pinned), and dtype= where it is not read."""
    versions = Versions(project.pins)
    modern = versions.within("transformers", f">={NEW_DEFAULT}")
    four = versions.within("transformers", f"<{NEW_DEFAULT}")
    blind = versions.within("transformers", f"<{RENAMED}")
    for run in project.runs:
        for load in loads(run):
            if load.inside or not load.whole or load.kind.startswith(("?", "Fast")):
                continue
            new = load.get(run, "dtype")
            if new is not None and blind and load.get(run, "torch_dtype") is None:
                pin = versions.pin("transformers")
                yield finding(
                    RULE, new,
                    f"dtype= is not read by transformers{pin.specifier if pin else ''}: the model is loaded in "
                    "fp32 without a word",
                    severity="warning", fix="torch_dtype=, which is read by versions before 4.56",
                )  # fmt: skip
            elif not modern and load.get(run, "dtype", "torch_dtype") is None:
                yield from _judge(run, load, four)


def _judge(run: Run, load: Load, four: bool) -> Iterator[Finding]:
    placed = load.get(run, "max_memory") is not None or devices(load.get(run, "device_map"))
    if not four and (run.launch is not None or run.arguments or placed):
        return  # which version runs is not known, and whoever trains or places by hand has other worries
    if quantized(run, load) is not None or load.get(run, "quantization_config", "config") is not None:
        return
    if run.zeros:
        return  # DeepSpeed casts to the type of its config
    first = load.call.called.args[0] if load.call.called.args and load.call.last == "from_pretrained" else None
    model = run.value(first) or load.get(run, "pretrained_model_name_or_path", "model")
    size = _billions(model)
    generative = bool(re.search(r"CausalLM|ImageTextToText|Vision2Seq|ConditionalGeneration|LMHead", load.kind))
    if size is not None and size < 1:
        return
    if size is None and not (generative and (four or (isinstance(model, Node) and _LARGE.search(str(model.value))))):
        return
    if size is None and model is not None and isinstance(model.value, str) and not _LARGE.search(model.value):
        return
    what = load.kind if load.call.last == "pipeline" else f"{load.kind}.from_pretrained"
    much = f", {size:g}B parameters in {size * 4:.0f} GB" if size is not None else ""
    yield finding(
        RULE, load.node,
        f"{what} without a dtype loads in fp32 with transformers 4{much}, twice the 16-bit checkpoint",
        severity="warning" if four and not run.arguments else "info",  # mixed precision may want fp32 weights
    )  # fmt: skip


def _billions(model: Node | None) -> float | None:
    """Parameters in billions, when the model's name says so."""
    match = _SIZE.search(model.value) if model is not None and isinstance(model.value, str) else None
    return float(match.group(1)) if match is not None and len(match.group(1)) < 8 else None


RULE = Rule(
    code="ADV602",
    name="default-dtype",
    severity="warning",
    what="A large model is loaded without torch_dtype/dtype, or with dtype= in a transformers that does not know "
    "the word.",
    why="transformers 4 loads in fp32 unless told otherwise, whatever the checkpoint holds: twice the memory. "
    "Version 5 takes the checkpoint's dtype. dtype= is read since 4.56 and goes unnoticed before. Information "
    "where no version is pinned.",
    fix='torch_dtype=torch.bfloat16 (transformers 4), dtype=torch.bfloat16 (5), or "auto" for the checkpoint\'s own',
    since="transformers 4",
    check=check,
)
