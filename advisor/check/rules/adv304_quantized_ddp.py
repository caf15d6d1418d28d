"""ADV304: a quantized model in several processes, not whole on each one's own card."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import (
    Load,
    alone_with_zero,
    configured_before,
    devices,
    finding,
    loads,
    place,
    quantized,
    shown,
    spread,
)
from advisor.check.project import Project, Run, Zero
from advisor.check.types import Doubt, Finding, Rule, Severity


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Quantized loads in runs of several processes, without stage 3 or FSDP, whose map is not one of the process's own card."""
    for run in project.runs:
        ranks = run.ranks
        zero = alone_with_zero(run) if run.zero3 is None and run.fsdp is None else None
        if zero is not None:
            yield from _one_process(run, zero)
            continue
        several = ranks.several or (not ranks.stated and ranks.node is not None and ranks.count != 1)
        if not several or ranks.words in ("", "python") or ranks.words.endswith("--cpu"):
            continue
        if run.zero3 is not None or run.fsdp is not None:
            continue
        for load in loads(run):
            how = quantized(run, load)
            if how is not None:
                yield from _judge(run, load, how.bits)


def _one_process(run: Run, zero: Zero) -> Iterator[Finding]:
    for load in loads(run):
        how, node = quantized(run, load), load.get(run, "device_map")
        if how is not None and node is not None and spread(node) == "several":
            yield finding(
                RULE, node,
                f"device_map={shown(node)} spreads the {how.bits}-bit model over several GPUs, and a run with DeepSpeed "
                f"({zero.said()}) is distributed, even of one process",
            )  # fmt: skip


def _judge(run: Run, load: Load, bits: int) -> Iterator[Finding]:
    node = load.get(run, "device_map")
    kind = spread(node)
    ranks = run.ranks
    many = f"{ranks.count} processes" if ranks.several else "a process for each GPU"
    who = f"{ranks.words} starts {many}" + (f" ({place(ranks.node)})" if ranks.node is not None else "")
    severity: Severity | None = None if ranks.several else "warning"
    if node is not None and kind == "several":
        text = f"device_map={shown(node)} spreads the {bits}-bit model over several GPUs, and {who}"
    elif node is not None and kind == "single" and not any(item.value in ("cpu", "disk") for _, item in devices(node)):
        text = f"device_map={shown(node)} puts the {bits}-bit model of every process on the same GPU, and {who}"
    elif kind == "none" and not load.inside and load.whole and configured_before(run, load.call) is False:
        node = load.node
        text = (
            f"the {bits}-bit model is loaded without a device_map before the process has its own GPU: all of "
            "them load onto the "
            f"first, and {who}"
        )
    else:
        return
    yield finding(RULE, node, text, severity=severity)


RULE = Rule(
    code="ADV304",
    name="quantized-without-rank-map",
    severity="error",
    what="A 4-bit or 8-bit model under DDP or ZeRO-1/2 that is not whole on each process's own GPU.",
    why="Quantized weights cannot be moved after the load, and DDP wants each replica on its own card. "
    "accelerate refuses: \"You can't train a model that has been loaded in 8-bit or 4-bit precision on multiple "
    'devices in any distributed mode", or "on a different device than the one you\'re training on". Older '
    'versions: "module must have its parameters and buffers on device cuda:0".',
    fix='device_map={"": PartialState().process_index} (or {"": int(os.environ["LOCAL_RANK"])}); a map '
    "over several GPUs needs a single process",
    since="every accelerate with bitsandbytes",
    check=check,
)
