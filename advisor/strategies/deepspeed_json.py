"""The DeepSpeed json of a job, with numbers everywhere: nothing is left to be filled in from a model's config.

Values agree with the TrainingArguments that the same job makes (transformers refuses a run where they differ) and with
each other: train_batch_size = micro x accumulation x world (case A11).
"""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.models.spec import ModelSpec
from advisor.strategies.common import parameter_count

# The Trainer's own defaults, which it compares with this file.
LEARNING_RATE, BETAS, EPS, WEIGHT_DECAY, CLIPPING = 5e-5, [0.9, 0.999], 1e-8, 0.0, 1.0
DEFAULT_NVME = "/local_nvme"
# Asynchronous reads and writes of DeepSpeed's swapper: 1 MiB blocks, a queue of 32, as its NVMe benchmark settled on.
_AIO = {"block_size": 1 << 20, "queue_depth": 32, "thread_count": 1, "single_submit": False, "overlap_events": True}


def gathers_on_save(model: ModelSpec, machine: HardwareProfile, job: Job) -> bool:
    """Whether rank 0's host can hold the whole 16-bit model to save it (case F03)."""
    host = machine.host.memory_available or machine.host.memory_total
    return host is None or 2 * parameter_count(model) < host


def config(model: ModelSpec, machine: HardwareProfile, job: Job) -> dict[str, Any]:
    """The json as a dict."""
    values: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": job.micro_batch_size,
        "gradient_accumulation_steps": job.gradient_accumulation_steps,
        "train_batch_size": job.micro_batch_size * job.gradient_accumulation_steps * job.world_size,
        "steps_per_print": 1_000_000_000,  # the Trainer prints
        "wall_clock_breakdown": False,
        "bf16": {"enabled": job.precision.startswith("bf16")},
        "fp16": {"enabled": job.precision.startswith("fp16")},
        "zero_optimization": _zero(model, machine, job),
    }
    if job.precision.startswith("fp16"):
        values["fp16"] |= {"loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 2,
                           "min_loss_scale": 1}  # fmt: skip
    if job.trains:
        values["gradient_clipping"] = CLIPPING
        values |= _optimizer(job)
    if "nvme" in (job.offload_optimizer, job.offload_param):
        values["aio"] = dict(_AIO)
    return values


def _optimizer(job: Job) -> dict[str, Any]:
    if job.zero_optimizer == "client":
        # The Trainer's own optimizer. DeepSpeed would refuse it beside CPU offload unless told that this is meant.
        return {"zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True}
    params: dict[str, Any] = {"lr": LEARNING_RATE, "betas": BETAS, "eps": EPS, "weight_decay": WEIGHT_DECAY}
    if job.zero_optimizer == "torch_adam":
        params["torch_adam"] = True
    values: dict[str, Any] = {"optimizer": {"type": "AdamW", "params": params}}
    if job.zero_optimizer == "torch_adam" and job.offload_optimizer:
        values["zero_force_ds_cpu_optimizer"] = False
    return values


def _zero(model: ModelSpec, machine: HardwareProfile, job: Job) -> dict[str, Any]:
    tuning = job.zero
    stage = 2 if job.strategy == "zero2" else 3
    values: dict[str, Any] = {
        "stage": stage,
        "contiguous_gradients": tuning.contiguous_gradients,
        "reduce_bucket_size": tuning.reduce_bucket_size,
        # DeepSpeed's own default, written out: stage 3 overlaps, stage 2 does not.
        "overlap_comm": stage == 3 if tuning.overlap_comm is None else tuning.overlap_comm,
    }
    if stage == 2:
        values |= {"allgather_partitions": True, "allgather_bucket_size": tuning.allgather_bucket_size}
    else:
        values |= {
            "sub_group_size": tuning.sub_group_size,
            "stage3_prefetch_bucket_size": tuning.prefetch_bucket_size,
            "stage3_param_persistence_threshold": tuning.param_persistence_threshold,
            "stage3_max_live_parameters": tuning.max_live_parameters,
            "stage3_max_reuse_distance": tuning.max_reuse_distance,
            "stage3_gather_16bit_weights_on_model_save": gathers_on_save(model, machine, job),
        }
    for section, device in (("offload_optimizer", job.offload_optimizer), ("offload_param", job.offload_param)):
        if device is not None:
            values[section] = {"device": device, "pin_memory": tuning.pin_memory}
            if device == "nvme":
                values[section]["nvme_path"] = machine.disk.path or DEFAULT_NVME
    return values
