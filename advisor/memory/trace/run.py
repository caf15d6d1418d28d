"""Run a step of the cut model on fake tensors and write down what it allocates.

Called with everything heavy imported. The training step is traced up to the gradients; optimizers are laid on by
:mod:`advisor.memory.optimizer`, because their temporaries follow the parameter list and not the layers.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from advisor.job import Job
from advisor.memory.trace.build import build, cut_config, layer_lists
from advisor.memory.trace.kernels import CudaAutocast, cuda_kernels, grouped_experts
from advisor.memory.trace.marks import mark_modules
from advisor.memory.trace.quantized import adapt_quantized, prepare_for_kbit, quantize
from advisor.memory.trace.recorder import Recorder
from advisor.memory.trace.types import AFTER, BEFORE, Param, Segment, Stack, Trace
from advisor.models.spec import ModelSpec

_DTYPE = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def run(model: ModelSpec, job: Job) -> Trace:
    """The trace of ``job`` on one device that holds the whole (cut) model."""
    with _quiet():
        config, stacks = cut_config(model, job)
        made = build(model, config, job, "eager" if job.attention == "eager" else "sdpa")
        made = _adapt(made, job)
        recorder = Recorder()
        with (
            FakeTensorMode(allow_non_fake_inputs=True),
            recorder,
            cuda_kernels(recorder),
            _unpacked(),
            grouped_experts(),
        ):
            recorder.enter(Segment("load", 0, "", BEFORE))
            made = made.to_empty(device="cpu")
            _base(made, job).tie_weights()
            for parameter in made.parameters():
                recorder.tag(parameter, "weights")
            for buffer in made.buffers():
                recorder.tag(buffer, "weights")
            marker = _Marker(recorder, layer_lists(made, stacks), stacks)
            if job.strategy == "zero3":
                mark_modules(made, recorder)
            if job.trains:
                _train(made, model, job, recorder, marker)
            else:
                _infer(made, model, config, job, recorder, marker)
            params = _params(made, stacks, marker)
            buffers = sum(_stored(buffer) for buffer in made.buffers())
            # What is alive here outlives the step; what dies in tearing down must not be told as part of it.
            recorder.paused = True
            intervals, operators, marks = recorder.intervals(), recorder.operators(), recorder.marks()
    rows = _logit_bytes(model, job)
    intervals = tuple(
        item._replace(part="logits") if item.part == "activations" and rows and item.size >= rows else item
        for item in intervals
    )
    return Trace(tuple(recorder.segments), intervals, operators, params, buffers, stacks, marks=marks)


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _unpacked() -> Iterator[None]:
    """Without a mask given, transformers looks into the position ids for packed samples, which fake tensors cannot
    answer, and then makes a mask to be safe. A real batch without padding needs none."""
    from transformers import masking_utils

    before = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = before


def _logit_bytes(model: ModelSpec, job: Job) -> int:
    """Bytes of one 16-bit copy of the logits, less a little: what is larger and born near the loss is a copy of them."""
    tokens = job.micro_batch_size * (job.sequence_length if job.trains else 1)
    return int(tokens * model.vocab_size * 2 * 0.9) if tokens * model.vocab_size > 1 << 20 else 0


def _stored(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _base(made: Any, job: Job) -> Any:
    return made.base_model.model if hasattr(made, "peft_config") else made


def _adapt(made: Any, job: Job) -> Any:
    """LoRA by PEFT itself; on quantized layers by stand-ins that allocate what PEFT's do."""
    if job.quantization:
        quantize(made, job.quantization, _DTYPE["fp16" if job.precision.startswith("fp16") else "bf16"])
        if job.trains:
            zero = job.strategy == "zero3"
            if not zero:  # under ZeRO-3 the recipe keeps one dtype for all
                prepare_for_kbit(made)
            assert job.lora is not None
            adapt_quantized(made, job.lora.rank, job.lora.target_modules, _DTYPE[job.lora.dtype])
        return made
    if job.trains and job.method == "lora":
        import peft

        assert job.lora is not None
        targets = job.lora.target_modules
        made = peft.get_peft_model(
            made,
            peft.LoraConfig(
                r=job.lora.rank,
                lora_alpha=job.lora.alpha,
                lora_dropout=0.0,
                target_modules=targets if isinstance(targets, str) else list(targets),
                task_type="SEQ_2_SEQ_LM" if made.config.is_encoder_decoder else "CAUSAL_LM",
            ),
            autocast_adapter_dtype=job.lora.dtype == "fp32",
        )
    return made


