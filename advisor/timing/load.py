"""Seconds to load a checkpoint, from disk (or the page cache) to where the job keeps its weights."""

from __future__ import annotations

from advisor.job import DTYPE_BYTES
from advisor.timing.case import Case
from advisor.timing.rates import (
    INT8_QUANTIZE_RATE,
    LOAD_SECONDS,
    PINNING_RATE,
    RANK_START_SECONDS,
    ZERO3_LOAD_SECONDS,
)


def load_seconds(case: Case) -> float | None:
    """Seconds of from_pretrained and the move to the cards; None where a needed rate is unknown.

    safetensors files are mapped and copied from pageable memory, so a process loads at the pageable rate; each rank of
    a tensor-parallel job reads its part, each rank of the others the whole. A disk whose rate the profile knows bounds
    it for the first, cold load; unknown, the files count as cached.
    """
    job, rates = case.job, case.rates
    numel = case.model.parameters or case.weights.numel
    stored = numel * DTYPE_BYTES[job.load_dtype]
    if rates.pageable is None and job.gpus:
        return None
    share = stored / job.gpus if job.strategy == "tensor_parallel" else float(stored)
    if job.strategy == "device_map":
        share -= case.placement.host_bytes  # stays mapped until a forward asks for it
    seconds = LOAD_SECONDS + share / (rates.pageable or stored)
    if rates.disk is not None:
        seconds = max(seconds, stored / rates.disk)
    if job.strategy in ("tensor_parallel", "zero2", "zero3", "ddp"):
        seconds += RANK_START_SECONDS
    if job.strategy == "zero3" and job.zero_init:
        seconds += case.weights.modules * ZERO3_LOAD_SECONDS
    if job.quantization == "int8":
        seconds += numel / INT8_QUANTIZE_RATE
    pinned = _pinned_bytes(case, numel)
    if pinned:
        seconds += pinned / PINNING_RATE
    return seconds


def _pinned_bytes(case: Case, numel: int) -> float:
    """Host bytes that DeepSpeed page-locks before the first step: weights, and for training the optimizer's part."""
    job = case.job
    if job.offload_param != "cpu" or not job.zero.pin_memory:
        return 0.0
    return 2.0 * numel + (2.0 * numel if job.trains and job.method == "full" else 0.0)
