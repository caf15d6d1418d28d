"""Staged work: after the training, the hand-over between two worlds that exclude each other, and serving the result.

ZeRO-3 owns parameters while it trains; a device map owns them while it serves. Between the two lie one consolidated
16-bit checkpoint in safetensors and the host RAM and disk that making it takes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.deciding import decide
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, Workload
from advisor.models.spec import ModelSpec
from advisor.plan import Plan
from advisor.planning import step_of
from advisor.strategies.common import parameter_count
from advisor.units import GIB, format_bytes

NEW_TOKENS = 256
# Safetensors are written in files of at most this size (transformers' save_pretrained default of 5 GB, rounded up):
# writing one holds it once more.
SHARD = 5 * GIB


def with_serving(
    plan: Plan, model: ModelSpec, machine: HardwareProfile, workload: Workload, rules_dir: Path | None = None
) -> Plan:
    """``plan`` with the step that serves its result on the same machine, and the hand-over to it."""
    serving = serving_workload(workload)
    decision = decide(replace(model, quantization_config=None), machine, serving, rules_dir)
    handover = hand_over(model, machine, plan.main.job)
    if decision.chosen is None:
        handover["serving"] = f"does not fit here: {decision.sentence}"
        return plan.model_copy(update={"handover": handover})
    handover["serving"] = decision.sentence
    step = step_of(model, machine, decision.chosen)
    return plan.model_copy(update={"steps": (*plan.steps, step), "handover": handover})


def serving_workload(workload: Workload) -> Workload:
    """What is asked of the result: one request of the trained length."""
    return Workload(
        task="inference",
        micro_batch_size=1,
        sequence_length=workload.sequence_length,
        max_new_tokens=NEW_TOKENS,
        attention=workload.attention,
        quantization=workload.quantization if workload.method == "qlora" else None,
    )


def hand_over(model: ModelSpec, machine: HardwareProfile, job: Job) -> dict[str, Any]:
    """What turning the trained weights into one 16-bit checkpoint takes: bytes of host RAM and disk, and how.

    ZeRO-3 without a gather leaves fp32 shards: ``zero_to_fp32`` holds 4 bytes a parameter. LoRA merges into 16-bit base
    weights.
    """
    count = parameter_count(model)
    half = 2 * count
    host = machine.host.memory_total if machine.host.memory_available is None else machine.host.memory_available
    if job.method in ("lora", "qlora"):
        how = "merge the adapter into the 16-bit base weights (PEFT's merge_and_unload), save as safetensors"
        ram, disk, kind = half + SHARD, half, "adapter"
    elif job.strategy == "zero3" and host is not None and half + SHARD > host:
        # No rank can hold the gathered model: the shards are joined file by file from disk.
        how = "keep the shards, join them with zero_to_fp32.py (lazy mode) on a host with this RAM, cast to 16 bits"
        ram, disk, kind = 4 * count + SHARD, (12 + 2) * count + 4 * count + half, "shards"
    elif job.strategy == "zero3":
        how = "gather 16-bit weights on rank 0 while saving (stage3_gather_16bit_weights_on_model_save)"
        ram, disk, kind = half + SHARD, half, "gathered"
    else:
        width = 4 if job.load_dtype == "fp32" else 2
        how = "save_pretrained as it lies on the GPU" + (", cast to 16 bits" if width == 4 else "")
        ram, disk, kind = half + SHARD, half, "whole"
    free = machine.disk.free
    fits = (host is None or ram <= host) and (free is None or disk <= free)
    return {
        "kind": kind,
        "how": how,
        "host_ram": ram,
        "disk": disk,
        "fits": fits,
        "summary": f"the 16-bit checkpoint takes {format_bytes(half)}; making it, {format_bytes(ram)} of host RAM and "
        f"{format_bytes(disk)} of disk" + ("" if fits else ", which this machine does not have"),
    }