class _Marker:
    """Moves the recorder from segment to segment as layers start and end, forward and backward."""

    def __init__(self, recorder: Recorder, lists: dict[str, Any], stacks: tuple[Stack, ...]) -> None:
        self.recorder, self.phase, self.step = recorder, "load", 0
        self.layers: dict[int, tuple[str, int]] = {}
        for stack in stacks:
            for index, layer in enumerate(lists[stack.name]):
                self.layers[id(layer)] = (stack.name, index)
                layer.register_forward_pre_hook(self._before(stack.name, index), with_kwargs=True)
                layer.register_forward_hook(self._after(stack.name, index, index == stack.cut - 1))

    def start(self, phase: str, step: int = 0) -> None:
        """A phase begins, before any layer."""
        self.phase, self.step = phase, step
        self.recorder.enter(Segment(phase, step, "", BEFORE))

    def _before(self, stack: str, index: int) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            if self.phase == "backward":  # a checkpointed layer computed again
                return
            self.recorder.enter(Segment(self.phase, self.step, stack, index))
            hidden = args[0] if args else kwargs.get("hidden_states")
            if index == 0 and isinstance(hidden, torch.Tensor) and hidden.requires_grad:
                hidden.register_hook(self._mark(stack, AFTER))

        return hook

    def _after(self, stack: str, index: int, last: bool) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            if self.phase == "backward":
                return
            hidden = output[0] if isinstance(output, tuple) else output
            if isinstance(hidden, torch.Tensor) and hidden.requires_grad:
                hidden.register_hook(self._mark(stack, index))
            if last:
                # The last layer's input goes when its call returns, which is after this hook.
                self.recorder.enter_at_next(Segment(self.phase, self.step, stack, AFTER))

        return hook

    def _mark(self, stack: str, index: int) -> Any:
        def hook(grad: Any) -> None:
            if self.phase == "backward":
                self.recorder.enter(Segment("backward", self.step, stack, index))

        return hook


def _params(made: Any, stacks: tuple[Stack, ...], marker: _Marker) -> tuple[Param, ...]:
    place: dict[int, tuple[str, int | None]] = {}
    for module in made.modules():
        where = marker.layers.get(id(module))
        if where is not None:
            for parameter in module.parameters():
                place[id(parameter)] = where
    out = []
    for name, parameter in made.named_parameters():
        stack, layer = place.get(id(parameter), ("", None))
        stored = _stored(parameter)
        out.append(
            Param(name, parameter.numel(), parameter.element_size(), stored, parameter.requires_grad, stack, layer)
        )
    return tuple(out)


def _train(made: Any, model: ModelSpec, job: Job, recorder: Recorder, marker: _Marker) -> None:
    made.train()
    autocast = CudaAutocast(_DTYPE[job.precision.removesuffix("-mixed")]) if _amp(job) else None
    if job.gradient_checkpointing:
        made.gradient_checkpointing_enable(_checkpointing(autocast))
        if job.method in ("lora", "qlora"):
            _base(made, job).get_input_embeddings().register_forward_hook(_requires_grad)
    seen: set[int] = set()
    for step in range(2 if job.gradient_accumulation_steps > 1 else 1):
        marker.start("forward", step)
        batch = _batch(model, job)
        if autocast is not None:
            with autocast:
                outputs = made(**batch)
            # accelerate's convert_outputs_to_fp32 wraps the model's forward under mixed precision.
            raised = [value.float() for value in outputs.values() if isinstance(value, torch.Tensor)]
            autocast.forget()
            loss = raised[0]
            del raised
        else:
            outputs = made(**batch)
            loss = outputs.loss
        del outputs
        marker.start("backward", step)
        loss.backward()
        del loss
        for parameter in made.parameters():
            if parameter.grad is not None and id(parameter) not in seen:
                recorder.tag(parameter.grad, "gradients")
                seen.add(id(parameter))
        del batch


def _checkpointing(autocast: CudaAutocast | None) -> dict[str, Any]:
    """Arguments of torch's checkpoint; a layer is computed again under the same autocast, with a cache of its own."""
    options: dict[str, Any] = {"use_reentrant": False}
    if autocast is not None:

        @contextmanager
        def again() -> Iterator[None]:
            with CudaAutocast(autocast.dtype):
                yield

        options["context_fn"] = lambda: (nullcontext(), again())
    return options


