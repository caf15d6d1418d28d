"""Stand-ins for what CUDA does differently from the CPU that the fake tensors pretend to be.

Each allocates what the CUDA kernel allocates and saves for the backward what it saves. Sources: PyTorch 2.11,
aten/src/ATen/native/transformers (kernel choice in cuda/sdp_utils.cpp, flash and memory-efficient forward and backward in
cuda/attention.cu and cuda/attention_backward.cu, math path in attention.cpp); autocast lists in aten/src/ATen/autocast_mode.h.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from advisor.memory.operators import Cost, attention_cost
from advisor.memory.trace.recorder import Recorder

_HALF = (torch.float16, torch.bfloat16)


def _round(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


class _Flash(torch.autograd.Function):
    """FlashAttention 2 as torch ships it: saves q, k, v, out and the log-sum-exp; never the scores."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, recorder: Recorder, causal: bool) -> Any:
        b, h, s, _ = q.shape
        out = torch.empty((b, s, h, v.shape[-1]), dtype=q.dtype, device=q.device).transpose(1, 2)
        lse = torch.empty((b, h, s), dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.recorder, ctx.causal = recorder, causal
        recorder.operator(_cost(q, k, causal, backward=False))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        q, k, v, _, lse = ctx.saved_tensors
        b, h, s, d = q.shape
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        rows, width = _round(s, 128), _round(d, 32)
        delta = torch.empty((b, h, rows), dtype=torch.float32, device=q.device)
        accumulated = torch.empty((b, rows, h, width), dtype=torch.float32, device=q.device)
        dq = torch.empty((b, s, h, d), dtype=q.dtype, device=q.device).transpose(1, 2)
        t = k.shape[2]
        if k.shape[1] != h:  # grouped heads: gradients are made for every query head, then summed
            wide_k = torch.empty((b, t, h, d), dtype=q.dtype, device=q.device)
            wide_v = torch.empty((b, t, h, v.shape[-1]), dtype=q.dtype, device=q.device)
            dk = torch.empty((b, t, k.shape[1], d), dtype=q.dtype, device=q.device).transpose(1, 2)
            dv = torch.empty((b, t, k.shape[1], v.shape[-1]), dtype=q.dtype, device=q.device).transpose(1, 2)
            del wide_k, wide_v
        else:
            dk = torch.empty((b, t, h, d), dtype=q.dtype, device=q.device).transpose(1, 2)
            dv = torch.empty((b, t, h, v.shape[-1]), dtype=q.dtype, device=q.device).transpose(1, 2)
        ctx.recorder.operator(_cost(q, k, ctx.causal, backward=True))
        del delta, accumulated, lse
        return dq, dk, dv, None, None


class _Efficient(torch.autograd.Function):
    """The memory-efficient kernel: fp32, masks, or unequal head widths."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, mask: Any, recorder: Recorder) -> Any:
        b, h, s, _ = q.shape
        out = torch.empty((b, s, h, v.shape[-1]), dtype=q.dtype, device=q.device).transpose(1, 2)
        saved = torch.empty((b, h, _round(s, 32)), dtype=torch.float32, device=q.device)
        ctx.save_for_backward(q, k, v, out, saved, mask)
        ctx.recorder = recorder
        recorder.operator(_cost(q, k, mask is None, backward=False))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        q, k, v, _, _, _ = ctx.saved_tensors
        delta = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        # Accumulators in fp32 for half inputs (AttentionBackwardKernel::workspace_size).
        space = None if q.dtype == torch.float32 else torch.empty(
            (q.numel() + k.numel() + v.numel(),), dtype=torch.float32, device=q.device
        )  # fmt: skip
        ctx.recorder.operator(_cost(q, k, True, backward=True))
        del delta, space
        return dq, dk, dv, None, None


def _cost(q: Any, k: Any, causal: bool, *, backward: bool) -> Cost:
    dtype = {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(q.dtype, "fp32")
    return attention_cost(tuple(q.shape), k.shape[2], k.shape[1], dtype, causal=causal, backward=backward)


def _math(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None, gqa: bool) -> Any:
    """The math path: whole score matrices; in fp32 for half inputs (torch's default since 2.5)."""
    origin = q.dtype
    if origin in _HALF:
        q, k, v = q.float(), k.float(), v.float()
    if gqa and k.shape[1] != q.shape[1]:
        k, v = k.repeat_interleave(q.shape[1] // k.shape[1], 1), v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    root = (scale if scale is not None else q.shape[-1] ** -0.5) ** 0.5
    scores = torch.matmul(q * root, (k * root).transpose(-2, -1))
    if causal:
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        mask = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype, device=q.device).masked_fill(~seen, -1.0)
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(mask.logical_not(), -1.0)
        scores = scores.add_(mask)
    weights = torch.softmax(scores, -1)
    del scores
    return torch.matmul(weights, v).to(origin)


def attention(recorder: Recorder) -> Any:
    """``scaled_dot_product_attention`` as CUDA would run it on a card with FlashAttention (compute capability 8.0 up)."""

    def sdpa(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        q, k, v = query, key, value
        low = CudaAutocast.active
        if low is not None:  # attention is on autocast's lower list
            q, k, v = (tensor.to(low) if tensor.dtype == torch.float32 else tensor for tensor in (q, k, v))
        if q.dim() == 3:
            return sdpa(q[None], k[None], v[None], attn_mask, dropout_p, is_causal, scale, enable_gqa)[0]
        same_heads = k.shape[1] == q.shape[1] and k.shape[0] == q.shape[0]
        flash = (
            attn_mask is None
            and q.dtype in _HALF
            and q.shape[-1] <= 256
            and q.shape[-1] == v.shape[-1]
            and (same_heads or enable_gqa)
        )
        if flash:
            width = q.shape[-1]
            if width % 8:
                pad = (0, 8 - width % 8)
                q, k, v = (torch.nn.functional.pad(tensor, pad) for tensor in (q, k, v))
            return _Flash.apply(q, k, v, recorder, is_causal)[..., : value.shape[-1]]
        if same_heads and (attn_mask is None or not attn_mask.requires_grad):
            if attn_mask is not None:
                if attn_mask.dtype == torch.bool:  # made additive before the kernel is chosen
                    attn_mask = torch.zeros(attn_mask.shape, dtype=q.dtype, device=q.device).masked_fill(
                        attn_mask.logical_not(), -1.0
                    )
                if attn_mask.shape[-1] % 16:  # rows must be aligned: a padded copy
                    attn_mask = torch.nn.functional.pad(attn_mask, (0, 16 - attn_mask.shape[-1] % 16))
            return _Efficient.apply(q, k, v, attn_mask, recorder)
        return _math(q, k, v, attn_mask, is_causal, scale, enable_gqa)

    return sdpa


class _Dropout(torch.autograd.Function):
    """CUDA's fused dropout keeps a mask of bools; the CPU's would keep scaled values."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        ctx.save_for_backward(mask)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return torch.empty_like(grad)


def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """``F.dropout`` as on CUDA."""
    return _Dropout.apply(x) if training and p > 0 else x


class CudaAutocast(TorchFunctionMode):
    """Autocast with CUDA's operator lists; the fake CPU's own lists differ (softmax and layer norm stay low there)."""

    active: Any = None  # the lower dtype, inside the block

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype
        self._cache: dict[int, tuple[Any, Any]] = {}
        functional = torch.nn.functional
        self._low = {
            functional.linear, torch._C._nn.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__,
            torch.bmm, torch.Tensor.bmm, torch.mm, torch.Tensor.mm, torch.baddbmm, torch.Tensor.baddbmm, torch.addmm,
            torch.Tensor.addmm, torch.conv1d, functional.conv1d, torch.conv2d,
        }  # fmt: skip
        self._high = {
            functional.softmax, torch.softmax, torch.Tensor.softmax, functional.log_softmax, torch.log_softmax,
            functional.layer_norm, torch.layer_norm, functional.rms_norm, functional.cross_entropy, functional.nll_loss,
            torch.pow, torch.Tensor.pow, torch.Tensor.__pow__, torch.rsqrt, torch.Tensor.rsqrt, torch.exp,
            torch.Tensor.exp, torch.log, torch.Tensor.log, torch.cumsum, torch.Tensor.cumsum, torch.sum,
            torch.Tensor.sum, torch.norm, torch.Tensor.norm, functional.binary_cross_entropy_with_logits,
        }  # fmt: skip

    def _lower(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        if value.is_leaf and value.requires_grad:  # cast once, kept until the autocast block ends
            kept = self._cache.get(id(value))
            if kept is None:
                kept = (value, value.to(self.dtype))
                self._cache[id(value)] = kept
            return kept[1]
        return value.to(self.dtype)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in self._low:
            args = tuple(self._lower(value) for value in args)
            kwargs = {key: self._lower(value) for key, value in kwargs.items()}
        elif function in self._high:
            args = tuple(_raise(value) for value in args)
        return function(*args, **kwargs)

    def __enter__(self) -> CudaAutocast:
        CudaAutocast.active = self.dtype
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        CudaAutocast.active = None
        super().__exit__(*error)

    def forget(self) -> None:
        """What leaving the autocast block does: the cast weights are dropped."""
        self._cache.clear()


def _raise(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value


@contextmanager
def cuda_kernels(recorder: Recorder) -> Iterator[None]:
    """Replace attention and dropout by their CUDA stand-ins inside the block."""
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention, functional.dropout
    functional.scaled_dot_product_attention, functional.dropout = attention(recorder), dropout
    try:
        yield
    finally:
        functional.scaled_dot_product_attention, functional.dropout = before


@contextmanager
def grouped_experts() -> Iterator[None]:
    """Grouped products of experts exist for bf16 weights alone; other types run by transformers' own fallback."""
    if importlib.util.find_spec("transformers.integrations.moe") is None:
        yield
        return
    from transformers.integrations import moe

    before = moe._can_use_grouped_mm

    def usable(x: Any, weight: Any, offsets: Any) -> bool:
        return weight.dtype == torch.bfloat16 and bool(before(x, weight, offsets))

    moe._can_use_grouped_mm = usable
    try:
        yield
    finally:
        moe._can_use_grouped_mm = before
