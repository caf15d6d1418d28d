"""From a timeline to one card's budget: the allocator replayed, with the answer kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from advisor.cache import cached, source_digest, version_of
from advisor.job import Job
from advisor.memory.allocator import replay, required_capacity
from advisor.memory.budget import PARTS, GpuBudget, Part
from advisor.memory.timeline import Event
from advisor.models.spec import ModelSpec


def figures(events: tuple[Event, ...], *, expandable: bool) -> dict[str, Any]:
    """What the allocator does with ``events``: plain values, bytes."""
    seen = replay(events, expandable=expandable)
    return {
        "allocated": seen.allocated,
        "reserved": seen.reserved,
        "required": required_capacity(events, seen, expandable=expandable),
        "load_allocated": seen.load_allocated,
        "load_reserved": seen.load_reserved,
        "parts": {part: size for part, size in seen.parts.items() if size},
        "phases": seen.phases,
        "phase": seen.phase,
    }


def kept(model: ModelSpec, job: Job, extra: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
    """``compute()``, from the disk cache when nothing that it depends on has changed."""
    key = {
        "config": dict(model.config),
        "kind": model.kind,
        "job": asdict(job),
        "versions": [version_of(name) for name in ("torch", "transformers", "peft", "accelerate")],
        "code": source_digest("memory"),
        **extra,
    }
    return cached("memory", key, compute)


def gpu_budget(found: Mapping[str, Any], runtime: int, managed: int = 0) -> GpuBudget:
    """A card's budget of what :func:`figures` found."""
    parts: dict[Part, int] = {part: found["parts"][part] for part in PARTS if part in found["parts"]}
    return GpuBudget(
        parts=parts,
        allocated=found["allocated"],
        reserved=found["reserved"],
        required=found["required"],
        runtime=runtime,
        load_allocated=found["load_allocated"],
        load_reserved=found["load_reserved"],
        managed=managed,
    )
