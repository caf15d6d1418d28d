"""The model of a step: its weights loaded, or made at random on the devices, placed as the plan says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from advisor.plan import Plan, PlanModel, PlanStep

if TYPE_CHECKING:
    from advisor.execute.worker.main import Task

_CLASSES = {"causal": "AutoModelForCausalLM", "seq2seq": "AutoModelForSeq2SeqLM", "masked": "AutoModelForMaskedLM"}


def local_rank() -> int:
    """This process's GPU index on its node."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def own_device() -> str:
    """This rank's device: its GPU, or the CPU where there is none."""
    import torch

    return f"cuda:{local_rank()}" if torch.cuda.is_available() else "cpu"


def torch_dtype(name: str) -> Any:
    """torch's dtype of "bf16", "fp16", "fp32"."""
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]


def auto_class(model: PlanModel) -> Any:
    """The transformers class that loads this kind of model."""
    import transformers

    return getattr(transformers, _CLASSES[model.kind])


def make_config(model: PlanModel, attention: str) -> Any:
    """The transformers config from the plan's own copy."""
    from transformers import AutoConfig

    values = {key: value for key, value in model.config.items() if key not in ("model_type", "auto_map")}
    config = AutoConfig.for_model(model.config["model_type"], **values)
    config._attn_implementation = attention
    return config


def bnb_config(step: PlanStep) -> Any:
    """bitsandbytes' config as planned; None for a model that is not quantized."""
    job = step.job
    if job.quantization is None:
        return None
    from transformers import BitsAndBytesConfig

    if job.quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    compute = "bf16" if job.precision.startswith("bf16") else "fp16"
    storage = {"bnb_4bit_quant_storage": torch_dtype(job.bnb_4bit_quant_storage)} if job.bnb_4bit_quant_storage else {}
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch_dtype(compute),
        **storage,
    )


def load(plan: Plan, step: PlanStep, task: Task) -> Any:
    """The model, in place. Real weights come from the plan's repo or path; a rehearsal makes random ones."""
    source = task.load_from or plan.model.path or plan.model.loader_repo
    if task.rehearse and task.load_from is None:
        return _random(plan, step)
    job = step.job
    options: dict[str, Any] = {
        "dtype": torch_dtype(job.load_dtype),
        "attn_implementation": job.attention,
        "trust_remote_code": task.trust_remote_code,
        "use_safetensors": True,
    }
    quantization = bnb_config(step)
    if quantization is not None:
        options["quantization_config"] = quantization
    if job.strategy == "device_map":
        options["device_map"] = dict(step.device_map or {"": 0})
        if step.offload_folder:
            options["offload_folder"] = step.offload_folder
    elif job.strategy == "tensor_parallel":
        options["tp_plan"] = "auto"
    elif quantization is not None and job.strategy != "zero3":
        options["device_map"] = {"": own_device()}
    model = auto_class(plan.model).from_pretrained(source, **options)
    if job.strategy in ("single", "ddp", "zero2") and quantization is None:
        model = model.to(own_device())
    return model


def _random(plan: Plan, step: PlanStep) -> Any:
    import torch

    job = step.job
    config = make_config(plan.model, job.attention)
    cls, dtype = auto_class(plan.model), torch_dtype(job.load_dtype)
    import_model_file(plan.model)
    if job.strategy == "tensor_parallel" or (job.strategy == "zero3" and job.quantization):
        # These are made by from_pretrained alone, so a random checkpoint is written to disk first.
        return _through_checkpoint(plan, step, config)
    if job.quantization:
        from advisor.execute.worker.quantized import random_quantized

        device_map = dict(step.device_map) if step.device_map else {"": own_device()}
        return random_quantized(cls, config, dtype, bnb_config(step), device_map)
    if job.strategy == "device_map":
        from advisor.execute.worker.quantized import random_dispatched

        return random_dispatched(cls, config, dtype, dict(step.device_map or {"": 0}), step.offload_folder)
    if job.strategy == "zero3":
        return cls.from_config(config, dtype=dtype)  # under zero.Init: the Trainer's arguments exist by now
    with torch.device(own_device()):
        return cls.from_config(config, dtype=dtype)


def import_model_file(model: PlanModel) -> None:
    """Import what the model is made of. zero.Init patches constructors, and a first import inside it can fail."""
    import importlib

    config = type(make_config(model, "eager"))
    auto_class(model)
    if config.__module__.startswith("transformers."):
        importlib.import_module(config.__module__.replace("configuration_", "modeling_"))


def _through_checkpoint(plan: Plan, step: PlanStep, config: Any) -> Any:
    import shutil
    import tempfile
    from pathlib import Path

    import torch
    import torch.distributed as dist

    cls, job = auto_class(plan.model), step.job
    dtype = torch_dtype(job.load_dtype)
    folder = Path(tempfile.gettempdir()) / f"advisor-rehearsal-{os.environ.get('MASTER_PORT', os.getpid())}"
    if not dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend)
    try:
        if local_rank() == 0:
            from transformers.integrations.deepspeed import unset_hf_deepspeed_config

            from advisor.execute.worker.zero import kept_deepspeed_config

            # Made whole on this rank: without zero.Init.
            with kept_deepspeed_config(unset_hf_deepspeed_config), torch.device(own_device()):
                made = cls.from_config(config, dtype=dtype)
            made.save_pretrained(folder, max_shard_size="2GB")
            del made
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        dist.barrier()
        options: dict[str, Any] = {"dtype": dtype, "attn_implementation": job.attention}
        quantization = bnb_config(step)
        if quantization is not None:
            options["quantization_config"] = quantization
        if job.strategy == "tensor_parallel":
            options["tp_plan"] = "auto"
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()  # making the weights is no part of the run
        model = cls.from_pretrained(folder, **options)
        dist.barrier()
    finally:
        if local_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
    return model


def tokenizer(plan: Plan, task: Task) -> Any:
    """The model's tokenizer, with a padding token."""
    from transformers import AutoTokenizer

    source = task.load_from or plan.model.path or plan.model.loader_repo
    made = AutoTokenizer.from_pretrained(source, trust_remote_code=task.trust_remote_code)
    if made.pad_token is None:
        made.pad_token = made.eos_token
    return made
