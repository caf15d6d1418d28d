"""Fits, tight, does not fit: on cards, in host RAM, on disk."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.hardware.profile import Disk, Host
from advisor.job import Job
from advisor.memory.budget import Budget, GpuBudget
from advisor.strategies.verdict import ERROR, TYPICAL, judge
from advisor.units import GIB
from tests.strategies import tiny

MODEL = tiny.model(parameters=32_763_876_352)  # Qwen2.5-32B's count


def job(**changes: Any) -> Job:
    return Job(**({"task": "finetune", "method": "full", "strategy": "single"} | changes))


def budget(card: float, host: float = 1, disk: int = 0) -> Budget:
    """One card that needs ``card`` GiB, runtime included."""
    gpu = GpuBudget(
        parts={"weights": int((card - 1) * GIB)}, allocated=int((card - 1) * GIB), reserved=int((card - 1) * GIB),
        required=int((card - 1) * GIB), runtime=GIB, load_allocated=0,
    )  # fmt: skip
    return Budget(gpus=(gpu,), host_ram=int(host * GIB), host_ram_load=0, disk=disk, peak_phase="step")


def test_the_margin_of_a_card() -> None:
    machine = tiny.machine(1, 100)
    fits = judge(MODEL, machine, job(), budget(100 * (1 - ERROR["single"]) - 0.1))
    assert fits.verdict == "fits" and fits.shortfall == 0
    tight = judge(MODEL, machine, job(), budget(100 * (1 - ERROR["single"]) + 0.1))
    assert tight.verdict == "tight" and "2.5%" in tight.reason
    close = judge(MODEL, machine, job(), budget(100 * (1 - TYPICAL["single"]) + 0.1))
    assert close.verdict == "does_not_fit" and close.shortfall > 0 and "typical error" in close.reason
    over = judge(MODEL, machine, job(), budget(130))
    assert over.verdict == "does_not_fit" and "30.0 GiB more than the 100.0 GiB of the card" in over.reason
    assert over.headroom == pytest.approx(-0.3, abs=1e-6)


@pytest.mark.parametrize(
    ("gigabytes", "verdict"),
    [(600, "does_not_fit"), (744, "does_not_fit"), (750, "tight"), (800, "tight"), (1000, "fits")],
)
def test_host_memory_of_a_32b_with_both_offloads(gigabytes: int, verdict: str) -> None:
    """Case C04: 18 bytes a parameter are the floor, a quarter more is the least that lived, half more is safe."""
    machine = tiny.machine(1, 80, host=Host(memory_available=gigabytes * 10**9))
    offload = job(strategy="zero3", offload_optimizer="cpu", offload_param="cpu")
    found = judge(MODEL, machine, offload, budget(20, host=815e9 / GIB))
    assert found.verdict == verdict
    if verdict != "fits":
        assert "549.2 GiB of states" in found.reason


def test_host_memory_divides_by_the_nodes() -> None:
    machine = tiny.machine(1, 80, nodes=2, host=Host(memory_available=600 * 10**9))
    offload = job(strategy="zero3", offload_optimizer="cpu", offload_param="cpu", gpus=2, nodes=2)
    assert judge(MODEL, machine, offload, budget(20, host=400)).verdict == "fits"


def test_plain_zero3_needs_room_for_the_states_that_deepspeed_counts() -> None:
    machine = tiny.machine(8, 70)
    found = judge(MODEL, machine, job(strategy="zero3", gpus=8), budget(60))
    assert found.verdict == "fits"
    found = judge(MODEL, tiny.machine(8, 66), job(strategy="zero3", gpus=8), budget(60))
    assert found.verdict == "does_not_fit" and "68.7 GiB of states" in found.reason


def test_disk() -> None:
    full = tiny.machine(1, disk=Disk(free=10 * GIB))
    assert judge(MODEL, full, job(), budget(10, disk=20 * GIB)).shortfall == 10 * GIB
    unknown = judge(MODEL, tiny.machine(1), job(), budget(10, disk=20 * GIB))
    assert unknown.verdict == "fits" and "does not say" in unknown.reason
