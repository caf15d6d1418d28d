"""Host memory is the least of every limit (public case E01)."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from advisor.hardware.probe import probe
from advisor.hardware.system import read_packages
from tests.hardware.traps import GIB, readings

V2 = "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1 = "32 23 0:28 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
CG = "/sys/fs/cgroup"


def v2(groups: dict[str, tuple[str, int, int]], own: str) -> dict[str, str]:
    files = {"/proc/self/cgroup": f"0::{own}\n"}
    for path, (most, used, cache) in groups.items():
        files |= {
            f"{CG}{path}/memory.max": most + "\n",
            f"{CG}{path}/memory.current": f"{used}\n",
            f"{CG}{path}/memory.stat": f"anon 1\ninactive_file {cache}\n",
        }
    return files


def test_e01_container_limit_under_a_large_host() -> None:
    files = v2({"": (str(90 * 10**9), 4 * 10**9, 3 * 10**9)}, "/")
    host = probe(readings(files=files, mounts=(V2,), available=901 * 10**9)).host
    assert host.memory_available == 89 * 10**9  # 90 GB, -10% / +0
    assert "cgroup v2" in (host.memory_limit_reason or "")


def test_a_parent_group_limits_its_children() -> None:
    files = v2({"": ("max", 0, 0), "/job": (str(32 * GIB), 2 * GIB, 0), "/job/step": ("max", GIB, 0)}, "/job/step")
    assert probe(readings(files=files, mounts=(V2,))).host.memory_available == 30 * GIB


def test_reclaimable_cache_counts_as_room_but_never_more_than_is_held() -> None:
    files = v2({"": (str(8 * GIB), 6 * GIB, 9 * GIB)}, "/")
    assert probe(readings(files=files, mounts=(V2,))).host.memory_available == 8 * GIB


def test_a_group_that_is_throttled_before_its_limit() -> None:
    files = v2({"": (str(32 * GIB), 2 * GIB, 0)}, "/") | {f"{CG}/memory.high": f"{24 * GIB}\n"}
    host = probe(readings(files=files, mounts=(V2,))).host
    assert host.memory_available == 22 * GIB
    assert "throttling" in (host.memory_limit_reason or "")


def test_swap_is_never_counted() -> None:
    meminfo = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapTotal: 67108864 kB\nSwapFree: 67108864 kB\n"
    files = {"/proc/meminfo": meminfo} | v2({"": ("max", 0, 0)}, "/") | {f"{CG}/memory.swap.max": "max\n"}
    host = probe(readings(files=files, mounts=(V2,))).host
    assert (host.memory_total, host.memory_available) == (16 * GIB, 8 * GIB)


def test_shared_memory_is_what_is_free() -> None:
    assert probe(readings(shm=8 * GIB)).host.shared_memory == 8 * GIB
    assert probe(readings(shm=8 * GIB, shm_free=GIB // 2)).host.shared_memory == GIB // 2


@pytest.mark.parametrize(("limit", "expected"), [(2**63 - 4096, 64 * GIB), (10 * GIB, 9 * GIB)])
def test_cgroup_v1_in_a_container_without_its_own_namespace(limit: int, expected: int) -> None:
    files = {
        "/proc/self/cgroup": "5:memory:/docker/abc\n",
        f"{CG}/memory/memory.limit_in_bytes": str(limit),
        f"{CG}/memory/memory.usage_in_bytes": str(2 * GIB),
        f"{CG}/memory/memory.stat": f"total_inactive_file {GIB}\n",
    }
    machine = probe(readings(files=files, mounts=(V1.format(root="/docker/abc"),)))
    assert machine.host.memory_available == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_MEM_PER_NODE": "16384"}, 16 * GIB),
        ({"SLURM_MEM_PER_NODE": "0"}, 64 * GIB),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "4"}, 8 * GIB),
        ({"SLURM_MEM_PER_GPU": "4096", "SLURM_GPUS_ON_NODE": "2"}, 8 * GIB),
    ],
)
def test_slurm_grants(environment: dict[str, str], expected: int) -> None:
    assert probe(readings(environment=environment)).host.memory_available == expected


def test_cpu_quota_and_affinity() -> None:
    files = {"/proc/self/cgroup": "0::/\n", f"{CG}/cpu.max": "400000 100000\n"}
    assert probe(readings(files=files, mounts=(V2,))).host.cpus == 4
    assert probe(readings(affinity=3)).host.cpus == 3


def test_probe_in_a_real_group_of_2_gib() -> None:
    """A child in a cgroup with a 2 GiB limit, where this machine lets us make one."""
    for parent, limit in (
        (Path(CG) / "memory", "memory.limit_in_bytes"), (Path(CG), "memory.max"), (Path(CG) / "unified", "memory.max"),
    ):  # fmt: skip
        group = parent / f"advisor-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / limit).exists():
                continue
            (group / limit).write_text(str(2 * GIB))
            code = (
                f"import os, pathlib; pathlib.Path({str(group / 'cgroup.procs')!r}).write_text(str(os.getpid()))\n"
                "from advisor.hardware.probe import probe\nprint(probe().host.memory_available)"
            )
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            assert 1.5 * GIB < int(done.stdout) <= 2 * GIB
            return
        finally:
            group.rmdir()
    pytest.skip("no control group with a memory limit can be made here")


def test_versions_are_those_of_the_metadata() -> None:
    found = read_packages()
    assert {"torch", "transformers", "numpy"} <= found.keys()
    assert found == {name: metadata.version(name) for name in found}


def test_probe_does_not_import_torch() -> None:
    code = "import sys\nfrom advisor.hardware.probe import probe\nprobe()\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
