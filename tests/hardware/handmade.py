"""Hand-made recordings of the traps people meet, built from public reports: ``python -m tests.hardware.handmade`` writes
them into ``recordings/handmade/``, where ``advisor probe --replay`` reads them. No machine gave these answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.hardware.probe import probe
from advisor.hardware.readings import Recorder, Replay
from tests.hardware.traps import GIB, card, readings

FOLDER = Path(__file__).parent / "recordings" / "handmade"
CG = "/sys/fs/cgroup"
V2 = f"31 23 0:27 / {CG} rw - cgroup2 cgroup2 rw"
TORCH_13 = "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
GEN_4 = {"generation": 1, "width": 16, "max_generation": 4, "max_width": 16}
ADA = {"capability": "8.9", "total": 24564 << 20, "pcie": GEN_4}
BLOCK = "/sys/devices/pci0000:00/0000:00:1d.0/0000:3b:00.0/nvme/nvme0/nvme0n1"


def gpu(bus: str) -> dict[str, str]:
    return {"bus_id": bus, "vendor": "0x10de"}


def slice_of(number: int) -> dict[str, Any]:
    memory = {"total": 16 * GIB, "free": 16 * GIB, "used": 0}
    return {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": f"MIG-{number}111-2222", "memory": memory,
            "gpu_instance": 7 + number, "compute_instance": 0}  # fmt: skip


def adapters(count: int, rate: str) -> dict[str, Any]:
    """InfiniBand ports that are up, and one that is down."""
    more: dict[str, Any] = {"names /sys/class/infiniband": [f"mlx5_{index}" for index in range(count + 1)]}
    for index in range(count + 1):
        folder = f"/sys/class/infiniband/mlx5_{index}/ports"
        more |= {
            f"names {folder}": ["1"], f"text {folder}/1/rate": f"{rate}\n", f"text {folder}/1/link_layer": "InfiniBand\n",
            f"text {folder}/1/state": "4: ACTIVE\n" if index < count else "1: DOWN\n",
        }  # fmt: skip
    return more


def all_of(count: int, **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple(card(index, **more) for index in range(count))


def pairs(joined: tuple[str, ...], count: int) -> dict[str, int]:
    """NVML's status of every pair: 0 where joined, else 5 (not supported)."""
    both = {*joined, *("-".join(reversed(pair.split("-"))) for pair in joined)}
    names = [f"{left}-{right}" for left in range(count) for right in range(count) if left != right]
    return {name: 0 if name in both else 5 for name in names}


def kfd() -> dict[str, Any]:
    base = "/sys/class/kfd/kfd/topology/nodes"
    return {
        f"names {base}": ["0", "1"], f"text {base}/0/properties": "cpu_cores_count 96\nsimd_count 0\n",
        f"text {base}/1/properties": "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version 90402\n",
        f"names {base}/1/mem_banks": ["0"],
        f"text {base}/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 206141652992\n",
    }  # fmt: skip


def rocm_smi() -> dict[str, Any]:
    question = "command rocm-smi --showmeminfo vram --showproductname --json"
    entry = (
        '{{"VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "{used}", '
        '"Card Series": "AMD Instinct MI300X OAM"}}'
    )
    cards = ", ".join(f'"card{index}": {entry.format(used=index * GIB)}' for index in range(2))
    return {question: f'{{{cards}, "system": {{"Driver version": "6.10.5"}}}}'}


