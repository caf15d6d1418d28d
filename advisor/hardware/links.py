"""Links between cards, to the host and between nodes, and the disk, from raw readings. Bytes/s, one direction."""

from __future__ import annotations

import re
from typing import Any, Literal

from advisor.hardware.cards import pcie_rate
from advisor.hardware.profile import Disk, Gpu, Links
from advisor.hardware.readings import Readings

# GeForce cards of this series have no peer access over PCIe, though the driver said yes before 550.40.07.
NO_PEER = re.compile(r"RTX 40\d\d")
# NVML_P2P_STATUS_OK
PEER_OK = 0


def read_links(
    readings: Readings, nvml: dict[str, Any], devices: list[dict[str, Any]], cards: tuple[Gpu, ...]
) -> Links:
    """The slowest of each kind: work that is spread evenly waits for it."""
    host = _least(pcie_rate(device) for device in devices)
    nvlink = _least(_nvlink(device) for device in devices)
    unified = bool(cards) and all(card.unified_memory for card in cards)
    peers = _peer_access(nvml, devices, cards)
    kind: Literal["nvlink", "pcie", "none"] | None = None
    between = None
    if len(devices) > 1:
        kind, between = ("nvlink", nvlink) if nvlink else ("pcie", host)
        if kind == "pcie" and peers is False and host is not None:
            between = host / 2  # by way of host memory: every byte crosses the bus twice
    network, network_kind = _network(readings)
    return Links(
        gpu_to_gpu=between,
        gpu_to_gpu_kind=kind,
        host_to_gpu=None if unified else host,
        gpu_to_host=None if unified else host,
        peer_to_peer=peers,
        network=network,
        network_kind=network_kind,
    )


def _least(values: Any) -> float | None:
    known = list(values)
    return min(known) if known and all(value is not None for value in known) else None


def _nvlink(device: dict[str, Any]) -> float | None:
    state = device.get("nvlink") or {}
    return state["links"] * state["rate"] if state.get("links") and state.get("rate") else None


def _peer_access(nvml: dict[str, Any], devices: list[dict[str, Any]], cards: tuple[Gpu, ...]) -> bool | None:
    if len(devices) < 2:
        return None
    if any(NO_PEER.search(card.name) for card in cards):
        return False
    indices = {device["index"] for device in devices}
    states = [
        state for pair, state in (nvml.get("peers") or {}).items() if {int(part) for part in pair.split("-")} <= indices
    ]
    if not states or None in states:
        return None
    return all(state == PEER_OK for state in states)


def _network(readings: Readings) -> tuple[float | None, Literal["infiniband", "ethernet"] | None]:
    """The fastest port that is up: InfiniBand or RoCE by /sys/class/infiniband, else Ethernet by /sys/class/net."""
    fast: list[tuple[float, Literal["infiniband", "ethernet"]]] = []
    for device in readings.ask("names", "/sys/class/infiniband") or []:
        for port in readings.ask("names", f"/sys/class/infiniband/{device}/ports") or []:
            folder = f"/sys/class/infiniband/{device}/ports/{port}"
            if "ACTIVE" not in (readings.ask("text", f"{folder}/state") or ""):
                continue
            rate = re.match(r"([\d.]+) Gb/sec", readings.ask("text", f"{folder}/rate") or "")
            layer = (readings.ask("text", f"{folder}/link_layer") or "").strip()
            if rate:
                fast.append((float(rate[1]) * 1e9 / 8, "ethernet" if layer == "Ethernet" else "infiniband"))
    if fast:
        return max(fast)
    for name in readings.ask("names", "/sys/class/net") or []:
        # A real port has a device behind it: bridges, tunnels and loopback have none.
        if readings.ask("link", f"/sys/class/net/{name}/device") is None:
            continue
        speed = (readings.ask("text", f"/sys/class/net/{name}/speed") or "").strip()
        if speed.isdigit() and int(speed) > 0:  # Mb/s; -1 when unknown
            fast.append((int(speed) * 1e6 / 8, "ethernet"))
    return max(fast) if fast else (None, None)


def read_disk(readings: Readings, system: dict[str, Any]) -> Disk:
    """The disk under the working folder: what it is, its free bytes, and whether DeepSpeed's async_io can use it."""
    state = system.get("disk") or {}
    direct, libaio = state.get("o_direct"), system.get("libaio")
    usable = None if direct is None or libaio is None else bool(direct and libaio)
    return Disk(path=state.get("path"), kind=_disk_kind(readings, state), free=state.get("free"), async_io=usable)


def _disk_kind(readings: Readings, state: dict[str, Any]) -> Literal["nvme", "ssd", "hdd", "network", "unknown"] | None:
    number = state.get("device")
    if number is None:
        return None
    if number.startswith("0:"):  # no block device: overlay, tmpfs or a network file system
        kind = readings.ask("filesystem", number) or ""
        return "network" if re.match(r"nfs|cifs|smb|lustre|ceph|fuse|9p|gpfs|beegfs", kind) else "unknown"
    place = readings.ask("link", f"/sys/dev/block/{number}") or ""
    if "/nvme" in place:
        return "nvme"
    # A partition's queue is its disk's.
    rotational = readings.ask("text", f"{place}/queue/rotational") or readings.ask(
        "text", f"{place}/../queue/rotational"
    )
    if "/virtio" in place or rotational is None:
        return "unknown"  # virtio states rotational=1 whatever lies behind it
    return "hdd" if rotational.strip() == "1" else "ssd"
