"""What only ZeRO runs need: proof that ZeRO-3 is really active."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def initialise() -> None:
    """Start DeepSpeed's communication before any model is made.

    zero.Init reads the world size from it, and believes in one process when it is not there (case A11).
    """
    import deepspeed
    import torch

    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo", verbose=False)


def count_cpu_ranks() -> None:
    """Let accelerate see DeepSpeed's ranks on the CPU: left alone it names no backend and believes in one process.

    Each rank would then see all data, and all of them would write the same checkpoint files.
    """
    import accelerate

    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    try:
        accelerate.PartialState(backend="gloo")
    finally:
        del os.environ["ACCELERATE_USE_DEEPSPEED"]


@contextmanager
def kept_deepspeed_config(unset: Callable[[], None]) -> Iterator[None]:
    """Without transformers' registered DeepSpeed config inside the block (so nothing is partitioned), with it after."""
    from transformers.integrations import deepspeed as integration

    reference = integration._hf_deepspeed_config_weak_ref
    unset()
    try:
        yield
    finally:
        integration._hf_deepspeed_config_weak_ref = reference


def assert_partitioned(model: Any, world_size: int) -> None:
    """Raise RuntimeError unless the sampled parameters are ZeRO-3 partitions.

    A script that loads its model before the DeepSpeed config exists runs unsharded and nobody says so (case C06).
    """
    parameters = list(model.parameters())
    sample = [parameters[0], parameters[len(parameters) // 2], parameters[-1]]
    for parameter in sample:
        if not hasattr(parameter, "ds_id"):
            raise RuntimeError("ZeRO-3 was planned but is not active: a sampled parameter is no ZeRO parameter")
        partition = parameter.ds_tensor.numel() if parameter.ds_tensor is not None else 0
        persistent = getattr(parameter, "ds_persist", False)
        if not persistent and world_size > 1 and partition * world_size < parameter.ds_numel:
            raise RuntimeError("ZeRO-3 was planned but a sampled parameter's partition is too small to be one")
        if not persistent and world_size > 1 and parameter.numel() == parameter.ds_numel and parameter.numel() > 0:
            raise RuntimeError("ZeRO-3 was planned but is not active: a sampled parameter is held whole")


def assert_engine(wrapped: Any, stage: int) -> None:
    """Raise RuntimeError unless the Trainer's model is a DeepSpeed engine of the planned stage."""
    found = getattr(wrapped, "zero_optimization_stage", None)
    if found is None:
        raise RuntimeError(f"ZeRO-{stage} was planned but the model is a plain {type(wrapped).__name__}")
    if found() != stage:
        raise RuntimeError(f"ZeRO-{stage} was planned but DeepSpeed runs stage {found()}")


def assert_not_data_parallel(model: Any) -> None:
    """Raise RuntimeError when the Trainer wrapped the model in nn.DataParallel (it does when it sees several GPUs)."""
    import torch

    if isinstance(model, torch.nn.DataParallel):
        raise RuntimeError("the Trainer wrapped the model in nn.DataParallel: more GPUs are visible than planned")


def assert_placed(model: Any, planned: dict[str, Any]) -> None:
    """Raise RuntimeError unless accelerate's map is the planned one."""
    actual = getattr(model, "hf_device_map", None)
    if actual is None:
        if len(set(planned.values())) == 1:
            return  # one device for all: dispatch leaves no map behind
        raise RuntimeError("a device map was planned but the model was not dispatched")
    different = {
        name: (place, actual.get(name)) for name, place in planned.items() if str(actual.get(name)) != str(place)
    }
    if different:
        name, (place, found) = next(iter(different.items()))
        raise RuntimeError(f"{name} was planned on {place} but lies on {found}")
