"""Hand-made plans of tiny random models, for the engines on the CPU."""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile, Host
from advisor.job import Job, Lora
from advisor.plan import Plan, PlanLaunch, PlanModel, PlanStep, Promise

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}


def launch_of(job: Job, launcher: str | None = None) -> PlanLaunch:
    """One process for the one-process strategies, torchrun (or the launcher asked for) for the others."""
    environment = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    if job.world_size == 1 and launcher is None:
        return PlanLaunch(launcher="python", argv=("python", "{script}"), environment=environment)
    argv = {
        "torchrun": ("torchrun", "--standalone", f"--nproc_per_node={job.world_size}", "{script}"),
        "accelerate": ("accelerate", "launch", "--config_file", "{accelerate_config}", "{script}"),
        "deepspeed": ("deepspeed", "--num_gpus", str(job.world_size), "{script}"),
    }[launcher or "torchrun"]
    return PlanLaunch(launcher=launcher or "torchrun", argv=argv, environment=environment)


def zero_json(job: Job) -> dict[str, Any]:
    """A DeepSpeed json that agrees with the job."""
    return {
        "train_micro_batch_size_per_gpu": job.micro_batch_size,
        "gradient_accumulation_steps": job.gradient_accumulation_steps,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": job.precision.startswith("bf16")},
        "zero_optimization": {
            "stage": 2 if job.strategy == "zero2" else 3,
            "reduce_bucket_size": 10_000,
            "stage3_prefetch_bucket_size": 10_000,
            "stage3_param_persistence_threshold": 100,
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    }


def plan_of(job: Job, *, config: dict[str, Any] | None = None, path: str | None = None, **step: Any) -> Plan:
    """A one-step plan of a tiny model for a machine without GPU."""
    zero = job.strategy in ("zero2", "zero3")
    return Plan(
        created="2026-01-01T00:00:00Z",
        model=PlanModel(
            name="tiny",
            loader_repo="tiny",
            kind="causal",
            config=config or TINY,
            path=path,
            source="local",
            parameters=100_000,
        ),
        hardware=HardwareProfile(name="cpu", host=Host(memory_available=8 << 30)),
        sentence="A test.",
        path=("T",),
        steps=(
            PlanStep(
                **{
                    "name": "train" if job.trains else "serve",
                    "job": job,
                    "launch": launch_of(job),
                    "deepspeed": zero_json(job) if zero else None,
                    "promise": Promise(gpus=(), host_ram=1 << 30, host_ram_load=1 << 30),
                    **step,
                }
            ),
        ),
    )


def finetune(strategy: str = "single", **changes: Any) -> Job:
    """A tiny fine-tuning job."""
    values: dict[str, Any] = {
        "task": "finetune", "strategy": strategy, "method": "full", "precision": "fp32", "load_dtype": "fp32",
        "micro_batch_size": 2, "sequence_length": 16, "optimizer": "adamw_torch", "gpus": 1,
    }  # fmt: skip
    if strategy in ("ddp", "zero2", "zero3"):
        values["gpus"] = 2
    if strategy in ("zero2", "zero3"):
        values |= {"zero_optimizer": "torch_adam"}  # fp32: the Trainer has no bf16 on a CPU it was not told of
    values |= changes
    if values["method"] in ("lora", "qlora"):
        values.setdefault("lora", Lora(rank=4))
    return Job(**values)


def inference(strategy: str = "single", **changes: Any) -> Job:
    """A tiny generation job."""
    return Job(
        **{
            "task": "inference",
            "strategy": strategy,
            "precision": "fp32",
            "load_dtype": "fp32",
            "sequence_length": 16,
            "max_new_tokens": 4,
            **changes,
        }
    )
