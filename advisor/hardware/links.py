"""Links between cards, to the host and between nodes, from raw readings. Bytes/s, one direction."""

from __future__ import annotations

import re
from typing import Any, Literal

from advisor.hardware.cards import PCIE_USABLE, slot_rate
from advisor.hardware.profile import Gpu, Links
from advisor.hardware.readings import Readings

# GeForce cards of this series have no peer access over PCIe, though the driver said yes before 550.40.07.
NO_PEER = re.compile(r"RTX 40\d\d")
# NVLink-C2C of a superchip's GPU to its Grace, one direction (datasheets: 900 GB/s both ways, which two GPUs of a GB200
# share). NVML states a PCIe slot that the data does not take.
CHIP_LINKS = {"GH200": 450e9, "GB200": 225e9, "GB300": 225e9}
# NVML_P2P_STATUS_OK
PEER_OK = 0


def read_links(
    readings: Readings, nvml: dict[str, Any], devices: list[dict[str, Any]], cards: tuple[Gpu, ...]
) -> Links:
    """The slowest of each kind: work that is spread evenly waits for it."""
    slot = _least(slot_rate(device) for device in devices)
    host = None if slot is None else slot * PCIE_USABLE
    host = next((rate for chip, rate in CHIP_LINKS.items() if any(chip in card.name for card in cards)), host)
    nvlink = _least(_nvlink(device) for device in devices)
    unified = bool(cards) and all(card.unified_memory for card in cards)
    peers = _peer_access(nvml, devices, cards)
    kind: Literal["nvlink", "pcie", "none"] | None = None
    between = None
    if len(devices) > 1:
        kind, between = ("nvlink", nvlink) if nvlink and _all_bridged(nvml, devices) else ("pcie", host)
        if kind == "pcie" and peers is False and host is not None:
            between = host / 2  # by way of host memory: every byte crosses the bus twice
    network, network_kind, network_device = _network(readings)
    counts = [int((device.get("nvlink") or {}).get("links") or 0) for device in devices]
    return Links(
        gpu_to_gpu=between,
        gpu_to_gpu_kind=kind,
        gpu_to_gpu_links=min(counts) if kind == "nvlink" else None,
        host_to_gpu=None if unified else host,
        gpu_to_host=None if unified else host,
        peer_to_peer=peers,
        network=network,
        network_kind=network_kind,
        network_device=network_device,
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
    states = _states(nvml.get("peers"), devices)
    if not states or None in states:
        return None
    return all(state == PEER_OK for state in states)


def _states(pairs: dict[str, int | None] | None, devices: list[dict[str, Any]]) -> list[int | None]:
    """NVML's status of every pair of ``devices``; ``pairs`` has them as "0-1"."""
    indices = {device["index"] for device in devices}
    return [state for pair, state in (pairs or {}).items() if {int(part) for part in pair.split("-")} <= indices]


def _all_bridged(nvml: dict[str, Any], devices: list[dict[str, Any]]) -> bool:
    """Whether NVLink joins every pair: bridges join two cards of four, and a ring over all then crosses PCIe."""
    states = _states(nvml.get("bridged"), devices)
    return None in states or all(state == PEER_OK for state in states)


Kind = Literal["infiniband", "ethernet"]


def _network(readings: Readings) -> tuple[float | None, Kind | None, str | None]:
    """Rate, kind and name: InfiniBand or RoCE by /sys/class/infiniband, else the fastest Ethernet by /sys/class/net.

    NCCL uses all equal adapters at once, so their rates add up.
    """
    fast = _adapters(readings)
    if fast:
        rate, kind, _ = max(fast)
        alike = [name for each, what, name in fast if (each, what) == (rate, kind)]
        more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        return rate * len(alike), kind, alike[0] + more
    ports: list[tuple[float, str]] = []
    for name in readings.ask("names", "/sys/class/net") or []:
        # A real port has a device behind it: bridges, tunnels and loopback have none.
        if readings.ask("link", f"/sys/class/net/{name}/device") is None:
            continue
        speed = (readings.ask("text", f"/sys/class/net/{name}/speed") or "").strip()
        ports.append((int(speed) * 1e6 / 8 if speed.isdigit() else 0.0, name))  # Mb/s; -1 when unknown
    rate, name = max(ports, default=(0.0, ""))
    if not name:
        return None, None, None
    return (rate or None), "ethernet", name if rate else f"{name} (its driver states no rate)"


def _adapters(readings: Readings) -> list[tuple[float, Kind, str]]:
    """Ports of RDMA adapters that are up."""
    found: list[tuple[float, Kind, str]] = []
    for device in readings.ask("names", "/sys/class/infiniband") or []:
        for port in readings.ask("names", f"/sys/class/infiniband/{device}/ports") or []:
            folder = f"/sys/class/infiniband/{device}/ports/{port}"
            if "ACTIVE" not in (readings.ask("text", f"{folder}/state") or ""):
                continue
            rate = re.match(r"([\d.]+) Gb/sec", readings.ask("text", f"{folder}/rate") or "")
            layer = (readings.ask("text", f"{folder}/link_layer") or "").strip()
            if rate:
                found.append((float(rate[1]) * 1e9 / 8, "ethernet" if layer == "Ethernet" else "infiniband", device))
    return found
