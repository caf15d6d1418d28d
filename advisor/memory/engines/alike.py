"""The budget of an engine whose ranks all hold the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.memory.figures import gpu_budget
from advisor.memory.runtime import runtime_bytes, runtime_note


def budget_of_alike_ranks(
    found: Mapping[str, Any],
    machine: HardwareProfile,
    job: Job,
    *,
    host_ram: int,
    host_ram_load: int,
    host_pinned: int = 0,
    disk: int = 0,
) -> Budget:
    """A node's budget of one rank's figures (:func:`advisor.memory.figures.figures`); host figures are a node's."""
    note = runtime_note(machine)
    return Budget(
        gpus=(gpu_budget(found, runtime_bytes(machine, job), found.get("managed", 0)),)
        * (job.gpus // max(1, job.nodes)),
        host_ram=host_ram,
        host_ram_load=host_ram_load,
        host_pinned=host_pinned,
        disk=disk,
        peak_phase=found["phase"],
        phases=found["phases"],
        notes=(note,) if note else (),
    )
