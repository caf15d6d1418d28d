"""Devices as the program will see them, and the warnings (public cases A09, B08, E03, E05, E06)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.hardware.load import load_profile
from advisor.hardware.probe import probe
from advisor.hardware.profile import HardwareProfile
from advisor.hardware.readings import Recorder, Replay
from tests.hardware.traps import GIB, card, readings

SLICE = {
    "name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-1111-2222",
    "memory": {"total": 16 * GIB, "free": 16 * GIB, "used": 0},
    "gpu_instance": 7, "compute_instance": 0,
}  # fmt: skip


def seen(machine: HardwareProfile) -> list[str]:
    return [uuid for gpu in machine.gpus for uuid in gpu.uuids]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("1,0", [1, 0]), ("GPU-2aaa,GPU-0aaa", [2, 0]), ("0,7,1", [0]), ("", []), ("-1", []), ("1,-1,2", [1]),
        ("1,1", []), ("GPU-", []),
    ],
)  # fmt: skip
def test_e03_visible_devices(wanted: str, expected: list[int]) -> None:
    cards = tuple(card(index) for index in range(3))
    machine = probe(readings(cards, environment={"CUDA_VISIBLE_DEVICES": wanted}))
    assert seen(machine) == [f"GPU-{index}aaa-bbbb" for index in expected]
    assert any("launcher reads numbers only" in note for note in machine.notes) == wanted.startswith("GPU-2")


def test_e03_fastest_first_unless_told_otherwise() -> None:
    cards = (card(0, "slow", cores=1000), card(1, "fast"))
    assert [gpu.name for gpu in probe(readings(cards)).gpus] == ["fast", "slow"]
    by_bus = probe(readings(cards, environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}))
    assert [gpu.name for gpu in by_bus.gpus] == ["slow", "fast"]


@pytest.mark.parametrize("wanted", [None, "MIG-1111", "MIG-GPU-0aaa-bbbb/7/0", "MIG-1111-2222,MIG-3333"])
def test_e03_one_mig_instance_a_process(wanted: str | None) -> None:
    other = {**SLICE, "uuid": "MIG-3333", "gpu_instance": 8}
    cards = (card(0, mig=True, slices=[SLICE, other]),)
    machine = probe(readings(cards, environment={} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}))
    assert seen(machine) == ["MIG-1111-2222"]
    assert machine.capacities == (16 * GIB,)
    assert any("one process only" in note for note in machine.notes)


def test_b08_free_memory_and_who_holds_it() -> None:
    memory = {"total": 80 * GIB, "free": 15 * GIB, "used": 65 * GIB}
    held = [{"pid": 42, "name": "python", "memory": 65 * GIB}]
    machine = probe(readings((card(0, memory=memory, processes=held),)))
    assert machine.capacities == (15 * GIB,)
    assert any("python (42) 65.0 GiB" in note for note in machine.notes)


def test_e05_small_shm_matters_with_several_cards() -> None:
    def warns(cards: int) -> bool:
        machine = probe(readings(tuple(card(index) for index in range(cards)), shm=64 << 20))
        return any("/dev/shm has 64 MiB" in note for note in machine.notes)

    assert warns(2) and not warns(1)


@pytest.mark.parametrize(("driver", "told"), [("535.161", True), ("550.40.07", False)])
def test_e05_rtx_40_has_no_peer_access(driver: str, told: bool) -> None:
    cards = tuple(card(index, "NVIDIA GeForce RTX 4090", capability="8.9") for index in range(2))
    machine = probe(readings(cards, driver=driver))
    assert machine.links.peer_to_peer is False
    assert any("NCCL_P2P_DISABLE=1" in note for note in machine.notes) == told


def test_e05_nvlink_of_rtx_3090_is_kept() -> None:
    link = {"links": 4, "rate": 14 * 10**9}
    cards = tuple(card(index, "NVIDIA GeForce RTX 3090", capability="8.6", nvlink=link) for index in range(2))
    machine = probe(readings(cards, driver="535.161"))
    assert (machine.links.gpu_to_gpu_kind, machine.links.gpu_to_gpu) == ("nvlink", 56e9)
    assert not any("P2P" in note for note in machine.notes)


def test_e06_no_bf16_before_ampere() -> None:
    machine = probe(readings((card(0, "Tesla V100-SXM2-16GB", capability="7.0"),)))
    assert not machine.gpus[0].has_bf16
    assert any("fp16" in note for note in machine.notes)


def test_e06_nvml_mismatch_falls_back_and_says_so() -> None:
    smi = "0, Tesla T4, GPU-x, 0000:00:04.0, 7.5, 15360, 15000, 360\n"
    fields = "index,name,uuid,pci.bus_id,compute_cap,memory.total,memory.free,memory.used"
    question = f"command nvidia-smi --query-gpu={fields} --format=csv,noheader,nounits"
    mismatch = "Driver/library version mismatch"
    machine = probe(readings(error=mismatch, more={question: smi}))
    assert [gpu.memory_total for gpu in machine.gpus] == [15360 << 20]
    assert any(mismatch in note for note in machine.notes)
    silent = probe(readings(error=mismatch, files={"/proc/driver/nvidia/version": "NVRM"}))
    assert not silent.gpus
    assert any("CUDA may still work" in note for note in silent.notes)


@pytest.mark.parametrize(
    ("nvcc", "ninja", "warned"), [("13.0", True, False), ("12.4", True, True), ("13.1", False, True)]
)
def test_e06_deepspeed_needs_a_compiler_of_torchs_cuda(nvcc: str, ninja: bool, warned: bool) -> None:
    more = {
        "command nvcc --version": f"Cuda compilation tools, release {nvcc}, V1",
        "packages": {"deepspeed": "0.19.8"} | ({"ninja": "1.13"} if ninja else {}),
    }
    text = "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n"
    machine = probe(readings((card(),), more=more, torch_version_file=text, ninja=False))
    assert any("cannot build its operators" in note for note in machine.notes) == warned


def test_e06_virtio_disks_say_rotational() -> None:
    place = "/sys/devices/pci0/virtio1/block/vda/vda1"
    more = {"link /sys/dev/block/259:1": place, f"text {place}/../queue/rotational": "1\n"}
    assert probe(readings(more=more)).disk.kind == "unknown"


def test_unified_memory_is_one_pool() -> None:
    machine = probe(readings((card(0, "NVIDIA GB10", memory=None),)))
    assert machine.gpus[0].unified_memory
    assert machine.gpus[0].memory_total == machine.host.memory_total
    assert machine.links.host_to_gpu is None


def test_a_record_replays_to_the_same_machine(tmp_path: Path) -> None:
    recorder = Recorder(readings((card(),)))
    first = probe(recorder)
    recorder.save(tmp_path, "made by hand")
    again = probe(Replay.load(tmp_path))
    skip: Any = {"name": True, "host": {"name"}}  # the machine's own name is not kept
    assert again.model_dump(exclude=skip) == first.model_dump(exclude=skip)
    assert "trap" not in (tmp_path / "readings.json").read_text()


def test_rocm_and_apple_are_described() -> None:
    place = "/sys/class/drm/card1/device"
    more = {
        "names /sys/class/drm": ["card1", "card1-DP-1"], f"text {place}/vendor": "0x1002\n",
        f"text {place}/mem_info_vram_total": str(192 * GIB), f"text {place}/mem_info_vram_used": str(GIB),
        f"text {place}/product_name": "Instinct MI300X\n",
    }  # fmt: skip
    amd = probe(readings(error="no library", more=more))
    assert (amd.gpus[0].vendor, amd.capacities) == ("amd", (191 * GIB,))
    brand = {"command sysctl -n machdep.cpu.brand_string": "Apple M3 Max\n"}
    apple = probe(readings(error="no library", more=brand, platform="darwin", machine="arm64"))
    assert apple.gpus[0].unified_memory and apple.gpus[0].name == "Apple M3 Max"
    assert all(any("not an NVIDIA card" in note for note in machine.notes) for machine in (amd, apple))


def test_a_superchip_reaches_its_host_by_its_own_link() -> None:
    machine = probe(readings((card(0, "NVIDIA GH200 480GB"),)))
    assert machine.links.host_to_gpu == load_profile("gh200").links.host_to_gpu == 450e9
    tray = probe(readings(tuple(card(index, "NVIDIA GB200", capability="10.0") for index in range(4))))
    assert tray.links.host_to_gpu == load_profile("gb200-x4").links.host_to_gpu == 225e9
