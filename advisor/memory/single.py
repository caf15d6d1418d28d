"""The whole model on one card."""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.memory.figures import figures, gpu_budget, kept
from advisor.memory.optimizer import managed_bytes
from advisor.memory.runtime import runtime_bytes, runtime_note
from advisor.models.spec import ModelSpec
from advisor.units import GIB

# Resident memory of a Python process with torch and its CUDA libraries: the fall of available memory over the plain
# loads of ``measurements/h200-load.jsonl`` (weights are mapped from the file and do not count).
HOST_PROCESS = int(0.9 * GIB)


def is_hopper(machine: HardwareProfile) -> bool:
    """Whether cuBLAS takes its large workspace."""
    return any(card.capability == (9, 0) for card in machine.gpus)


def budget_single(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The memory of ``job`` on one card of ``machine``. Raises ValueError for an optimizer without a memory model."""
    hopper = is_hopper(machine)

    def compute() -> Any:
        from advisor.memory.assemble import timeline

        line = timeline(model, job, hopper=hopper)
        return figures(line.events, expandable=job.expandable_segments) | {
            "managed": managed_bytes(job, line.parameters)
        }

    found = kept(model, job, {"hopper": hopper}, compute)
    note = runtime_note(machine)
    return Budget(
        gpus=(gpu_budget(found, runtime_bytes(machine, job), found["managed"]),),
        host_ram=HOST_PROCESS,
        host_ram_load=HOST_PROCESS,
        peak_phase=found["phase"],
        phases=found["phases"],
        notes=(note,) if note else (),
    )
