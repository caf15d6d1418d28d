"""bitsandbytes' layers as the GPU runs them, for fake tensors: what they hold and what they allocate.

Sources: bitsandbytes 0.50, bitsandbytes/autograd/_functions.py (MatMul4Bit, MatMul8bitLt) and nn/modules.py.
"""

from __future__ import annotations

from typing import Any

import torch

from advisor.memory.operators import Cost
from advisor.memory.trace.recorder import Recorder

BLOCK = 64  # weights that share one scale in nf4
NESTED = 256  # scales that share one scale of scales (double quantization)


def nf4_bytes(numel: int) -> int:
    """Device bytes of ``numel`` weights in nf4 with double quantization."""
    blocks = -(-numel // BLOCK)
    return -(-numel // 2) + blocks + 4 * -(-blocks // NESTED)


class _Nf4(torch.autograd.Function):
    """Dequantizes the weight for the product and again for the backward; keeps neither."""

    @staticmethod
    def forward(ctx: Any, x: Any, layer: Any) -> Any:
        ctx.layer = layer
        weight = _dequantized(layer, x)
        return torch.nn.functional.linear(x, weight, layer.bias)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return torch.matmul(grad, _dequantized(ctx.layer, grad)), None


def _dequantized(layer: Any, like: Any) -> Any:
    """The weight in the compute dtype, as the dequantization kernel writes it."""
    count = layer.in_features * layer.out_features
    if Recorder.current is not None:
        moved = count * like.element_size() + nf4_bytes(count)
        Recorder.current.operator(Cost("other", "none", 0.0, moved))
    return torch.empty((layer.out_features, layer.in_features), dtype=like.dtype, device=like.device)


class _Int8(torch.autograd.Function):
    """Quantizes the input by rows, multiplies in int8, and scales the int32 result back.

    The input stays for the backward as an attribute of the graph's node, not as a saved tensor: checkpointing, which drops
    saved tensors, keeps it (bitsandbytes 0.50, MatMul8bitLt.forward).
    """

    @staticmethod
    def forward(ctx: Any, x: Any, layer: Any) -> Any:
        half = x.to(torch.float16)
        rows = half.reshape(-1, half.shape[-1])
        quantized = torch.empty(rows.shape, dtype=torch.int8, device=x.device)
        scales = torch.empty((rows.shape[0],), dtype=torch.float32, device=x.device)
        result = torch.empty((rows.shape[0], layer.out_features), dtype=torch.int32, device=x.device)
        out = torch.empty((rows.shape[0], layer.out_features), dtype=torch.float16, device=x.device)
        if Recorder.current is not None:
            count, lines = layer.in_features * layer.out_features, rows.shape[0]
            moved = count + rows.numel() + 4 * result.numel()
            Recorder.current.operator(Cost("other", "none", 0.0, 3.0 * rows.numel()))
            Recorder.current.operator(Cost("matmul", "int8", 2.0 * count * lines, moved))
            Recorder.current.operator(Cost("other", "none", 0.0, 6.0 * result.numel()))
        del quantized, scales, result
        ctx.layer = layer
        ctx.kept = x if ctx.needs_input_grad[0] else None
        return out.reshape(*x.shape[:-1], layer.out_features).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        layer = ctx.layer
        weight = torch.empty((layer.out_features, layer.in_features), dtype=grad.dtype, device=grad.device)
        return torch.matmul(grad, weight), None


class FakeQuantizedLinear(torch.nn.Module):
    """A linear layer whose weight is quantized storage. Has what PEFT looks for in a linear layer."""

    def __init__(self, linear: Any, kind: str, compute: Any) -> None:
        super().__init__()
        self.compute = compute
        self.in_features, self.out_features, self.kind = linear.in_features, linear.out_features, kind
        count = self.in_features * self.out_features
        if kind == "nf4":
            # One block stands for the packed weights, scales and scales of scales: three storages on the device.
            blocks = -(-count // BLOCK)
            self.weight = _frozen(torch.empty((-(-count // 2), 1), dtype=torch.uint8, device="meta"))
            self.register_buffer("absmax", torch.empty((blocks,), dtype=torch.uint8, device="meta"))
            self.register_buffer("nested", torch.empty((-(-blocks // NESTED),), dtype=torch.float32, device="meta"))
        else:
            self.weight = _frozen(torch.empty((self.out_features, self.in_features), dtype=torch.int8, device="meta"))
            self.register_buffer("scales", torch.empty((self.out_features,), dtype=torch.float32, device="meta"))
        self.bias = linear.bias

    def forward(self, x: Any) -> Any:
        """The product, computed in the compute dtype and given back in the input's."""
        if self.kind == "int8":
            return _Int8.apply(x, self)
        return _Nf4.apply(x.to(self.compute), self).to(x.dtype)


def _frozen(tensor: Any) -> Any:
    return torch.nn.Parameter(tensor, requires_grad=False)


class LoraQuantizedLinear(torch.nn.Module):
    """PEFT's LoRA on a quantized layer (peft/tuners/lora/bnb.py): the base's result is cloned, adapters run in fp32."""

    def __init__(self, base: Any, rank: int, dtype: Any) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = torch.nn.Linear(base.in_features, rank, bias=False, dtype=dtype, device="meta")
        self.lora_B = torch.nn.Linear(rank, base.out_features, bias=False, dtype=dtype, device="meta")

    @property
    def weight(self) -> Any:
        """The base layer's, as PEFT's layers have it: T5 looks at it."""
        return self.base_layer.weight

    def forward(self, x: Any) -> Any:
        """Base result plus the scaled adapter."""
        result = self.base_layer(x)
        if getattr(self.base_layer, "kind", None) == "nf4":
            result = result.clone()
        kind = result.dtype
        low = x.to(self.lora_A.weight.dtype)
        output = self.lora_B(self.lora_A(low)) * 2.0
        if output.dtype != kind:
            output = output.to(kind)
        return result + output


def quantize(made: Any, kind: str, compute: Any) -> None:
    """Replace every linear layer but the output head and those that transformers keeps in fp32, as its quantizer does.

    ``compute`` is a torch dtype.
    """
    head, kept = made.get_output_embeddings(), _kept_in_fp32(made)
    for name, module in list(made.named_modules()):
        if not isinstance(module, torch.nn.Linear) or module is head:
            continue
        owner, _, leaf = name.rpartition(".")
        if leaf in kept:
            module.to(torch.float32)
        else:
            setattr(made.get_submodule(owner), leaf, FakeQuantizedLinear(module, kind, compute))


def _kept_in_fp32(made: Any) -> frozenset[str]:
    """Names of layers that are neither quantized nor rounded (T5's wo)."""
    return frozenset(getattr(made, "_keep_in_fp32_modules", None) or ())


def adapt_quantized(made: Any, rank: int, targets: str | tuple[str, ...], dtype: Any) -> None:
    """Put LoRA on the linear layers of a quantized model (all but the head, or those named), and freeze the rest."""
    for parameter in made.parameters():
        parameter.requires_grad_(False)
    kept = _kept_in_fp32(made)
    for name, module in list(made.named_modules()):
        owner, _, leaf = name.rpartition(".")
        linear = isinstance(module, FakeQuantizedLinear) or (isinstance(module, torch.nn.Linear) and leaf in kept)
        if linear and (targets == "all-linear" or leaf in targets):
            setattr(made.get_submodule(owner), leaf, LoraQuantizedLinear(module, rank, dtype))


def prepare_for_kbit(made: Any) -> None:
    """What peft.prepare_model_for_kbit_training does to memory: everything left in 16 bits becomes fp32."""
    for module in made.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.dtype in (torch.float16, torch.bfloat16):
                setattr(module, name, _frozen(torch.empty(parameter.shape, dtype=torch.float32, device="meta")))
