"""DeepSpeed's own estimators, called for every ZeRO plan and shown beside our figure with what lies between them.

Only the forms that take counts are called: ``*_all_live`` count a meta model's parameters as one (case D03). What they
print as GB are GiB, and what they say depends on the version, so the version is named (case D02).
"""

from __future__ import annotations

from typing import Any

from advisor.cache import cached, version_of
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.memory.shape import model_shape
from advisor.models.spec import ModelSpec
from advisor.units import format_bytes, format_count


def estimators(model: ModelSpec, job: Job, budget: Budget) -> dict[str, Any]:
    """DeepSpeed's figures for ``job`` in bytes, ours, and the difference in a sentence; empty for inference, and
    where DeepSpeed is not installed."""
    version = version_of("deepspeed")
    if not job.trains or version is None:
        return {}
    shape = model_shape(model)
    count, largest = shape.count, shape.largest_module
    nodes = max(1, job.nodes)
    arguments: dict[str, Any] = {
        "total_params": count,
        "num_gpus_per_node": job.gpus // nodes,
        "num_nodes": nodes,
        "cpu_offload": job.offload_optimizer is not None,
    }
    if job.strategy == "zero3":
        arguments |= {
            "largest_layer_params": largest,
            "cpu_offload_params": job.offload_param is not None,
            "zero_init": job.zero_init,
        }
    key = {"stage": job.strategy, "deepspeed": version, **arguments}
    host, card = cached("deepspeed_estimate", key, lambda: _call(job.strategy, arguments))
    return {
        "deepspeed": version,
        "deepspeed_gpu": card,
        "deepspeed_host": host,
        "ours_gpu": budget.fullest.needed,
        "ours_host": budget.host_ram,
        "difference": _explain(job, count, card, budget),
    }


def _call(strategy: str, arguments: dict[str, Any]) -> list[int]:
    """(host, GPU) bytes, as the installed DeepSpeed says."""
    import logging

    # DeepSpeed makes its logger while it is imported and warns that there is no accelerator, which plans need not.
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        return _estimate(strategy, arguments)
    finally:
        logging.disable(before)


def _estimate(strategy: str, arguments: dict[str, Any]) -> list[int]:
    if strategy == "zero2":
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

        host, card = estimate_zero2_model_states_mem_needs(**arguments)
    else:
        from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

        host, card, _ = estimate_zero3_model_states_mem_needs(**arguments)
    return [int(host), int(card)]


def _explain(job: Job, count: int, card: int, budget: Budget) -> str:
    gpu = budget.fullest
    parts = gpu.parts
    working = sum(parts.get(name, 0) for name in ("activations", "logits", "temporary"))
    words = [
        f"DeepSpeed counts states and the largest module, {format_bytes(card)} a GPU",
        f"ours of {format_bytes(gpu.needed)} adds {format_bytes(working)} of activations, logits and the step's "
        f"temporaries, {format_bytes(parts.get('buffers', 0))} of gather and reduce buffers and "
        f"{format_bytes(gpu.runtime)} outside the allocator",
    ]
    if job.method != "full":
        words.append(f"it takes all {format_count(count)} parameters for trained ones, and here only the adapters are")
    elif job.strategy == "zero3" and not job.offload_optimizer:
        words.append("it counts fp32 gradients of the whole shard, where a step makes those of one sub-group at a time")
    return "; ".join(words)
