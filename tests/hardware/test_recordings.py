"""Recorded probes replayed: the real ones, and the traps made by hand (``recordings/README.md`` tells them apart)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from advisor.hardware.load import load_profile
from advisor.hardware.probe import probe
from advisor.hardware.profile import HardwareProfile
from advisor.hardware.readings import Replay
from tests.hardware.handmade import FOLDER, RECORDS, save
from tests.hardware.traps import GIB

REAL = FOLDER.parent
MIB = 1 << 20


def replayed(name: str) -> HardwareProfile:
    return probe(Replay.load(FOLDER / name))


def told(machine: HardwareProfile, words: str) -> bool:
    return any(words in note for note in machine.notes)


# --- the real machine -------------------------------------------------------------------------------------------------


def test_one_h200_as_it_was() -> None:
    machine = probe(Replay.load(REAL / "h200-x1"))
    (card,) = machine.cards
    assert (card.name, card.memory_total, card.memory_free) == ("NVIDIA H200", 143771 * MIB, 150109880320)
    assert (card.compute_capability, card.ecc, card.persistence, card.mig) == ("9.0", True, True, False)
    # The driver's own 615 MiB are used, and nobody holds them.
    assert (card.memory_held, card.processes) == (0, ())
    assert card.pcie == "gen 5 x16 (at most gen 5 x16)"
    assert card.pcie_rate == pytest.approx(63e9, rel=0.01)
    assert machine.host.memory_available == 134538502144  # MemAvailable: the group above allows 128 GiB
    assert (machine.host.cpus, machine.host.shared_memory) == (16, 128 * GIB)
    assert (machine.links.gpu_to_gpu, machine.links.network_kind, machine.links.network) == (None, "ethernet", None)
    # virtio says "rotational", which is no answer.
    assert (machine.disk.device, machine.disk.kind, machine.disk.async_io) == ("vda (virtual)", "unknown", False)
    assert (machine.software.driver, machine.software.driver_cuda) == ("580.159.04", "13.0")
    assert (machine.software.cuda, machine.software.nvcc) == ("13.0", "13.0")
    assert machine.software.packages["deepspeed"] == "0.19.8"
    assert [note for note in machine.notes if "async I/O" not in note] == []


def test_its_rates_agree_with_the_shipped_profile() -> None:
    card, shipped = probe(Replay.load(REAL / "h200-x1")).cards[0], load_profile("h200").cards[0]
    same = ("memory_total", "compute_capability", "memory_bandwidth", "bf16_flops", "fp32_flops")
    assert [getattr(card, name) for name in same] == [getattr(shipped, name) for name in same]


def test_a_group_of_2_gib_on_the_gpu_machine() -> None:
    machine = probe(Replay.load(REAL / "h200-x1-2gib-group"))
    assert 1.9 * GIB < (machine.host.memory_available or 0) <= 2 * GIB
    assert "cgroup v2 limit of 2,048 MiB" in (machine.host.memory_limit_reason or "")
    assert machine.host.memory_total == 131961788 << 10
    # Another process has 4 GiB and its context on the card.
    (process,) = machine.cards[0].processes
    assert process.name == "python3" and (process.memory or 0) > 4.5 * GIB and process.seconds
    assert machine.capacities[0] == 145166041088
    assert told(machine, "used by others: python3")


def test_measured_rates_are_plausible_beside_nominal_ones() -> None:
    machine = load_profile(str(REAL / "h200-x1" / "measured.json"))
    found, card = machine.measured, machine.cards[0]
    assert found is not None and found.date == "2026-12-01" and "advisor probe --measure" in found.method
    for real, nominal in (
        (found.gpu_memory_bandwidth, card.memory_bandwidth), (found.bf16_flops, card.bf16_flops),
        (found.host_to_gpu, card.pcie_rate), (found.gpu_to_host, card.pcie_rate),
    ):  # fmt: skip
        assert real is not None and nominal is not None and 0.7 < real / nominal < 1
    # The measured runs of this card saw 0.68 GiB outside the allocator (measurements/h200.jsonl).
    assert found.context_bytes == pytest.approx(0.68 * GIB, rel=0.03)
    assert found.nccl_bytes is None and found.all_reduce is None  # one card: nothing was made up


@pytest.mark.parametrize("path", sorted(REAL.rglob("*.json")), ids=lambda path: path.parent.name)
def test_records_are_labelled_and_anonymous(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    value = json.loads(text)
    if path.name == "readings.json":
        origin = "made by hand" if "handmade" in path.parts else "real: "
        assert value["origin"].startswith(origin)
        assert value["readings"]["system ."]["node"] is None
    uuids = re.findall(r"(?:GPU|MIG)-([0-9a-f]{8}-[0-9a-f-]{27})", text)
    assert all(uuid.endswith("-0000-0000-0000-000000000000") for uuid in uuids)
    assert '"name": "vm"' not in text


def test_handmade_records_are_what_their_maker_writes(tmp_path: Path) -> None:
    save(tmp_path)
    written = {path.parent.name: path.read_text() for path in tmp_path.rglob("readings.json")}
    kept = {path.parent.name: path.read_text() for path in FOLDER.rglob("readings.json")}
    assert kept == written
    assert set(kept) == set(RECORDS)


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "amount", "reason"),
    [
        ("slurm-grant", 64 * GIB, "SLURM_MEM_PER_CPU"), ("pbs-grant", 128 * GIB, "PBS"), ("lsf-grant", 96 * GIB, "LSF"),
        ("cgroup-v2-nested", 89 * 10**9, "cgroup v2"), ("cgroup-v1-container", 31 * GIB, "cgroup v1"),
    ],
)  # fmt: skip
def test_grants_and_groups(name: str, amount: int, reason: str) -> None:
    host = replayed(name).host
    assert (host.memory_available, reason in (host.memory_limit_reason or "")) == (amount, True)


@pytest.mark.parametrize(("name", "free"), [("gb10-unified", 110), ("jetson-no-nvml", 50), ("apple-m3", 96)])
def test_one_pool(name: str, free: int) -> None:
    machine = replayed(name)
    (card,) = machine.cards
    assert card.unified_memory and machine.capacities == (free * GIB,)
    assert card.memory_total == machine.host.memory_total
    assert machine.links.host_to_gpu is None
    assert told(machine, "no CPU tier")


def test_wsl_limits_pinned_memory() -> None:
    machine = replayed("wsl")
    assert machine.host.wsl and machine.host.pinned_limit == 64 << 10
    assert told(machine, "do not pin") and told(machine, "64 KiB may be locked")


# --- devices ----------------------------------------------------------------------------------------------------------


def test_mig_by_id() -> None:
    machine = replayed("mig")
    assert [card.uuids for card in machine.cards] == [("MIG-1111-2222",)]
    assert machine.capacities == (16 * GIB,)
    # A slice has a part of its card's rates that nobody states.
    assert machine.cards[0].memory_bandwidth is None


def test_cards_that_the_container_hides() -> None:
    machine = replayed("hidden-by-container")
    assert len(machine.cards) == 2
    assert told(
        machine, "6 of 8 NVIDIA card(s) of the machine are hidden from this process (NVIDIA_VISIBLE_DEVICES=0,1)"
    )
    assert told(machine, "/dev/shm has 64 MiB")


def test_cuda_answers_where_nvml_does_not() -> None:
    machine = replayed("driver-library-mismatch")
    assert [card.memory_total for card in machine.cards] == [81920 * MIB]
    assert machine.cards[0].bf16_flops == load_profile("a100-80g").cards[0].bf16_flops
    assert machine.sources["gpus.memory_total"].startswith("torch.cuda")
    assert told(machine, "Driver/library version mismatch") and not told(machine, "without CUDA")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-driver", "no driver is loaded"),
        ("driver-too-old", "driver 535.161.08 runs CUDA 12.2 at most"),
        ("v100-cuda13", "has no kernels in a torch for CUDA 13.0: it needs a torch for CUDA 12"),
        ("mixed", "cards differ"),
        ("mixed", "CUDA lists the fastest card first"),
        ("rtx4090-x2", "set NCCL_P2P_DISABLE=1"),
        ("narrow-slot-two-numa-nodes", "GPU 1 has 4 of its 16 PCIe lanes"),
        ("narrow-slot-two-numa-nodes", "GPU 0 node 0, GPU 1 node 1"),
        ("mi300x-kfd", "not an NVIDIA card"),
    ],
)
def test_what_is_the_matter(name: str, words: str) -> None:
    assert told(replayed(name), words)


def test_amd_by_the_compute_driver_and_by_rocm_smi() -> None:
    kfd, smi = replayed("mi300x-kfd"), replayed("mi300x-x2-one-visible")
    assert [(card.vendor, card.name, card.memory_total) for card in kfd.cards] == [("amd", "AMD gfx942", 206141652992)]
    assert smi.capacities == (206141652992 - GIB,)  # HIP_VISIBLE_DEVICES=1: the second, of which 1 GiB is in use
    assert smi.cards[0].bf16_flops == load_profile("mi300x").cards[0].bf16_flops


# --- links and disks --------------------------------------------------------------------------------------------------


def test_bridges_between_pairs_are_no_ring() -> None:
    links = replayed("a6000-x4-bridged-in-pairs").links
    assert (links.gpu_to_gpu_kind, links.gpu_to_gpu_links, links.peer_to_peer) == ("pcie", None, True)


def test_rails_add_up_and_a_port_that_is_down_does_not() -> None:
    links = replayed("infiniband-8-rails").links
    assert (links.network, links.network_kind, links.network_device) == (400e9, "infiniband", "mlx5_0 and 7 more")
    assert (links.gpu_to_gpu, links.gpu_to_gpu_links) == (450e9, 18)


def test_a_narrow_slot_is_as_slow_as_it_is() -> None:
    machine = replayed("narrow-slot-two-numa-nodes")
    wide, narrow = (card.pcie_rate for card in machine.cards)
    assert wide and narrow and wide == 4 * narrow
    assert machine.links.host_to_gpu == pytest.approx(0.8 * narrow)


@pytest.mark.parametrize(
    ("name", "device", "kind"),
    [
        ("nvme-under-lvm", "dm-0 on nvme0n1p3", "nvme"),
        ("overlay-on-cloud-volume", "overlay on nvme0n1p1", "network"),
    ],
)
def test_disks_behind_layers(name: str, device: str, kind: str) -> None:
    disk = replayed(name).disk
    assert (disk.device, disk.kind) == (device, kind)
