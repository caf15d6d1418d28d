"""Seconds of a prefill and of one decoded token."""

from __future__ import annotations

from advisor.timing.case import Case, Placement
from advisor.timing.rates import (
    CUDNN_NEXT_PLAN_SECONDS,
    CUDNN_PLAN_SECONDS,
    GENERATE_SECONDS,
    QUANTIZED_LAYER_SECONDS,
    TENSOR_PARALLEL_SECONDS,
    Rates,
    cudnn_attention,
)
from advisor.timing.train import shard_seconds, zero3_pass_seconds
from advisor.timing.work import device_seconds

# Attention that cuDNN is not asked for: with an added bias (T5's relative positions, Bloom's and MPT's ALiBi), and
# Falcon's, which broadcasts one key head over all without saying so and takes the unfused path.
_OTHER_ATTENTION = frozenset({"t5", "mt5", "umt5", "longt5", "bloom", "mpt", "falcon"})


def phase_parts(phase: str, case: Case) -> dict[str, float] | None:
    """Prefill or one decoded token in parts (seconds, which add up); None where a needed rate is unknown.

    With device_map the cards work one after another, so the device's time is that of one card. Tensor parallelism
    divides it and adds two reductions a layer. Under ZeRO-3 every module's weights are gathered when it runs.
    """
    job, rates = case.job, case.rates
    work = case.work[phase]
    sides = device_seconds(work, rates)
    if sides is None:
        return None
    share = 1 / job.gpus if job.strategy == "tensor_parallel" else 1.0
    compute, memory = sides[0] * share, sides[1] * share
    host = work.operators * rates.launch + _library_seconds(case)
    collectives = _collective_seconds(phase, case)
    offload = shard_seconds(case) if job.strategy == "zero3" else spill_seconds(case.placement, rates)
    if collectives is None or offload is None:
        return None
    overlapping, blocking = collectives
    busy = max(host, compute + memory)
    # Spilled weights arrive while nothing else runs: accelerate's hooks copy each module's before it is called.
    return {
        "compute": compute,
        "memory": memory,
        "launch": busy - compute - memory + _before_the_device(phase, case),
        "communication": max(0.0, overlapping - busy) + blocking,
        "offload": offload,
    }


def _library_seconds(case: Case) -> float:
    """Python that quantization, tensor parallelism and DeepSpeed add to one forward."""
    job = case.job
    seconds = 0.0
    if job.quantization is not None:
        seconds += QUANTIZED_LAYER_SECONDS[job.quantization] * case.weights.quantized_layers
    if job.strategy == "tensor_parallel" and job.gpus > 1:
        seconds += 2 * case.model.layers * TENSOR_PARALLEL_SECONDS
    if job.strategy == "zero3":
        seconds += zero3_pass_seconds(case.weights)
    return seconds


def _before_the_device(phase: str, case: Case) -> float:
    """Seconds in which the host is busy and the device has nothing to do yet."""
    if phase == "prefill":
        return GENERATE_SECONDS
    if plans_attention(case):
        return CUDNN_PLAN_SECONDS + CUDNN_NEXT_PLAN_SECONDS * (case.placement.cards - 1)
    return 0.0


def _collective_seconds(phase: str, case: Case) -> tuple[float, float] | None:
    """(seconds that overlap with the forward, seconds that do not); None where the link's rate is unknown."""
    job, rates = case.job, case.rates
    if job.gpus == 1 or job.strategy not in ("tensor_parallel", "zero3"):
        return 0.0, 0.0
    if rates.link is None:
        return None
    ring = (job.gpus - 1) / job.gpus / rates.link
    if job.strategy == "zero3":
        return case.weights.bytes_all * ring + case.weights.gathered * rates.collective, 0.0
    tokens = job.micro_batch_size * (job.sequence_length if phase == "prefill" else 1)
    reductions = 2 * case.model.layers  # after attention and after the feed-forward part
    return 0.0, reductions * (2 * ring * tokens * case.model.hidden_size * 2 + rates.collective)


def spill_seconds(placement: Placement, rates: Rates) -> float | None:
    """Seconds to bring spilled weights to the card for one forward; None where a rate is unknown."""
    if not placement.host_bytes and not placement.disk_bytes:
        return 0.0
    if rates.pageable is None or (placement.disk_bytes and rates.disk is None):
        return None
    seconds = (placement.host_bytes + placement.disk_bytes) / rates.pageable
    return seconds + (placement.disk_bytes / rates.disk if rates.disk else 0.0)


def plans_attention(case: Case) -> bool:
    """Whether cuDNN plans attention anew for each decoded token here."""
    return (
        case.job.attention == "sdpa"
        and case.job.load_dtype in ("bf16", "fp16")
        and case.model.model_type not in _OTHER_ATTENTION
        and all(cudnn_attention(card) for card in case.machine.gpus)
    )
