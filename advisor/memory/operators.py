"""What one operator costs: floating point operations and bytes moved, for the time model.

The tracer calls :func:`operator_cost` for every operator that it sees; operators that launch nothing (views, empty
allocations) give None. Attention that the tracer replaces by a stand-in is described by :func:`attention_cost`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log2, prod
from typing import Any, NamedTuple


class Cost(NamedTuple):
    """One operator. ``kind`` is matmul, attention or other; ``dtype`` as a Job names it, "none" for other types."""

    kind: str
    dtype: str
    flops: float  # multiply and add count as two; matrix products and attention only
    moved: float  # bytes read and written

    @property
    def label(self) -> str:
        """Operators of one label may be summed: alike in kind, dtype and, within a factor of two, in FLOPs a byte.

        So the larger of time by arithmetic and time by traffic is still right for the sum.
        """
        intensity = round(log2(self.flops / self.moved)) if self.flops and self.moved else 0
        return f"{self.kind}:{self.dtype}:{intensity}"


# Names of torch dtypes; whatever is missing here moves bytes but has no matrix rate.
_DTYPES = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.float32": "fp32",
    "torch.int8": "int8",
    "torch.uint8": "uint8",
}
_DEVICE_LIBRARIES = ("aten::", "advisor::", "bitsandbytes::", "_C_flashattention", "flash_attn::")
# Operators without a kernel that their schema does not show as views.
_NO_KERNEL = frozenset(
    {
        "aten::_unsafe_view",
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::empty_permuted",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::lift_fresh",
        "aten::_local_scalar_dense",
        "aten::is_same_size",
        "aten::resize_",
        "aten::set_",
    }
)
# Operators that read only as much of their first input as they write.
_GATHERS = frozenset({"aten::embedding", "aten::index_select", "aten::index", "aten::gather"})
# Where in the arguments the two factors of a matrix product stand.
_MATMULS: Mapping[str, tuple[int, int]] = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::linear": (0, 1),
    "aten::matmul": (0, 1),
    "aten::_int_mm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::_grouped_mm": (0, 1),
}


def operator_cost(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, out: Any) -> Cost | None:
    """The cost of one call of an ``OpOverload`` with its arguments and result; None when it launches nothing.

    A matrix product of (m, k) by (k, n) counts 2·m·k·n operations. Bytes are those of all tensors read and written,
    each at most as large as its storage (an expanded tensor is read from its source).
    """
    schema = func._schema
    if not schema.name.startswith(_DEVICE_LIBRARIES) or schema.name in _NO_KERNEL or _is_view(schema):
        return None
    inputs = list(_tensors([args, dict(kwargs or {})]))
    outputs = list(_tensors(out)) or list(_written(schema, args))
    if not inputs and not outputs:
        return None
    written = sum(_bytes(tensor) for tensor in outputs)
    if schema.name in _GATHERS:
        read = written + sum(_bytes(tensor) for tensor in inputs[1:])
    else:
        read = sum(_bytes(tensor) for tensor in inputs)
    flops = _flops(schema.name, args, outputs)
    kind = "matmul" if flops else "other"
    lead = args[_MATMULS[schema.name][0]] if schema.name in _MATMULS else (inputs or outputs)[0]
    return Cost(kind, _DTYPES.get(str(lead.dtype), "none"), flops, read + written)


def attention_cost(
    query: tuple[int, int, int, int], keys: int, kv_heads: int, dtype: str, *, causal: bool, backward: bool
) -> Cost:
    """The cost of a fused attention kernel.

    ``query`` is (batch, heads, tokens, head width), ``keys`` the length of keys and values, ``dtype`` "bf16", "fp16"
    or "fp32". Forward is two matrix products, backward five (the flash kernel makes the scores again); a causal mask
    over a square halves them. Bytes: query, keys, values and output once, thrice in backward with the gradients.
    """
    batch, heads, tokens, width = query
    # Query row i of a causal square sees i + 1 keys; a shorter query at the end of the keys sees nearly all.
    seen = keys - (tokens - 1) / 2 if causal and keys >= tokens else float(keys)
    products = 5 if backward else 2
    flops = float(products * 2 * batch * heads * tokens * seen * width)
    element = 4 if dtype == "fp32" else 2
    moved = element * batch * width * (2 * heads * tokens + 2 * kv_heads * keys)
    return Cost("attention", dtype, flops, moved * (3 if backward else 1))


def _is_view(schema: Any) -> bool:
    """Whether every result is a view of an argument: shares its memory and writes nothing."""
    returns = schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _written(schema: Any, args: Sequence[Any]) -> Iterator[Any]:
    """Tensors that an operator without results (the _foreach_ forms) writes in place."""
    for declared, given in zip(schema.arguments, args, strict=False):
        if declared.alias_info is not None and declared.alias_info.is_write:
            yield from _tensors(given)


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _bytes(tensor: Any) -> int:
    return min(int(tensor.numel()) * int(tensor.element_size()), int(tensor.untyped_storage().nbytes()))


def _flops(name: str, args: Sequence[Any], outputs: Sequence[Any]) -> int:
    if name in _MATMULS and outputs:
        left = args[_MATMULS[name][0]]
        return 2 * int(outputs[0].numel()) * int(left.shape[-1])
    if name == "aten::convolution" and outputs:
        weight = args[1]
        return 2 * int(outputs[0].numel()) * prod(int(size) for size in weight.shape[1:])
    return 0
