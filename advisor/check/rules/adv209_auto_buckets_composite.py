"""ADV209: buckets left to "auto" for a model of several parts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from advisor.check.judge import finding, loads
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.versions import Versions

FIXED = "4.46"
_BUCKETS = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
_COMPOSITE = re.compile(
    r"ImageTextToText|Vision2Seq|Idefics|Llava|PaliGemma|Blip|Kosmos|Qwen2VL|Qwen2_5_VL|Mllama|Fuyu|Chameleon"
)
_NAMED = re.compile(r"idefics|llava|paligemma|blip2|qwen2(?:\.5)?-vl|fuyu|chameleon|internvl", re.IGNORECASE)


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Runs with stage 3 and "auto" buckets that load a vision-language model, unless transformers is pinned to a fixed one."""
    versions = Versions(project.pins)
    if versions.within("transformers", f">={FIXED}"):
        return
    old = versions.within("transformers", f"<{FIXED}")
    for run in project.runs:
        zero = run.zero3
        section = zero.config.get("zero_optimization") if zero is not None and zero.config is not None else None
        autos = [name for name in _BUCKETS if section is not None and section.plain(name) == "auto"]
        if not autos or section is None:
            continue
        named = run.argument("model_name_or_path", "base_model")
        texts = [load.kind for load in loads(run) if _COMPOSITE.search(load.kind)]
        for load in loads(run):
            model = run.value(load.call.called.args[0]) if load.call.called.args else None
            texts += [str(model.value)] if model is not None and _NAMED.search(str(model.value)) else []
        texts += [str(named[0].value)] if named is not None and _NAMED.search(str(named[0].value)) else []
        node = section.get(autos[0])
        if texts and node is not None:
            yield finding(
                RULE, node,
                f"{', '.join(autos)} \"auto\" is taken from hidden_size, which the config of {texts[0]} has "
                "only inside text_config",
                severity="error" if old else "info",
            )  # fmt: skip


RULE = Rule(
    code="ADV209",
    name="auto-buckets-of-composite-model",
    severity="error",
    what='reduce_bucket_size and its kin are "auto" in a ZeRO-3 config, and the model\'s config is made of '
    "parts (vision and text).",
    why="transformers before 4.46 looks for hidden_size at the top of the model's config alone: \"The model's "
    'config file has neither `hidden_size` nor `hidden_sizes` entry". Information unless an older version is '
    "pinned.",
    fix="write numbers from text_config.hidden_size h: h*h, 0.9*h*h and 10*h; or transformers>=4.46",
    since="transformers before 4.46",
    check=check,
)
