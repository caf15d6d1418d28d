"""The disk under the working folder, from raw readings: what lies behind it, its room, and asynchronous reads."""

from __future__ import annotations

import re
from typing import Any, Literal

from advisor.hardware.profile import Disk
from advisor.hardware.readings import Readings

Kind = Literal["nvme", "ssd", "hdd", "network", "unknown"]
_NETWORK = re.compile(r"nfs|cifs|smb|lustre|ceph|fuse|9p|gpfs|beegfs|virtiofs")
_MEMORY = ("tmpfs", "ramfs")
# Volumes across a network that the host shows as NVMe disks (EBS, GCP and Azure state it as the model).
_REMOTE_MODEL = re.compile(r"Elastic Block Store|nvme_card-pd|PersistentDisk|MSFT NVMe Accelerator")
# Every container has this file bound from its host's own disk.
_BOUND_FILE = "/etc/hosts"


def read_disk(readings: Readings, system: dict[str, Any], can_build_aio: bool | None) -> Disk:
    """The disk; ``can_build_aio`` says whether DeepSpeed's async_io operator is there or can be built."""
    state = system.get("disk") or {}
    name, kind = _behind(readings, state.get("device"))
    direct = state.get("o_direct")
    parts = [direct, system.get("libaio"), can_build_aio]
    # tmpfs may open files with O_DIRECT in newer kernels, but it is memory.
    usable = False if name in _MEMORY or False in parts else None if None in parts else True
    return Disk(path=state.get("path"), device=name, kind=kind, free=state.get("free"), async_io=usable)


def _behind(readings: Readings, number: str | None) -> tuple[str | None, Kind | None]:
    """Name and kind of the device "major:minor"."""
    if number is None:
        return None, None
    if not number.startswith("0:"):
        return _block(readings, readings.ask("link", f"/sys/dev/block/{number}"))
    # No block device of its own: a layered, network or memory file system.
    system = readings.ask("filesystem", number) or {}
    kind, source = system.get("type") or "unknown", system.get("source") or ""
    if _NETWORK.match(kind):
        return kind, "network"
    if kind in _MEMORY:
        return kind, "unknown"
    if source.startswith("/dev/"):  # btrfs and its like name one disk
        return _block(readings, readings.ask("link", f"/sys/class/block/{source.rpartition('/')[2]}"))
    if kind == "overlay":
        bound = readings.ask("device", _BOUND_FILE)
        if bound and not bound.startswith("0:"):
            name, found = _block(readings, readings.ask("link", f"/sys/dev/block/{bound}"))
            return f"overlay on {name}", found
    return kind, "unknown"


def _block(readings: Readings, place: str | None) -> tuple[str | None, Kind]:
    """Name and kind of the block device whose folder in sysfs is ``place``."""
    if not place:
        return None, "unknown"
    name = place.rpartition("/")[2]
    lower = readings.ask("names", f"{place}/slaves") if "/virtual/" in place else []
    if lower:  # device mapper, software RAID: as slow as the slowest below
        found = [_block(readings, readings.ask("link", f"/sys/class/block/{each}")) for each in lower]
        kinds = {kind for _, kind in found}
        return f"{name} on {', '.join(each for each, _ in found if each)}", kinds.pop() if len(
            kinds
        ) == 1 else "unknown"
    if "/nvme" in place:
        model = _of_disk(readings, place, "device/model") or ""
        return name, "network" if _REMOTE_MODEL.search(model) else "nvme"
    rotational = _of_disk(readings, place, "queue/rotational")
    if "/virtio" in place or "/xen" in place or "/vbd-" in place or rotational is None:
        return f"{name} (virtual)", "unknown"  # virtio states rotational=1 whatever lies behind it
    return name, "hdd" if rotational.strip() == "1" else "ssd"


def _of_disk(readings: Readings, place: str, file: str) -> str | None:
    """A file of the disk; a partition's lies one folder up."""
    answer: str | None = readings.ask("text", f"{place}/{file}") or readings.ask("text", f"{place}/../{file}")
    return answer
