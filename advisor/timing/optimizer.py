"""Seconds of an optimizer step, from the bytes that each optimizer reads and writes for one parameter."""

from __future__ import annotations

from advisor.job import Job
from advisor.timing.rates import Rates

# Elements (of the parameter's dtype) that one parameter's step moves, counted over the operators of torch 2.11:
# foreach AdamW runs mul, lerp, mul, addcmul, sqrt, div, add, addcdiv (2+3+2+4+2+2+2+3); the fused kernel reads p, g, m,
# v and writes p, m, v; foreach SGD reads p, g and writes p.
_ELEMENTS = {"adamw_torch": 20.0, "adamw_torch_fused": 7.0, "sgd": 3.0}
# Bytes, where states are not in the parameter's dtype: (per element of the parameter, of the states).
# bitsandbytes' kernels read p, g and write p; states of one byte, or four, are read and written.
_BNB = {
    "adamw_8bit": 4.0, "adamw_bnb_8bit": 4.0, "paged_adamw_8bit": 4.0, "paged_adamw": 16.0, "paged_adamw_32bit": 16.0,
    "lion": 8.0, "lion_32bit": 8.0, "paged_lion": 8.0, "paged_lion_32bit": 8.0, "lion_8bit": 2.0,
    "paged_lion_8bit": 2.0,
}  # fmt: skip
# transformers' Adafactor works in fp32, tensor by tensor: casts, square, means, outer product, two norms and the update
# move about 90 bytes a parameter, in some 25 operators a tensor.
_ADAFACTOR_BYTES = 90.0
_ADAFACTOR_OPERATORS = 25
_BNB_OPERATORS = 4  # a tensor: checks, kernel, bookkeeping in Python
# Clipping (the Trainer's default norm of 1): the norm reads, the scaling reads and writes.
_CLIP_ELEMENTS = 3.0
# DeepSpeed's fp32 step: gradient to fp32 (2 + 4), unscale and norm (12), copy back to 16 bits (4 + 2).
_ZERO_BYTES = 24.0
_ADAM_CPU_BYTES = 30.0  # DeepSpeedCPUAdam: p, g, m, v read, p, m, v written in fp32, and the 16-bit copy


def optimizer_seconds(job: Job, rates: Rates, trainable: int, tensors: int, itemsize: float) -> float | None:
    """Seconds of the step on a GPU that holds all ``trainable`` parameters, in ``tensors`` tensors of ``itemsize``."""
    if rates.optimizer is None:
        return None
    clip = _CLIP_ELEMENTS * itemsize
    if job.optimizer == "adafactor":
        by_traffic = trainable * (_ADAFACTOR_BYTES + clip) / rates.optimizer
        return max(by_traffic, tensors * _ADAFACTOR_OPERATORS * rates.backward_launch)
    if job.optimizer in _BNB:
        by_traffic = trainable * (3 * itemsize + _BNB[job.optimizer] + clip) / rates.optimizer
        return max(by_traffic, tensors * _BNB_OPERATORS * rates.launch)
    moved = _ELEMENTS.get(job.optimizer, _ELEMENTS["adamw_torch"]) * itemsize
    return trainable * (moved + clip) / rates.optimizer


def zero_step_seconds(job: Job, rates: Rates, trainable: int, world: int, ranks_a_node: int) -> float | None:
    """Seconds of DeepSpeed's sharded step: each rank updates its part in fp32, on the GPU or on the CPU.

    On the CPU the ranks of a node share the host's memory bandwidth, and gradients and new weights cross PCIe.
    """
    elements = _ELEMENTS["adamw_torch_fused" if job.zero_optimizer == "deepspeed" else "adamw_torch"]
    mine = trainable / world
    if job.offload_optimizer is None:
        if rates.optimizer is None:
            return None
        return mine * (4 * elements + _ZERO_BYTES) / rates.optimizer
    if rates.host is None or rates.to_gpu is None or rates.to_host is None:
        return None
    moved = _ADAM_CPU_BYTES if job.zero_optimizer == "deepspeed" else 4 * elements
    on_host = mine * ranks_a_node * (moved + _ZERO_BYTES) / rates.host
    seconds = on_host + mine * 2 / rates.to_host + mine * 2 / rates.to_gpu
    if job.offload_optimizer == "nvme":
        if rates.disk is None:
            return None
        # Master weights and both states (12 bytes a parameter) are read and written through the node's one disk.
        seconds += mine * ranks_a_node * 24 / rates.disk
    return seconds
