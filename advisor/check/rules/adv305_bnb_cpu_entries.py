"""ADV305: parts of a quantized model on CPU or disk."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import Load, devices, finding, loads, quantized, shown
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import UNKNOWN, Node, truth

_ELSEWHERE = ("cpu", "disk")


def check(project: Project) -> Iterator[Finding | Doubt]:
    """Quantized loads whose map, or max_memory, sends modules to CPU or disk without llm_int8_enable_fp32_cpu_offload."""
    for run in project.runs:
        for load in loads(run):
            how = quantized(run, load)
            if how is None:
                continue
            flag = run.value(how.config.get("llm_int8_enable_fp32_cpu_offload"))
            allowed = (
                truth(flag.value)
                if flag is not None and flag.value is not UNKNOWN
                else None
                if flag is not None
                else False
            )
            if allowed is None or not how.whole:
                continue
            yield from _judge(run, load, how.bits, allowed)


def _judge(run: Run, load: Load, bits: int, allowed: bool) -> Iterator[Finding]:
    node = load.get(run, "device_map")
    entries = devices(node)
    away = [(name, item) for name, item in entries if item.value in _ELSEWHERE and name != "lm_head"]
    # A map of the CPU alone is no spill: bitsandbytes has kernels for it.
    if node is not None and away and not all(item.value == "cpu" for _, item in entries):
        name, item = away[0]
        where = f"device_map sends {name!r} to {shown(item)}" + (f" and {len(away) - 1} more" if len(away) > 1 else "")
        if not allowed:
            yield finding(
                RULE,
                node,
                f"{where}, and {bits}-bit weights stay on the GPU unless llm_int8_enable_fp32_cpu_offload is set",
            )
        elif _trains(run):
            yield finding(RULE, node, f"{where}, and a {bits}-bit model with parts off the GPU cannot be trained")
        return
    memory = load.get(run, "max_memory")
    cpu: Node | None = memory.get("cpu") if memory is not None else None
    if (
        cpu is not None
        and not allowed
        and node is not None
        and isinstance(node.value, str)
        and cpu.value not in (0, "0", "0GiB", "0GB")
    ):
        yield finding(
            RULE, cpu,
            f"max_memory lets a {bits}-bit model spill to the CPU ({shown(cpu)}), which is refused without "
            "llm_int8_enable_fp32_cpu_offload",
            severity="warning",
        )  # fmt: skip


def _trains(run: Run) -> bool:
    return run.script is not None and any(call.last.endswith("Trainer") for call in run.script.calls)


RULE = Rule(
    code="ADV305",
    name="quantized-on-cpu-or-disk",
    severity="error",
    what="CPU or disk entries in the device_map (or max_memory) of a 4-bit or 8-bit model without "
    "llm_int8_enable_fp32_cpu_offload, or for training.",
    why='transformers refuses: "Some modules are dispatched on the CPU or the disk. Make sure you have enough '
    'GPU RAM to fit the quantized model." With llm_int8_enable_fp32_cpu_offload the modules on the CPU stay in '
    "fp32; training is refused all the same.",
    fix="keep every module on the GPUs (4 bits need about 0.6 bytes a parameter, 8 bits 1.1); or "
    "llm_int8_enable_fp32_cpu_offload=True for inference",
    since="every transformers with bitsandbytes",
    check=check,
)
