"""The cut model: the real architecture with a few of its layers, on fake tensors."""

from __future__ import annotations

from typing import Any

from advisor.job import Job
from advisor.memory.trace.types import Stack
from advisor.models.spec import ModelSpec

# Config keys that hold the number of layers, by stack.
_LAYER_KEYS = {"": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"), "dec": ("num_decoder_layers",)}
AUTO = {"causal": "AutoModelForCausalLM", "seq2seq": "AutoModelForSeq2SeqLM", "masked": "AutoModelForMaskedLM"}


def full_config(model: ModelSpec) -> Any:
    """transformers' config of the whole model. Raises InputError when transformers cannot build it."""
    from transformers import AutoConfig

    from advisor.errors import InputError

    values = {key: value for key, value in model.config.items() if key != "model_type"}
    try:
        return AutoConfig.for_model(model.model_type, **values)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(model.asked, f"transformers cannot read its config ({str(error).splitlines()[0]})") from error


def _signatures(config: Any, total: int) -> list[tuple[Any, ...]]:
    """What makes layers differ: attention kind, dense or expert MLP."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    mlps = getattr(config, "mlp_layer_types", None)
    dense_first = getattr(config, "first_k_dense_replace", 0) or 0
    moe_layers = getattr(config, "moe_layers", None)
    every = getattr(config, "global_attn_every_n_layers", 0) or 0
    rope = getattr(config, "no_rope_layers", None)
    out = []
    for index in range(total):
        out.append(
            (
                kinds[index] if isinstance(kinds, (list, tuple)) and len(kinds) == total else "",
                mlps[index] if isinstance(mlps, (list, tuple)) and len(mlps) == total else "",
                index < dense_first,
                index in moe_layers if isinstance(moe_layers, (list, tuple)) else "",
                index % every == 0 if every else "",
                rope[index] if isinstance(rope, (list, tuple)) and len(rope) == total else "",
            )
        )
    return out


def _stack(name: str, signatures: list[tuple[Any, ...]]) -> Stack:
    total = len(signatures)
    for period in range(1, total + 1):
        for prefix in range(min(8, total)):
            if all(signatures[i] == signatures[i + period] for i in range(prefix, total - period)):
                tail = period + (total - prefix) % period
                head = prefix + period
                if head + period + tail > total or (total - head - tail) % period:
                    continue
                return Stack(name, head, period, tail, total)
    return Stack(name, total, 1, 0, total)  # too few layers, or no repetition: trace them all


def stacks_of(model: ModelSpec, config: Any) -> tuple[Stack, ...]:
    """The repeated stacks of a model and how each is cut."""
    total = model.layers
    if model.kind == "seq2seq":
        decoder = getattr(config, "num_decoder_layers", None) or getattr(config, "decoder_layers", None) or total
        return (_stack("enc", [()] * total), _stack("dec", [()] * int(decoder)))
    return (_stack("", _signatures(config, total)),)


def cut_config(model: ModelSpec, job: Job) -> tuple[Any, tuple[Stack, ...]]:
    """The cut model's config and its stacks."""
    whole = full_config(model)
    stacks = stacks_of(model, whole)
    main = stacks[0]
    values = dict(model.config)
    values.pop("model_type")
    for key in _LAYER_KEYS[""]:
        if key in values:
            values[key] = main.cut
    if len(stacks) > 1:
        for key in ("num_decoder_layers", "decoder_layers"):
            if key in values:
                values[key] = stacks[1].cut
    keep = main.head + main.period
    for key, value in list(values.items()):
        if isinstance(value, (list, tuple)) and len(value) == main.total:
            values[key] = list(value[:keep]) + (list(value[-main.tail :]) if main.tail else [])
    if "moe_layers" in values:
        values.pop("moe_layers")
    if "attention_types" in values:  # GPT-Neo writes its layers' kinds as groups with a number of repetitions
        layers = list(whole.attention_layers)
        kept = layers[:keep] + (layers[-main.tail :] if main.tail else [])
        values["attention_types"] = [[[kind], 1] for kind in kept]
    from transformers import AutoConfig

    config = AutoConfig.for_model(model.model_type, **values)
    kinds = getattr(whole, "layer_types", None)
    if isinstance(kinds, (list, tuple)) and len(kinds) == main.total and main.cut != main.total:
        config.layer_types = list(kinds[:keep]) + (list(kinds[-main.tail :]) if main.tail else [])
    config.use_cache = not job.trains
    return config, stacks


def build(model: ModelSpec, config: Any, job: Job, attention: str) -> Any:
    """The model on the meta device, in the job's load dtype."""
    import torch
    import transformers

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[job.load_dtype]
    cls = getattr(transformers, AUTO[model.kind])
    # Set after building, so that an architecture which refuses a kernel on this machine is still traced with the one
    # that the plan will run.
    config._attn_implementation = "eager"
    capped = bool(getattr(config, "attn_logit_softcapping", None))
    if attention == "sdpa" and capped:
        # SDPA has no soft cap: some versions of transformers ran without it, newer ones refuse. Memory is the same.
        config.attn_logit_softcapping = None
    with torch.device("meta"):
        made = cls.from_config(config, dtype=dtype)
    if job.attention == "sdpa" and not made._supports_sdpa and not capped:
        attention = "eager"  # BLOOM, MPT, GPT-Neo, gpt-oss have no SDPA path: the library runs the plain one
    for part in {id(module.config): module.config for module in made.modules() if hasattr(module, "config")}.values():
        part._attn_implementation = attention
    return made


def layer_lists(made: Any, stacks: tuple[Stack, ...]) -> dict[str, Any]:
    """The ModuleList of each stack: the outermost ones with the cut number of layers."""
    import torch

    found: dict[str, Any] = {}
    for name, module in made.named_modules():
        if not isinstance(module, torch.nn.ModuleList):
            continue
        for stack in stacks:
            side = {"enc": "encoder", "dec": "decoder"}.get(stack.name, "")
            if stack.name not in found and len(module) == stack.cut and (not side or side in name.split(".")):
                found[stack.name] = module
                break
    missing = [stack.name for stack in stacks if stack.name not in found]
    if missing:
        raise RuntimeError(f"{type(made).__name__}: no list of {[s.cut for s in stacks]} layers found")
    return found
