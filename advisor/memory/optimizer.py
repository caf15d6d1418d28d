"""What each optimizer of the Trainer holds between steps and allocates inside one.

Sources: torch 2.11 torch/optim (the foreach forms), transformers 5.17 optimization.py (Adafactor) and trainer.py (which
class a name means; embeddings are kept in 32 bits under 8-bit optimizers), bitsandbytes 0.50 optim/optimizer.py (blocks of
256 states a scale, 32-bit states under 4096 elements, paged states in managed memory).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.job import Job
from advisor.memory.timeline import Parameter

_BLOCK_8BIT = 256
_SMALL_8BIT = 4096


@dataclass(frozen=True, slots=True)
class Step:
    """Sizes in bytes. ``states`` are allocated at the first step and stay; ``temporaries`` are sets of storages alive
    together, one set after the other; ``paged`` states lie in managed memory, outside the allocator."""

    states: tuple[int, ...]
    temporaries: tuple[tuple[int, ...], ...]
    paged: int = 0


def is_embedding(name: str) -> bool:
    """Whether a parameter is an nn.Embedding's weight, by the names that families use."""
    leaf = name.removesuffix(".weight").rsplit(".", 1)[-1]
    return leaf in {
        "embed_tokens", "wte", "wpe", "embed_in", "word_embeddings", "shared", "position_embeddings", "embed_positions",
        "token_type_embeddings", "relative_attention_bias", "tok_embeddings",
    }  # fmt: skip


def optimizer_step(name: str, parameters: Sequence[Parameter]) -> Step:
    """The step of optimizer ``name`` over the trainable ``parameters``. Raises ValueError for one we do not know."""
    trained = [parameter for parameter in parameters if parameter.trainable]
    sizes = [parameter.numel * parameter.dtype_bytes for parameter in trained]
    if name in ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw"):
        states = tuple(size for size in sizes for _ in range(2))
        return Step(states, () if name == "adamw_torch_fused" else _foreach_groups(trained))
    if name == "sgd":
        return Step((), ())
    if name == "adafactor":
        return _adafactor(trained)
    if name in ("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"):
        return _eight_bit(trained, 2, name.startswith("paged"))
    if name in ("lion_8bit", "paged_lion_8bit"):
        return _eight_bit(trained, 1, name.startswith("paged"))
    if name in ("paged_adamw_32bit", "paged_adamw"):
        return Step((), (), paged=8 * sum(parameter.numel for parameter in trained))
    if name in ("lion_32bit", "lion"):
        return Step(tuple(4 * parameter.numel for parameter in trained), ())
    if name == "paged_lion_32bit":
        return Step((), (), paged=4 * sum(parameter.numel for parameter in trained))
    raise ValueError(f"no memory model of the optimizer {name!r}")


def managed_bytes(job: Job, parameters: Sequence[Parameter]) -> int:
    """Bytes of states that a paged optimizer keeps in managed memory."""
    return optimizer_step(job.optimizer, parameters).paged if job.trains else 0


def decays(name: str) -> bool:
    """Whether the Trainer gives a parameter weight decay: not to norms and biases."""
    return not (name.endswith("bias") or "norm" in name.lower().rsplit(".", 2)[-2:][0])


def _foreach_groups(trained: Sequence[Parameter]) -> tuple[tuple[int, ...], ...]:
    """AdamW's foreach form makes the square roots of all second moments of a parameter group at once.

    The Trainer makes two groups: with weight decay, and without (norms and biases).
    """
    groups: dict[bool, list[int]] = {True: [], False: []}
    for parameter in trained:
        groups[decays(parameter.name)].append(parameter.numel * parameter.dtype_bytes)
    return tuple(tuple(sizes) for sizes in groups.values() if sizes)


def _adafactor(trained: Sequence[Parameter]) -> Step:
    """Rows and columns of second moments in fp32; each parameter is stepped alone with fp32 working copies.

    For a 16-bit parameter: the gradient and the parameter in fp32, the update, and one more of the update's size while it
    is computed. A vector keeps whole second moments; the row form needs two dimensions or more.
    """
    states: list[int] = []
    temporaries: list[tuple[int, ...]] = []
    for parameter in trained:
        half = parameter.dtype_bytes < 4
        # Its shape is not known here: a matrix's rows and columns are small beside it, square is near enough.
        side = int(parameter.numel**0.5) + 1
        vector = "norm" in parameter.name.lower() or parameter.name.endswith("bias")
        states += [4 * parameter.numel] if vector else [4 * side, 4 * side]
        whole = 4 * parameter.numel
        temporaries.append((whole, whole, whole, whole) if half else (whole, whole))
    return Step(tuple(states), tuple(temporaries))


def _eight_bit(trained: Sequence[Parameter], moments: int, paged: bool) -> Step:
    states: list[int] = []
    for parameter in trained:
        count = parameter.numel
        if count < _SMALL_8BIT or is_embedding(parameter.name):
            states += [4 * count] * moments
        else:
            states += [count, 4 * -(-count // _BLOCK_8BIT)] * moments
    return Step((), (), paged=sum(states)) if paged else Step(tuple(states), ())
