"""A node's host side: the memory that a program may really take, cores, pinned memory, shared memory.

Host memory is the least of what the kernel calls available, of the room in every cgroup from this process's up to the
root, of a batch system's grant and of the address-space limit. Swap is never counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.hardware.batch import Limit, grants
from advisor.hardware.profile import Host
from advisor.hardware.readings import Readings
from advisor.units import KIB, MIB

# cgroup v1 writes "no limit" as the largest page-aligned signed number, about 2^63.
V1_UNLIMITED = 1 << 62


def read_host(readings: Readings, system: dict[str, Any]) -> Host:
    """The host as this process may use it."""
    environment = readings.ask("environment") or {}
    meminfo = _meminfo(readings.ask("text", "/proc/meminfo"))
    total = meminfo.get("MemTotal", system.get("memory_total"))
    limits = list(memory_limits(readings, system, environment, meminfo))
    least = min(limits, key=lambda limit: limit.amount, default=None)
    kernel = (readings.ask("text", "/proc/version") or "").lower()
    shared = system.get("shm")
    nodes = [name for name in readings.ask("names", "/sys/devices/system/node") or [] if re.fullmatch(r"node\d+", name)]
    return Host(
        name=system.get("node"),
        memory_total=total,
        memory_available=least.amount if least else None,
        memory_limit_reason=least.reason if least else None,
        cpus=_cpus(readings, system),
        pinned_limit=(system.get("limits") or {}).get("memlock"),
        shared_memory=shared["free"] if shared else None,
        wsl="microsoft" in kernel,
        numa_nodes=len(nodes) or None,
    )


def memory_limits(
    readings: Readings, system: dict[str, Any], environment: dict[str, str], meminfo: dict[str, int]
) -> Iterator[Limit]:
    """Everything that bounds this process's memory."""
    available = meminfo.get("MemAvailable", system.get("memory_available"))
    if available is not None:
        yield Limit(available, "available memory")
    yield from _cgroups(readings)
    yield from grants(readings, environment)
    address_space = (system.get("limits") or {}).get("address_space")
    if address_space is not None:
        yield Limit(address_space, "address space limit (ulimit -v)")


def _meminfo(text: str | None) -> dict[str, int]:
    """/proc/meminfo in bytes (it states kB, meaning KiB)."""
    found = re.findall(r"^(\w+):\s+(\d+) kB$", text or "", re.MULTILINE)
    return {name: int(value) * KIB for name, value in found}


# --- control groups ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    mount: str  # where the hierarchy is mounted
    path: str  # this process's group below it, "" for the mount itself

    def upward(self) -> Iterator[str]:
        """Folders from the process's own group to the root of what is visible."""
        parts = [part for part in self.path.split("/") if part]
        for length in range(len(parts), -1, -1):
            yield "/".join((self.mount, *parts[:length]))


def _groups(readings: Readings) -> tuple[_Group | None, dict[str, _Group]]:
    """The v2 group, and v1 groups by controller."""
    own: dict[str, str] = {}
    for line in (readings.ask("text", "/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                own[controller] = parts[2]
    unified, controllers = None, dict[str, _Group]()
    for line in readings.ask("mounts") or []:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        root, mount = fields[3], fields[4].rstrip("/")
        if kind[0] == "cgroup2" and unified is None:
            unified = _Group(mount, _below(own.get("", "/"), root))
        elif kind[0] == "cgroup":
            for controller in set(kind[2].split(",")) & own.keys():
                controllers.setdefault(controller, _Group(mount, _below(own[controller], root)))
    return unified, controllers


def _below(path: str, root: str) -> str:
    """Without its own cgroup namespace a container sees the host's path; only what is below ``root`` is mounted."""
    if root == "/":
        return "" if path.startswith("/..") else path
    return path[len(root) :] if path == root or path.startswith(root + "/") else ""


def _cgroups(readings: Readings) -> Iterator[Limit]:
    unified, controllers = _groups(readings)
    if unified is not None:
        for folder in unified.upward():
            yield from _room(readings, folder, "memory.max", "memory.current", "inactive_file", "cgroup v2")
            # No hard limit, but beyond it the kernel holds the group's processes up until they give memory back.
            yield from _room(readings, folder, "memory.high", "memory.current", "inactive_file", "cgroup v2 throttling")
    if memory := controllers.get("memory"):
        for folder in memory.upward():
            yield from _room(
                readings, folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "cgroup v1"
            )


def _room(readings: Readings, folder: str, limit: str, usage: str, cache: str, kind: str) -> Iterator[Limit]:
    """What a group may still take: its limit less what it holds, but for file cache that the kernel drops on need."""
    most = _number(readings.ask("text", f"{folder}/{limit}"))
    if most is None or most >= V1_UNLIMITED:
        return
    used = _number(readings.ask("text", f"{folder}/{usage}")) or 0
    stat = re.search(rf"^{cache} (\d+)$", readings.ask("text", f"{folder}/memory.stat") or "", re.MULTILINE)
    reclaimable = min(int(stat[1]), used) if stat else 0
    yield Limit(max(0, most - used + reclaimable), f"{kind} limit of {most / MIB:,.0f} MiB ({folder}/{limit})")


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None


# --- cores ------------------------------------------------------------------------------------------------------------


def _cpus(readings: Readings, system: dict[str, Any]) -> int | None:
    """Cores this process may use: affinity, then the quota of every group above; a part of a core counts as one."""
    known = [count for count in (system.get("affinity"), system.get("cpus")) if count]
    unified, controllers = _groups(readings)
    for folder in unified.upward() if unified else ():
        quota = (readings.ask("text", f"{folder}/cpu.max") or "").split()
        if len(quota) == 2 and quota[0] != "max":
            known.append(max(1, int(quota[0]) // int(quota[1])))
    for folder in controllers["cpu"].upward() if "cpu" in controllers else ():
        most = _number(readings.ask("text", f"{folder}/cpu.cfs_quota_us"))
        period = _number(readings.ask("text", f"{folder}/cpu.cfs_period_us"))
        if most and period and most > 0:
            known.append(max(1, most // period))
    return min(known, default=None)
