"""The fine-tuning recipe: transformers' Trainer with PEFT, set up from the plan's job."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.execute.status import Status
from advisor.execute.worker import model as models
from advisor.execute.worker.data import random_rows, read_samples, rows
from advisor.execute.worker.zero import (
    assert_engine,
    assert_not_data_parallel,
    assert_partitioned,
    count_cpu_ranks,
    initialise,
)
from advisor.job import Job
from advisor.plan import Plan, PlanStep

if TYPE_CHECKING:
    from advisor.execute.worker.main import Task


def arguments(job: Job, task: Task) -> Any:
    """TrainingArguments that agree with the plan's DeepSpeed file; they must exist before the model (zero.Init)."""
    import torch
    from transformers import TrainingArguments

    zero = job.strategy in ("zero2", "zero3")
    mixed = job.precision if job.precision.endswith("-mixed") else None
    options: dict[str, Any] = {
        "output_dir": task.output,
        "per_device_train_batch_size": job.micro_batch_size,
        "gradient_accumulation_steps": job.gradient_accumulation_steps,
        "gradient_checkpointing": job.gradient_checkpointing,
        "optim": job.optimizer,
        "bf16": (mixed == "bf16-mixed") or (zero and job.precision.startswith("bf16")),
        "fp16": (mixed == "fp16-mixed") or (zero and job.precision.startswith("fp16")),
        "max_steps": task.steps if task.steps is not None else -1,
        "num_train_epochs": task.epochs,
        "save_strategy": "no" if task.rehearse else ("steps" if task.save_every else "epoch"),
        "logging_strategy": "steps",
        "logging_steps": 1,
        "report_to": [],
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
        "disable_tqdm": True,
        "seed": task.seed,
        # accelerate leaves DeepSpeed out, silently, when it is told to use the CPU.
        "use_cpu": not torch.cuda.is_available() and not zero,
    }
    if task.save_every:
        options["save_steps"] = task.save_every
    if job.gradient_checkpointing:
        options["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if zero:
        # transformers compares the two and refuses what differs, so the DeepSpeed file is the one that says.
        options |= _optimizer_settings(json.loads(Path(task.deepspeed_config or "").read_text(encoding="utf-8")))
        options["deepspeed"] = task.deepspeed_config
        if not torch.cuda.is_available():
            count_cpu_ranks()
            options["accelerator_config"] = {"use_configured_state": True}
    elif task.learning_rate is not None:
        options["learning_rate"] = task.learning_rate
    if job.strategy == "ddp":
        options["ddp_find_unused_parameters"] = False
    return TrainingArguments(**options)


def _optimizer_settings(config: dict[str, Any]) -> dict[str, Any]:
    """TrainingArguments for what a DeepSpeed json fixes about the optimizer."""
    parameters = config.get("optimizer", {}).get("params", {})
    settings: dict[str, Any] = {}
    for key, argument in (("lr", "learning_rate"), ("weight_decay", "weight_decay"), ("eps", "adam_epsilon")):
        if isinstance(parameters.get(key), (int, float)):
            settings[argument] = parameters[key]
    if isinstance(parameters.get("betas"), list):
        settings["adam_beta1"], settings["adam_beta2"] = parameters["betas"]
    if isinstance(config.get("gradient_clipping"), (int, float)):
        settings["max_grad_norm"] = config["gradient_clipping"]
    return settings


def train(plan: Plan, step: PlanStep, task: Task, status: Status) -> None:
    """Run the step's training; reports loaded, every step, and leaves the trained weights in ``task.output``."""
    import torch
    import transformers

    job = step.job
    if job.strategy in ("zero2", "zero3"):
        initialise()
    settings = arguments(job, task)
    transformers.set_seed(task.seed)
    data: Any
    words: Any = None
    world = max(1, settings.world_size)
    if task.data:
        words = models.tokenizer(plan, task)
        data = rows(read_samples(Path(task.data)), words, job.sequence_length, packed=task.packed)
    else:
        vocab = int(plan.model.config.get("vocab_size") or 0)
        samples = job.micro_batch_size * job.gradient_accumulation_steps * world * ((task.steps or 4) + 1)
        data = random_rows(samples, job.sequence_length, vocab)
    started = time.monotonic()
    model = models.load(plan, step, task)
    model.config.use_cache = False
    if job.method in ("lora", "qlora"):
        model = adapt(model, job)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    status.write(
        "loaded",
        seconds=time.monotonic() - started,
        parameters=sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters()),
        trainable=sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters() if p.requires_grad),
        allocated=_allocated(),
    )

    class Report(transformers.TrainerCallback):
        """Says every step's time and, where the Trainer logged one, its loss."""

        def __init__(self) -> None:
            self.last: float | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            wrapped = trainer.model_wrapped
            assert_not_data_parallel(wrapped)
            if job.strategy in ("zero2", "zero3"):
                assert_engine(wrapped, stage=2 if job.strategy == "zero2" else 3)
            if job.strategy == "zero3":
                assert_partitioned(trainer.model, world)
            status.write("ready", device=str(args.device), processes=args.world_size)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            now = time.monotonic()
            seconds = None if self.last is None else now - self.last
            self.last = now
            status.write("step", step=state.global_step, seconds=seconds, total=state.max_steps)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if logs and "loss" in logs:
                status.write("loss", step=state.global_step, loss=float(logs["loss"]))

    trainer = transformers.Trainer(
        model=model,
        args=settings,
        train_dataset=data,
        callbacks=[Report()],
        data_collator=transformers.default_data_collator,
        processing_class=words,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=task.resume)
    if not task.rehearse:
        trainer.save_state()
        trainer.save_model(task.output)
        if words is not None and settings.process_index == 0:
            words.save_pretrained(task.output)
        status.write("saved", output=task.output)


def adapt(model: Any, job: Job) -> Any:
    """The model with its LoRA adapters, prepared for k-bit training where it is quantized."""
    import peft

    assert job.lora is not None
    if job.quantization and job.strategy != "zero3":
        model = peft.prepare_model_for_kbit_training(
            model,
            use_gradient_checkpointing=job.gradient_checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False},
        )
    targets = job.lora.target_modules
    config = peft.LoraConfig(
        r=job.lora.rank,
        lora_alpha=job.lora.alpha,
        lora_dropout=0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type={"seq2seq": "SEQ_2_SEQ_LM"}.get("seq2seq" if model.config.is_encoder_decoder else "", "CAUSAL_LM"),
    )
    # ZeRO-3 with quant storage flattens parameters together: adapters must have the storage's dtype.
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=job.lora.dtype == "fp32")
    if job.gradient_checkpointing and not (job.quantization and job.strategy != "zero3"):
        model.enable_input_require_grads()
    return model


def _allocated() -> list[int]:
    import torch

    if not torch.cuda.is_available():
        return []
    return [torch.cuda.max_memory_allocated(card) for card in range(torch.cuda.device_count())]
