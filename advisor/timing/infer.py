"""Seconds of a prefill and of one decoded token."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.stretch import parameters
from advisor.memory.trace.types import Trace
from advisor.models.spec import ModelSpec
from advisor.timing.rates import (
    CUDNN_NEXT_PLAN_SECONDS,
    CUDNN_PLAN_SECONDS,
    GENERATE_SECONDS,
    QUANTIZED_LAYER_SECONDS,
    TENSOR_PARALLEL_SECONDS,
    Rates,
    cudnn_attention,
)
from advisor.timing.work import device_seconds, phases, quantized_layers

# Attention that cuDNN is not asked for: with an added bias (T5's relative positions, Bloom's and MPT's ALiBi), and
# Falcon's, which broadcasts one key head over all without saying so and takes the unfused path.
_OTHER_ATTENTION = frozenset({"t5", "mt5", "umt5", "longt5", "bloom", "mpt", "falcon"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where weights lie: bytes that come from host RAM and from disk at every forward, and how many cards work."""

    host_bytes: int = 0
    disk_bytes: int = 0
    cards: int = 1


def phase_parts(
    phase: str, model: ModelSpec, machine: HardwareProfile, job: Job, trace: Trace, placement: Placement, rates: Rates
) -> dict[str, float] | None:
    """Prefill or one decoded token in parts (seconds, which add up); None where a needed rate is unknown.

    With device_map the cards work one after another, so the device's time is that of one card. Tensor parallelism
    divides it and adds two reductions a layer.
    """
    work = phases(trace)[phase]
    sides = device_seconds(work, rates)
    if sides is None:
        return None
    share = 1 / job.gpus if job.strategy == "tensor_parallel" else 1.0
    compute, memory = sides[0] * share, sides[1] * share
    host = work.operators * rates.launch
    if job.quantization is not None:
        host += QUANTIZED_LAYER_SECONDS[job.quantization] * quantized_layers(parameters(trace))
    # What nothing overlaps with: the host is at it before the device has work.
    serial = GENERATE_SECONDS if phase == "prefill" else 0.0
    if phase == "decode" and plans_attention(model, machine, job):
        serial = CUDNN_PLAN_SECONDS + CUDNN_NEXT_PLAN_SECONDS * (placement.cards - 1)
    communication = 0.0
    if job.strategy == "tensor_parallel" and job.gpus > 1:
        reductions = 2 * model.layers
        moved = _tokens(phase, job) * model.hidden_size * 2
        if rates.link is None:
            return None
        ring = 2 * (job.gpus - 1) / job.gpus * moved / rates.link
        communication = reductions * (ring + rates.collective)
        host += reductions * TENSOR_PARALLEL_SECONDS
    offload = spill_seconds(placement, rates)
    if offload is None:
        return None
    # Weights arrive while nothing else runs: accelerate's hooks copy each module's before it is called.
    return {
        "compute": compute,
        "memory": memory,
        "launch": max(0.0, host - compute - memory) + serial,
        "communication": communication,
        "offload": offload,
    }


def spill_seconds(placement: Placement, rates: Rates) -> float | None:
    """Seconds to bring spilled weights to the card for one forward; None where a rate is unknown."""
    if not placement.host_bytes and not placement.disk_bytes:
        return 0.0
    if rates.pageable is None or (placement.disk_bytes and rates.disk is None):
        return None
    seconds = (placement.host_bytes + placement.disk_bytes) / rates.pageable
    return seconds + (placement.disk_bytes / rates.disk if rates.disk else 0.0)


def plans_attention(model: ModelSpec, machine: HardwareProfile, job: Job) -> bool:
    """Whether cuDNN plans attention anew for each decoded token here."""
    return (
        job.attention == "sdpa"
        and job.load_dtype in ("bf16", "fp16")
        and model.model_type not in _OTHER_ATTENTION
        and all(cudnn_attention(card) for card in machine.gpus)
    )


def _tokens(phase: str, job: Job) -> int:
    return job.micro_batch_size * (job.sequence_length if phase == "prefill" else 1)
