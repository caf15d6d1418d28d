"""Inference: load as planned, generate, stream, and time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.execute.status import Status
from advisor.execute.worker import model as models
from advisor.execute.worker.zero import assert_partitioned, assert_placed, initialise
from advisor.plan import Plan, PlanStep

if TYPE_CHECKING:
    from advisor.execute.worker.main import Task


def generate(plan: Plan, step: PlanStep, task: Task, status: Status) -> None:
    """Run the step's generation; reports loaded, the prefill, the decode rate and, for prompts, their text."""
    import torch

    job = step.job
    config = None
    if job.strategy == "zero3":
        # The config object must live as long as the model: transformers keeps a weak reference.
        from transformers.integrations import HfDeepSpeedConfig

        initialise()
        config = HfDeepSpeedConfig(task.deepspeed_config)
    elif job.strategy == "tensor_parallel" and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    models.import_model_file(plan.model)  # seconds that are no part of loading
    started = time.monotonic()
    model = models.load(plan, step, task)
    model.eval()
    if config is not None:
        model = _zero_inference(model, task)
    elif job.strategy == "device_map":
        assert_placed(model, dict(step.device_map or {}))
    _synchronize()
    status.write(
        "loaded",
        seconds=time.monotonic() - started,
        parameters=sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters()),
        allocated=_allocated(),
    )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    device = _first_device(model)
    if task.rehearse or not task.prompts:
        _measure(model, device, step, plan, status)
        return
    words = models.tokenizer(plan, task)
    for prompt in _prompts(Path(task.prompts)):
        _answer(model, words, device, prompt, job.max_new_tokens, status)


def _zero_inference(model: Any, task: Task) -> Any:
    import deepspeed

    engine = deepspeed.initialize(model=model, config=json.loads(Path(task.deepspeed_config or "").read_text()))[0]
    engine.module.eval()
    assert_partitioned(engine.module, engine.world_size)
    return engine.module


def _measure(model: Any, device: Any, step: PlanStep, plan: Plan, status: Status) -> None:
    """Prefill and decode of random tokens: one short generation to warm up, one of a single token, one whole."""
    import torch

    job, vocab = step.job, int(plan.model.config.get("vocab_size") or 0)
    if plan.model.kind == "masked":
        _encode(model, device, step, vocab, status)
        return
    generator = torch.Generator().manual_seed(0)
    shape = (job.micro_batch_size, job.sequence_length)
    tokens = torch.randint(min(5, vocab - 1), vocab, shape, generator=generator).to(device)
    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if job.strategy == "zero3":
        options["synced_gpus"] = True

    def run(count: int) -> float:
        _synchronize()
        start = time.monotonic()
        with torch.no_grad():
            model.generate(
                input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, min_new_tokens=count,
                **options,
            )  # fmt: skip
        _synchronize()
        return time.monotonic() - start

    count = max(2, job.max_new_tokens)
    run(2)
    first = run(1)
    status.write("prefill", seconds=first)
    whole = run(count)
    rate = job.micro_batch_size * (count - 1) / max(whole - first, 1e-9)
    status.write("decode", tokens_per_second=rate, seconds=whole, tokens=count)


def _encode(model: Any, device: Any, step: PlanStep, vocab: int, status: Status) -> None:
    """An encoder has no decode: time one forward."""
    import torch

    shape = (step.job.micro_batch_size, step.job.sequence_length)
    tokens = torch.randint(min(5, vocab - 1), vocab, shape).to(device)
    for _ in range(2):
        _synchronize()
        start = time.monotonic()
        with torch.no_grad():
            model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        _synchronize()
    status.write("prefill", seconds=time.monotonic() - start)


def _prompts(path: Path) -> Iterator[str]:
    """Prompts as the supervisor appends them; waits for more until the line that ends them."""
    offset = 0
    while True:
        data = path.read_bytes() if path.exists() else b""
        whole, newline, _ = data[offset:].rpartition(b"\n")
        if newline:
            offset += len(whole) + 1
            for line in whole.split(b"\n"):
                value = json.loads(line)
                if value.get("end"):
                    return
                yield str(value["prompt"])
        else:
            time.sleep(0.05)


def _answer(model: Any, words: Any, device: Any, prompt: str, count: int, status: Status) -> None:
    import torch
    from transformers import TextStreamer

    times: list[float] = []

    class Stream(TextStreamer):
        """Sends each finished piece of text to the supervisor."""

        def put(self, value: Any) -> None:
            if not self.next_tokens_are_prompt:
                times.append(time.monotonic())
            super().put(value)

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            if status.rank == 0:
                status.write("text", text=text, end=stream_end)

    if words.chat_template:
        message = [{"role": "user", "content": prompt}]
        inputs = words.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    else:
        inputs = words(prompt, return_tensors="pt")
    inputs = {key: value.to(device) for key, value in inputs.items() if key in ("input_ids", "attention_mask")}
    start = time.monotonic()
    with torch.no_grad():
        output = model.generate(
            **inputs, max_new_tokens=count, do_sample=False, streamer=Stream(words, skip_prompt=True),
            pad_token_id=words.pad_token_id,
        )  # fmt: skip
    _synchronize()
    new = output.shape[1] - (0 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1])
    if times:
        status.write("prefill", seconds=times[0] - start, prompt_tokens=int(inputs["input_ids"].shape[1]))
    if len(times) > 1:
        rate = (len(times) - 1) / max(times[-1] - times[0], 1e-9)
        status.write("decode", tokens_per_second=rate, seconds=times[-1] - start, tokens=int(new))


def _first_device(model: Any) -> Any:
    import torch

    hook = getattr(model, "_hf_hook", None)
    if hook is not None and getattr(hook, "execution_device", None) is not None:
        place = hook.execution_device
        return torch.device(f"cuda:{place}" if isinstance(place, int) else place)
    return torch.device(models.own_device())


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _allocated() -> list[int]:
    import torch

    if not torch.cuda.is_available():
        return []
    return [torch.cuda.max_memory_allocated(card) for card in range(torch.cuda.device_count())]
