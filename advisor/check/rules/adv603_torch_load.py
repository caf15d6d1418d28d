"""ADV603: torch.load that runs what the file says."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.facts import Call
from advisor.check.judge import finding
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import UNKNOWN, Called, Option, truth
from advisor.check.versions import Versions

_DOWNLOADS = frozenset({"hf_hub_download", "cached_file", "download", "urlretrieve", "cached_download", "wget"})
SAFE_SINCE = "2.6"  # weights_only=True is the default from here on


def check(project: Project) -> Iterator[Finding | Doubt]:
    """torch.load with weights_only=False, or without it unless a torch is pinned whose default is safe."""
    versions = Versions(project.pins)
    safe = versions.within("torch", f">={SAFE_SINCE}")
    old = versions.within("torch", f"<{SAFE_SINCE}")
    for script in project.scripts:
        for call in script.named("load"):
            if call.name == "torch.load":
                yield from _judge(call, safe, old)


def _judge(call: Call, safe: bool, old: bool) -> Iterator[Finding]:
    node = call.get("weights_only")
    if node is not None:
        if node.value is not UNKNOWN and truth(node.value) is False and node.value is not None:
            yield finding(
                RULE, node, "torch.load with weights_only=False runs any code that the file holds",
                severity="warning" if _from_outside(call) else "info",
            )  # fmt: skip
        return
    if not safe and call.called.whole:
        yield finding(
            RULE, call.node, "torch.load without weights_only runs any code that the file holds in torch before 2.6",
            severity="warning" if old else "info",
        )  # fmt: skip


def _from_outside(call: Call) -> bool:
    """Whether the file is named in the code, on the command line, or downloaded; where it comes from a variable that
    cannot be followed, the program may have written it itself."""
    first = call.called.args[0].value if call.called.args else None
    if isinstance(first, Called) and first.last == "join":
        return all(isinstance(part.value, (str, Option)) for part in first.args)
    return isinstance(first, (str, Option)) or (isinstance(first, Called) and first.last in _DOWNLOADS)


RULE = Rule(
    code="ADV603",
    name="torch-load-of-pickles",
    severity="warning",
    what="torch.load with weights_only=False, or without weights_only where torch may be older than 2.6.",
    why="A .bin, .pt or .pth file is a pickle, and unpickling runs code. weights_only=True reads tensors alone; "
    "it is the default since torch 2.6. Information where it is not given and no torch is pinned, and where the "
    "file may be the program's own.",
    fix="torch.load(…, weights_only=True), or safetensors",
    since="torch before 2.6 for the default",
    check=check,
)
