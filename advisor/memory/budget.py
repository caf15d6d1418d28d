"""The result of the memory model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# What is alive on a GPU at the peak. "buffers" are gather, prefetch, reduce and flat buckets; "temporary" what a kernel
# or optimizer step needs only then; "runtime" lies outside torch's allocator (CUDA context, cuBLAS, NCCL).
Part = Literal["weights", "gradients", "optimizer", "activations", "logits", "kv_cache", "buffers", "temporary"]
PARTS: tuple[Part, ...] = (
    "weights", "gradients", "optimizer", "activations", "logits", "kv_cache", "buffers", "temporary",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBudget:
    """One GPU, in bytes.

    ``parts`` splits ``allocated`` (the peak of live tensors, torch's max_memory_allocated) at its moment. ``reserved``
    is what the allocator takes from the card when nothing limits it. ``required`` is the smallest allocator capacity
    at which the run survives (allocated <= required <= reserved); ``runtime`` comes on top, outside the allocator.
    ``load_allocated`` is the peak until the model is loaded.
    """

    parts: Mapping[Part, int]
    allocated: int
    reserved: int
    required: int
    runtime: int
    load_allocated: int
    load_reserved: int = 0  # what the allocator holds when the model is loaded
    # Optimizer states in managed memory (paged optimizers): on the card while there is room, in host RAM when there is not.
    managed: int = 0

    @property
    def used(self) -> int:
        """What NVML sees when nothing limits the run."""
        return self.reserved + self.runtime + self.managed

    @property
    def needed(self) -> int:
        """The smallest card on which the run survives: allocator capacity and runtime."""
        return self.required + self.runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A job's memory. ``gpus`` has one entry a used card of one node; host figures are a node's, in bytes."""

    gpus: tuple[GpuBudget, ...]
    host_ram: int  # peak in the run, all processes of a node
    host_ram_load: int  # peak while loading
    host_pinned: int = 0  # page-locked part of host_ram
    host_mapped: int = (
        0  # part of host_ram that is page cache, not taken, where the weights come from a safetensors file
    )
    disk: int = 0  # offload files and the like, a node
    peak_phase: str = ""  # load | forward | backward | step | prefill | decode | save
    phases: Mapping[str, int] = field(default_factory=dict)  # peak allocated a phase, fullest GPU
    notes: tuple[str, ...] = ()

    @property
    def fullest(self) -> GpuBudget:
        """The GPU that needs most; raises ValueError when the job uses none."""
        return max(self.gpus, key=lambda gpu: gpu.needed)
