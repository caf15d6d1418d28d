"""Seconds of one optimizer step."""

from __future__ import annotations

from advisor.job import Job
from advisor.timing.case import Case, Weights
from advisor.timing.optimizer import optimizer_seconds, zero_step_seconds
from advisor.timing.rates import (
    MICRO_STEP_SECONDS,
    PEFT_LAYER_SECONDS,
    QUANTIZED_LAYER_SECONDS,
    STEP_SECONDS,
    ZERO3_GATHER_SECONDS,
    ZERO3_MODULE_SECONDS,
    ZERO_GRADIENT_SECONDS,
    Rates,
)
from advisor.timing.work import device_seconds


def step_parts(case: Case) -> dict[str, float] | None:
    """One optimizer step in parts (seconds, which add up); None where the machine lacks a needed rate.

    ``compute`` and ``memory`` are the device's, ``launch`` what the host's Python takes longer than the device,
    ``communication`` and ``offload`` what does not hide behind both.
    """
    job, weights, rates = case.job, case.weights, case.rates
    forward, backward = case.work["forward"], case.work["backward"]
    sides = [device_seconds(phase, rates) for phase in (forward, backward)]
    if sides[0] is None or sides[1] is None:
        return None
    micro = job.gradient_accumulation_steps
    copies = _bucket_bytes(job, weights) / rates.memory if rates.memory else 0.0
    compute = (sides[0][0] + sides[1][0]) * micro
    memory = (sides[0][1] + sides[1][1] + copies) * micro
    device = compute + memory
    # A checkpointed layer is run again in Python inside the backward.
    again = forward.operators if job.gradient_checkpointing else 0
    host = forward.operators + min(again, backward.operators)
    host_seconds = micro * (
        host * rates.launch
        + max(0, backward.operators - again) * rates.backward_launch
        + _deepspeed_seconds(job, weights)
        + _library_seconds(job, weights)
    )
    moved = _communication(job, weights, rates)
    step = _step(job, weights, rates)
    if moved is None or step is None:
        return None
    hidden, exposed = moved
    busy = max(device, host_seconds)
    parts = {
        "compute": compute,
        "memory": memory,
        "launch": busy - device + micro * MICRO_STEP_SECONDS + STEP_SECONDS,
        "communication": max(0.0, hidden - busy) + exposed,
        "optimizer": step,
    }
    if job.offload_param is not None:
        once = shard_seconds(case)
        if once is None:
            return None
        parts["offload"] = micro * _passes(job) * once
    return parts


def _bucket_bytes(job: Job, weights: Weights) -> float:
    """Bytes that gradients move on a card on their way through the buckets of one micro-step.

    DDP copies each gradient into its flat bucket and back; DeepSpeed copies it in, averages it, copies its part out.
    """
    if job.strategy == "ddp" and job.gpus > 1:
        return 4.0 * weights.trainable_bytes
    return 12.0 * weights.trainable if job.strategy in ("zero2", "zero3") else 0.0


def _deepspeed_seconds(job: Job, weights: Weights) -> float:
    """DeepSpeed's Python in one micro-step."""
    if job.strategy not in ("zero2", "zero3"):
        return 0.0
    seconds = weights.trainable_tensors * ZERO_GRADIENT_SECONDS
    if job.strategy == "zero3":
        seconds += _passes(job) * zero3_pass_seconds(weights)
    return seconds


def zero3_pass_seconds(weights: Weights) -> float:
    """ZeRO-3's Python in one pass over the model."""
    return weights.modules * ZERO3_MODULE_SECONDS + weights.gathered * ZERO3_GATHER_SECONDS


def _passes(job: Job) -> int:
    """How often a micro-step goes over the model: forward, backward, and the forward again under checkpointing."""
    return 3 if job.gradient_checkpointing else 2


def _library_seconds(job: Job, weights: Weights) -> float:
    """Python of PEFT and bitsandbytes in one micro-step."""
    seconds = PEFT_LAYER_SECONDS * weights.adapted_layers
    if job.quantization is not None:
        seconds += QUANTIZED_LAYER_SECONDS[job.quantization] * weights.quantized_layers
    return _passes(job) * seconds


def _communication(job: Job, weights: Weights, rates: Rates) -> tuple[float, float] | None:
    """(seconds that overlap with the step's work, seconds that do not) of the collectives of one optimizer step.

    Ring collectives over n ranks move (n - 1) / n of the bytes for a gather or a reduce-scatter, twice that for an
    all-reduce. DDP and ZeRO-3 overlap with the backward; DeepSpeed's stage 2 does not by default.
    """
    world = job.data_parallel_size
    if world == 1:
        return 0.0, 0.0
    if rates.link is None:
        return None
    ring = (world - 1) / world / rates.link
    if job.strategy == "ddp":
        buckets = weights.trainable_bytes / 25e6 + 1  # DDP's bucket_cap_mb
        return 2 * ring * weights.trainable_bytes + buckets * rates.collective, 0.0
    micro = job.gradient_accumulation_steps
    gradients = weights.trainable * 2 * ring * micro  # 16-bit, reduced every micro-step
    if job.strategy == "zero2":
        overlaps = job.zero.overlap_comm is True
        back = weights.trainable * 2 * ring  # the new weights
        return (gradients, back) if overlaps else (0.0, gradients + back)
    passes = _passes(job) * micro
    gathers = weights.bytes_all * ring * passes
    latency = weights.gathered * passes * rates.collective
    return gathers + gradients + latency, 0.0


def _step(job: Job, weights: Weights, rates: Rates) -> float | None:
    if job.strategy in ("zero2", "zero3"):
        return zero_step_seconds(job, rates, weights.trainable, job.gpus, max(1, job.gpus // job.nodes))
    itemsize = weights.trainable_bytes / max(1, weights.trainable)
    return optimizer_seconds(job, rates, weights.trainable, weights.trainable_tensors, itemsize)


def shard_seconds(case: Case) -> float | None:
    """Seconds that a rank's own offloaded shard takes to its card, for one pass; 0 when nothing is offloaded."""
    job, rates = case.job, case.rates
    if job.offload_param is None:
        return 0.0
    source = rates.to_gpu if job.offload_param == "cpu" else rates.disk
    if source is None:
        return None
    readers = 1 if job.offload_param == "cpu" else max(1, job.gpus // job.nodes)  # one disk serves all ranks of a node
    return case.weights.bytes_all / job.gpus * readers / source
