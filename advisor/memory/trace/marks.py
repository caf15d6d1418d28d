"""Marks where modules that own parameters begin and end, forward and backward: where ZeRO-3's hooks act.

DeepSpeed (0.19, runtime/zero/parameter_offload.py) fetches a module's parameters before its forward and when the gradient
of its output is there, and lets go of them after its forward and when the gradient of its own input is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from advisor.memory.trace.recorder import Recorder


def mark_modules(made: Any, recorder: Recorder) -> None:
    """Put the marks' hooks on ``made``. Names are those of ``named_parameters``, which gives tied ones once."""
    names = {id(parameter): name for name, parameter in made.named_parameters()}
    for name, module in made.named_modules():
        owned = tuple(names[id(parameter)] for parameter in module.parameters(recurse=False))
        if owned:
            _hook(module, recorder, name, owned)


def _hook(module: Any, recorder: Recorder, name: str, owned: tuple[str, ...]) -> None:
    def mark(*, enters: bool, backward: bool) -> Callable[[Any], None]:
        return lambda _: recorder.mark(name, owned, enters=enters, backward=backward)

    def before(module: Any, args: Any) -> Any:
        recorder.mark(name, owned, enters=True, backward=False)
        seen = []
        for value in args:
            if isinstance(value, torch.Tensor) and value.requires_grad and value.is_floating_point():
                # A view of its own, so that the hook fires for this module's part of the gradient alone.
                value = value.view_as(value)
                value.register_hook(mark(enters=False, backward=True))
            seen.append(value)
        return tuple(seen)

    def after(module: Any, args: Any, output: Any) -> None:
        recorder.mark(name, owned, enters=False, backward=False)
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, torch.Tensor) and first.requires_grad:
            first.register_hook(mark(enters=True, backward=True))

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
