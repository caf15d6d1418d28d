"""Public reports (``cases.jsonl``): what happened to people, and the right answer, by id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.advise import recommend
from advisor.ask import ask
from advisor.hardware.load import load_profile
from advisor.hardware.probe import probe
from advisor.hardware.profile import HardwareProfile, Software
from advisor.hardware.readings import Replay
from advisor.job import Job
from advisor.models.resolve import resolve
from advisor.software.known_bad import find
from advisor.strategies import launch, limits
from advisor.strategies.advice import advice
from advisor.strategies.placement import place
from tests.hardware.handmade import FOLDER
from tests.hardware.traps import GIB, card, readings

CASES = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "cases.jsonl").read_text(encoding="utf-8").splitlines())
}


def number(case: str, name: str) -> Any:
    return next(item["value"] for item in CASES[case]["numbers"] if item["name"] == name)


def told(machine: HardwareProfile, words: str) -> bool:
    return any(words in note for note in machine.notes)


def job(strategy: str, **more: Any) -> Job:
    return Job(**({"task": "finetune", "strategy": strategy, "method": "full", "gpus": 2} | more))


# --- E01: the container's limit, not the host's memory ----------------------------------------------------------------


def test_e01_usable_ram_is_the_groups() -> None:
    record = Replay.load(FOLDER / "cgroup-v2-nested")
    assert record.ask("system", ".")["memory_available"] == pytest.approx(
        number("E01", "psutil_available") * 1e9, rel=0.01
    )
    limit = number("E01", "usable_ram") * 1e9
    assert 0.9 * limit <= (probe(record).host.memory_available or 0) <= limit


# --- E03: which devices, in which order -------------------------------------------------------------------------------


def test_e03_a_plan_names_cards_so_that_no_order_matters() -> None:
    cards = (card(0, "slow", cores=1000), card(1, "fast"), card(2, "fast"))
    machine = probe(readings(cards, environment={"CUDA_VISIBLE_DEVICES": "GPU-2aaa,GPU-0aaa"}), here=True)
    values = launch.environment(machine, job("ddp"))
    assert values["CUDA_VISIBLE_DEVICES"] == "GPU-2aaa-bbbb,GPU-0aaa-bbbb"
    assert values["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    # DeepSpeed's launcher reads its own numbers: a plan that uses it hands it none to trip over.
    assert "CUDA_VISIBLE_DEVICES" not in launch.deepspeed(machine, job("zero3")).environment
    assert launch.torchrun(machine, job("zero3")).launcher == "torchrun"
    assert told(machine, "the deepspeed launcher reads numbers only")


def test_e03_one_mig_instance_and_one_process() -> None:
    machine = probe(Replay.load(FOLDER / "mig"))
    assert len(machine.cards) == number("E03", "mig_instances_per_process")
    assert limits.mig(machine) is not None
    assert told(machine, "plans of one process only")


# --- E05: shared memory and peer access -------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "warned"), [(0.5, True), (1.0, False)])
def test_e05_shared_memory(share: float, warned: bool) -> None:
    least = number("E05", "shm_min") * GIB
    machine = probe(readings((card(0), card(1)), shm=int(share * least)))
    assert told(machine, "/dev/shm") == warned
    assert any("/dev/shm" in line for line in advice(resolve("gpt2"), machine, job("ddp"))) == warned


@pytest.mark.parametrize(("driver", "off"), [("550.40.06", True), (number("E05", "driver_ok"), False)])
def test_e05_rtx_40_and_its_driver(driver: str, off: bool) -> None:
    cards = tuple(card(index, "NVIDIA GeForce RTX 4090", capability="8.9") for index in range(2))
    machine = probe(readings(cards, driver=driver))
    assert told(machine, "NCCL_P2P_DISABLE=1") == off
    assert ("NCCL_P2P_DISABLE" in launch.environment(machine, job("ddp"))) == off
    bridged = tuple(
        card(index, "NVIDIA GeForce RTX 3090", capability="8.6", nvlink={"links": 4, "rate": 14 * 10**9})
        for index in range(2)
    )
    assert "NCCL_P2P_DISABLE" not in launch.environment(probe(readings(bridged, driver=driver)), job("ddp"))


# --- E06: bf16, NVML, compilers, NVMe ---------------------------------------------------------------------------------


def test_e06_bf16_only_where_the_card_has_it() -> None:
    least = number("E06", "min_cc_bf16")
    for name in ("t4", "v100-16g-x4", "a10g", "h200"):
        machine = load_profile(name)
        capability = machine.cards[0].capability
        assert capability is not None
        assert machine.cards[0].has_bf16 == (capability[0] + capability[1] / 10 >= least)


def test_e06_a_t4_computes_in_fp16() -> None:
    question = ask("gpt2", "finetune", hardware="t4", seq_len=128)
    found = recommend(question.model, question.machine, question.workload)
    assert found.plan is not None
    assert {step.job.precision for step in found.plan.steps} <= {"fp16", "fp16-mixed"}


def test_e06_nvme_bytes() -> None:
    model = resolve("gpt2")
    offloaded = job("zero3", offload_optimizer="nvme", offload_param="nvme")
    each = limits.nvme_bytes(model, offloaded) / (model.parameters or 1)
    assert each == pytest.approx(number("E06", "nvme_bytes_optimizer"), rel=0.15)


def test_e06_compilers_before_a_plan_relies_on_them() -> None:
    ready = {"ninja": True, "C++ compiler": True, "libaio": True, "libaio headers": True}
    machine = load_profile("h200-x2").model_copy(
        update={"software": Software(python="3.12", cuda="13.0", nvcc="12.4", tools=ready)}
    )
    offloaded = job("zero2", offload_optimizer="cpu", zero_optimizer="deepspeed")
    question = ask("gpt2", "finetune", hardware="h200-x2")
    assert "nvcc 12.4" in (limits.objection(question.model, machine, question.workload, offloaded) or "")


# --- B08: free memory, and a plan that stays --------------------------------------------------------------------------


def test_b08_a_map_is_made_once_from_what_is_free_and_then_kept() -> None:
    """Memory that an earlier load still holds makes later `auto` loads random; here it is seen, and the map is fixed."""
    free = [15, 79]
    cards = tuple(
        card(index, memory={"total": 80 * GIB, "free": amount * GIB, "used": (80 - amount) * GIB, "reserved": GIB},
             processes=[{"pid": 7, "name": "python", "memory": (79 - amount) * GIB, "seconds": 9.0}])
        for index, amount in enumerate(free)
    )  # fmt: skip
    machine = probe(readings(cards))
    assert machine.capacities == (15 * GIB, 79 * GIB)
    assert told(machine, "GPU 0 is used by others: python (7) 64.0 GiB for 9 s")
    rooms = {str(index): amount for index, amount in enumerate(machine.capacities)}
    model, work = resolve("gpt2"), job("device_map", task="inference", method=None)
    first, second = (place(model, work, rooms, balance=True) for _ in range(2))
    assert first is not None and second is not None and first.device_map == second.device_map
    # Every module has its card by name: nothing is left for "auto" to decide when the model is loaded.
    assert set(first.device_map.values()) <= {0, 1}


# --- A09: versions that break each other ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("torch", "transformers", "bad"),
    [
        ("2.13.0+cu130", "4.57.6", True), ("2.10.0", "5.0.0", True),
        ("2.10.0", number("A09", "first_fixed_transformers"), False), ("2.9.1", "4.57.6", False),
    ],
)  # fmt: skip
def test_a09_lora_under_deepspeed(torch: str, transformers: str, bad: bool) -> None:
    installed = {"torch": torch, "transformers": transformers, "deepspeed": "0.19.4", "peft": "0.18.0"}
    assert [row.id for row in find(installed, {"lora", "deepspeed", "trainer"})] == (
        ["lora-deepspeed-strict-zip"] if bad else []
    )
    assert not find(installed, {"deepspeed", "trainer"})  # full fine-tuning trains
    # The probe of such a machine says it, and so does a plan for it.
    machine = probe(readings((card(0), card(1)), more={"packages": installed}))
    assert told(machine, "transformers>=5.1.0") == bad
    tuned = job("zero2", method="lora")
    assert any("transformers>=5.1.0" in line for line in advice(resolve("gpt2"), machine, tuned)) == bad