def _amp(job: Job) -> bool:
    return job.precision.endswith("-mixed") and job.strategy not in ("zero2", "zero3")


def _requires_grad(module: Any, args: Any, output: Any) -> None:
    output.requires_grad_(True)


def _batch(model: ModelSpec, job: Job) -> dict[str, Any]:
    shape = (job.micro_batch_size, job.sequence_length)
    tokens = torch.ones(shape, dtype=torch.long)
    batch = {"input_ids": tokens, "labels": torch.ones(shape, dtype=torch.long)}
    # A mask of ones is dropped by the model after one look at its values, which fake tensors do not have: its own
    # bytes are here, its effect is none.
    batch["attention_mask"] = None
    return batch


def _infer(made: Any, model: ModelSpec, config: Any, job: Job, recorder: Recorder, marker: _Marker) -> None:
    made.eval()
    with torch.no_grad():
        marker.start("prefill")
        tokens = torch.ones((job.micro_batch_size, job.sequence_length), dtype=torch.long)
        if model.kind == "masked":
            made(input_ids=tokens)
            return
        encoded: Any = None
        if model.kind == "seq2seq":
            encoded = made.get_encoder()(input_ids=tokens)
            start = torch.ones((job.micro_batch_size, 1), dtype=torch.long)
            marker.recorder.enter(Segment("prefill", 0, "dec", BEFORE))
            out = made(encoder_outputs=encoded, decoder_input_ids=start, use_cache=True)
        else:
            out = made(input_ids=tokens, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        # generate() keeps an fp32 copy of the last logits.
        last = out.logits[:, -1, :].to(copy=True, dtype=torch.float32)
        del out
        _tag_cache(cache, recorder)
        del last
        if job.max_new_tokens < 2:
            return
        if hasattr(made, "get_experts_implementation") and "grouped_mm" in made.get_experts_implementation().values():
            # generate() decodes on a GPU with the chosen experts' weights copied side by side, not in groups
            # (GenerationMixin._optimize_model_for_decode).
            made.set_experts_implementation("batched_mm")
        for step, length in enumerate((job.sequence_length + 1, job.sequence_length + job.max_new_tokens)):
            if step:
                _lengthen(cache, model, job, recorder)
            marker.start("decode", step)
            token = torch.ones((job.micro_batch_size, 1), dtype=torch.long)
            if encoded is not None:
                out = made(encoder_outputs=encoded, decoder_input_ids=token, past_key_values=cache, use_cache=True)
            else:
                out = made(input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1)
            last = out.logits[:, -1, :].to(copy=True, dtype=torch.float32)
            _tag_cache(cache, recorder)
            del out, last, length


def _caches(cache: Any) -> Iterator[tuple[Any, bool]]:
    """(cache, grows): the self-attention layers of a cache, and a cross cache's, which do not grow."""
    if hasattr(cache, "self_attention_cache"):
        yield from ((layer, True) for layer in cache.self_attention_cache.layers)
        yield from ((layer, False) for layer in cache.cross_attention_cache.layers)
    else:
        yield from ((layer, True) for layer in cache.layers)


def _tag_cache(cache: Any, recorder: Recorder) -> None:
    for layer, _ in _caches(cache):
        for tensor in _tensors(layer):
            recorder.tag(tensor, "kv_cache")


def _tensors(layer: Any) -> list[Any]:
    return [value for value in vars(layer).values() if isinstance(value, torch.Tensor) and value.numel()]


def _lengthen(cache: Any, model: ModelSpec, job: Job, recorder: Recorder) -> None:
    """Give the cache the length it has before the last token, so that the last decode step can be traced."""
    extra = job.max_new_tokens - 2
    for layer, grows in _caches(cache):
        if not grows or extra <= 0:
            continue
        window = getattr(layer, "sliding_window", None)
        for name, value in list(vars(layer).items()):
            if isinstance(value, torch.Tensor) and value.dim() == 4 and value.numel():
                length = value.shape[2] + extra
                if window is not None:
                    length = min(length, window - 1)
                longer = value.new_empty((*value.shape[:2], length, value.shape[3]))
                recorder.tag(longer, "kv_cache")
                setattr(layer, name, longer)
        if hasattr(layer, "cumulative_length") and isinstance(layer.cumulative_length, int):
            layer.cumulative_length += extra