RECORDS: dict[str, Replay] = {
    "mig": readings(
        (card(mig=True, slices=[slice_of(0), slice_of(1)]),), environment={"CUDA_VISIBLE_DEVICES": "MIG-1111-2222"}
    ),
    "hidden-by-container": readings(
        all_of(2), shm=64 << 20, environment={"NVIDIA_VISIBLE_DEVICES": "0,1"},
        more={"displays": [gpu(f"0000:{index:02x}:00.0") for index in range(8)]},
    ),
    "driver-library-mismatch": readings(
        error="Driver/library version mismatch", torch_version_file=TORCH_13,
        files={"/proc/driver/nvidia/version": "NVRM version: 570.86"},
        more={
            "displays": [gpu("0000:01:00.0")], "packages": {"torch": "2.11.0"},
            "torch": {"hip": None, "cards": [card(name="NVIDIA A100-SXM4-80GB", capability="8.0", total=81920 << 20)]},
        },
    ),
    "no-driver": readings(error="NVML Shared Library Not Found", more={"displays": [gpu("0000:01:00.0")]}),
    "driver-too-old": readings(
        (card(name="NVIDIA A100-SXM4-80GB", capability="8.0", total=81920 << 20),), driver="535.161.08", cuda=12020,
        torch_version_file=TORCH_13, more={"packages": {"torch": "2.11.0+cu130"}},
    ),
    "v100-cuda13": readings(
        (card(name="Tesla V100-SXM2-16GB", capability="7.0", total=16384 << 20),), torch_version_file=TORCH_13,
        more={"packages": {"torch": "2.11.0+cu130"}},
    ),
    "gb10-unified": readings((card(name="NVIDIA GB10", capability="12.1", memory=None),), available=110 * GIB),
    "jetson-no-nvml": readings(
        error="NVML Shared Library Not Found", torch_version_file=TORCH_13,
        files={"/etc/nv_tegra_release": "# R36 (release)"}, available=50 * GIB,
        more={"packages": {"torch": "2.8.0"},
              "torch": {"hip": None, "cards": [card(name="Orin", capability="8.7", integrated=True)]}},
    ),
    "wsl": readings(
        (card(name="NVIDIA GeForce RTX 4090", **ADA),), limits={"memlock": 64 << 10},
        files={"/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2"},
    ),
    "mixed": readings(
        (card(0, "NVIDIA GeForce RTX 3090", 24576 << 20, capability="8.6", cores=10496, clock=2100),
         card(1, "NVIDIA GeForce RTX 4090", 24564 << 20, capability="8.9", cores=16384, clock=3105)),
    ),
    "rtx4090-x2": readings(all_of(2, name="NVIDIA GeForce RTX 4090", **ADA), driver="535.161.08"),
    "a6000-x4-bridged-in-pairs": readings(
        all_of(4, name="NVIDIA RTX A6000", total=49140 << 20, capability="8.6", nvlink={"links": 4, "rate": 14 * 10**9}),
        peers=pairs(("0-1", "0-2", "0-3", "1-2", "1-3", "2-3"), 4), bridged=pairs(("0-1", "2-3"), 4),
    ),
    "narrow-slot-two-numa-nodes": readings(
        (card(0), card(1, pcie={"generation": 4, "width": 4, "max_generation": 5, "max_width": 16})),
        files={"/sys/bus/pci/devices/0000:00:00.0/numa_node": "0\n", "/sys/bus/pci/devices/0000:01:00.0/numa_node": "1\n"},
    ),
    "infiniband-8-rails": readings(
        all_of(8, nvlink={"links": 18, "rate": 25 * 10**9}), more=adapters(8, "400 Gb/sec (4X NDR)")
    ),
    "slurm-grant": readings(
        all_of(1), available=900 * GIB, affinity=8,
        environment={"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "8192", "SLURM_CPUS_ON_NODE": "8"},
    ),
    "pbs-grant": readings(
        all_of(1), available=900 * GIB, environment={"PBS_JOBID": "42.head"},
        more={"command qstat -f 42.head": "    Resource_List.mem = 256gb\n    Resource_List.nodect = 2\n"},
    ),
    "lsf-grant": readings(
        all_of(1), available=900 * GIB, environment={"LSB_JOBID": "9"},
        more={"command bjobs -noheader -o memlimit 9": "96 G \n"},
    ),
    "cgroup-v2-nested": readings(
        all_of(1, name="NVIDIA GeForce RTX 4090", **ADA), available=901 * 10**9, mounts=(V2,),
        files={
            "/proc/self/cgroup": "0::/pod/main\n", f"{CG}/pod/main/memory.max": "max\n",
            f"{CG}/pod/memory.max": f"{90 * 10**9}\n", f"{CG}/pod/memory.current": f"{4 * 10**9}\n",
            f"{CG}/pod/memory.stat": f"anon 1\ninactive_file {3 * 10**9}\n", f"{CG}/memory.max": "max\n",
            f"{CG}/pod/cpu.max": "400000 100000\n",
        },
    ),
    "cgroup-v1-container": readings(
        all_of(1), mounts=(f"32 23 0:28 /docker/abc {CG}/memory rw - cgroup cgroup rw,memory",),
        files={
            "/proc/self/cgroup": "5:memory:/docker/abc\n", f"{CG}/memory/memory.limit_in_bytes": str(32 * GIB),
            f"{CG}/memory/memory.usage_in_bytes": str(2 * GIB),
            f"{CG}/memory/memory.stat": f"total_inactive_file {GIB}\n",
        },
    ),
    "nvme-under-lvm": readings(
        all_of(1), disk={"path": ".", "free": 900 * GIB, "device": "253:0", "o_direct": True},
        more={"link /sys/dev/block/253:0": "/sys/devices/virtual/block/dm-0",
              "names /sys/devices/virtual/block/dm-0/slaves": ["nvme0n1p3"],
              "link /sys/class/block/nvme0n1p3": f"{BLOCK}/nvme0n1p3"},
    ),
    "overlay-on-cloud-volume": readings(
        all_of(1), disk={"path": ".", "free": 80 * GIB, "device": "0:52", "o_direct": True},
        more={"filesystem 0:52": {"type": "overlay", "source": "overlay"}, "device /etc/hosts": "259:1",
              "link /sys/dev/block/259:1": f"{BLOCK}/nvme0n1p1",
              f"text {BLOCK}/nvme0n1p1/../device/model": "Amazon Elastic Block Store\n"},
    ),
    "mi300x-kfd": readings(error="no library", more=kfd()),
    "mi300x-x2-one-visible": readings(error="no library", more=rocm_smi(), environment={"HIP_VISIBLE_DEVICES": "1"}),
    "apple-m3": readings(
        error="no library", platform="darwin", machine="arm64", available=100 * GIB,
        more={"command sysctl -n machdep.cpu.brand_string": "Apple M3 Max\n",
              "command sysctl -n iogpu.wired_limit_mb": "98304\n"},
    ),
}  # fmt: skip


def recorded(name: str) -> Recorder:
    """What a probe asks of a trap, and the answers."""
    recorder = Recorder(RECORDS[name])
    probe(recorder)
    return recorder


def save(folder: Path) -> None:
    """Write every recording below ``folder``."""
    for name in RECORDS:
        recorded(name).save(folder / name, f"made by hand from public reports: {name}; no machine gave this")


if __name__ == "__main__":
    save(FOLDER)
