"""Random weights for rehearsals of models that are never built whole on one device: dispatched and quantized ones."""

from __future__ import annotations

from typing import Any


def _device_of(name: str, device_map: dict[str, Any]) -> Any:
    """The device of the longest map entry that covers ``name``."""
    best = max((key for key in device_map if key == "" or name == key or name.startswith(key + ".")), key=len)
    place = device_map[best]
    return f"cuda:{place}" if isinstance(place, int) else place


def _empty(cls: Any, config: Any, dtype: Any) -> Any:
    import accelerate

    with accelerate.init_empty_weights(include_buffers=False):
        model = cls.from_config(config, dtype=dtype)
    model.tie_weights()
    return model


def _fill(model: Any, device_map: dict[str, Any]) -> None:
    """Give every parameter that is still on meta random values where the map puts it (disk ones are made on the CPU)."""
    import torch

    made: dict[int, Any] = {}
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        if not parameter.is_meta:
            continue
        owner, _, leaf = name.rpartition(".")
        if id(parameter) not in made:
            place = _device_of(name, device_map)
            place = "cpu" if place == "disk" else place
            # Random numbers for tens of GB take minutes on the CPU: they are drawn on a card, tensor by tensor.
            draw = "cuda" if place == "cpu" and torch.cuda.is_available() else place
            value = torch.empty(parameter.shape, dtype=parameter.dtype, device=draw).normal_(0.0, 0.02).to(place)
            made[id(parameter)] = torch.nn.Parameter(value, requires_grad=parameter.requires_grad)
        setattr(model.get_submodule(owner), leaf, made[id(parameter)])


def random_dispatched(cls: Any, config: Any, dtype: Any, device_map: dict[str, Any], offload_folder: str | None) -> Any:
    """A model with random weights dispatched by accelerate as ``device_map`` says."""
    import accelerate
    import torch

    model = _empty(cls, config, dtype)
    _fill(model, device_map)
    model.eval()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return accelerate.dispatch_model(model, device_map=device_map, offload_dir=offload_folder, force_hooks=True)


def random_quantized(cls: Any, config: Any, dtype: Any, quantization: Any, device_map: dict[str, Any]) -> Any:
    """A bitsandbytes model with random weights: each linear is quantized alone, so no full-size model ever exists.

    The output head and the embedding stay in ``dtype``, as transformers' quantizer leaves them.
    """
    import accelerate
    import bitsandbytes as bnb
    import torch
    from transformers.quantizers.auto import AutoHfQuantizer

    model = _empty(cls, config, dtype)
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.Linear) or module is head:
            continue
        place = _device_of(name, device_map)
        weight = torch.empty(module.out_features, module.in_features, dtype=dtype, device=place).normal_(0.0, 0.02)
        bias = module.bias is not None
        if quantization.load_in_4bit:
            linear = bnb.nn.Linear4bit(
                module.in_features, module.out_features, bias=bias, device="meta", quant_type="nf4",
                compute_dtype=quantization.bnb_4bit_compute_dtype, compress_statistics=True,
                quant_storage=quantization.bnb_4bit_quant_storage,
            )  # fmt: skip
            linear.weight = bnb.nn.Params4bit(
                weight, requires_grad=False, compress_statistics=True, quant_type="nf4", module=linear,
                quant_storage=quantization.bnb_4bit_quant_storage,
            ).to(place)  # fmt: skip
        else:
            linear = bnb.nn.Linear8bitLt(
                module.in_features, module.out_features, bias=bias, device="meta", has_fp16_weights=False
            )
            linear.weight = bnb.nn.Int8Params(
                weight.to("cpu", torch.float16), requires_grad=False, has_fp16_weights=False
            ).to(place)
        if bias:
            linear.bias = torch.nn.Parameter(torch.zeros(module.out_features, dtype=dtype, device=place))
        linear.requires_grad_(False)
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, linear)
        del weight
    _fill(model, device_map)
    for name, buffer in list(model.named_buffers()):
        owner, _, leaf = name.rpartition(".")
        model.get_submodule(owner)._buffers[leaf] = buffer.to(_device_of(name, device_map))
    # The flags that transformers' own quantizer would have set; PEFT and the Trainer ask for them.
    quantizer = AutoHfQuantizer.from_config(quantization, pre_quantized=False)
    model.hf_quantizer = quantizer
    model.is_quantized = True
    model.quantization_method = quantization.quant_method
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = quantization.load_in_4bit, quantization.load_in_8bit
    model.config.quantization_config = quantization
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if len(set(device_map.values())) > 1:
        model = accelerate.dispatch_model(model, device_map=device_map, force_hooks=True)
    return model
