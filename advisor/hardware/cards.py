"""NVIDIA cards from raw readings: through NVML, nvidia-smi, or a program of torch's.

Nominal rates of a known card come from the shipped profiles, the one place that holds them.
"""

from __future__ import annotations

import re
from typing import Any

from advisor.hardware.profile import Gpu, GpuProcess, Host
from advisor.hardware.readings import Readings
from advisor.hardware.visible import Visible, visible_devices

# Parts with one pool of memory for GPU and host; NVML gives no memory for them, or the whole of it.
UNIFIED = re.compile(r"GB10|Orin|Thor|Xavier|Tegra", re.IGNORECASE)
# Bytes/s, one direction, a lane: signalling rate times line code.
PCIE_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
# Share of the nominal PCIe rate that large pinned copies get (packet headers and flow control take the rest).
PCIE_USABLE = 0.8
RATES = ("compute_capability", "memory_bandwidth", "bf16_flops", "fp16_flops", "fp32_flops")


def nvidia_cards(
    readings: Readings, nvml: dict[str, Any], environment: dict[str, str], host: Host
) -> tuple[tuple[Gpu, ...], Visible]:
    """Cards as CUDA will show them, and the raw devices in the same order."""
    cards = nvml.get("cards") or []
    # A CUDA program was asked: what it saw has gone through the variables already.
    visible = Visible(devices=cards) if nvml.get("as_seen") else visible_devices(cards, environment)
    return tuple(_nvidia(readings, device, host) for device in visible.devices), visible


def _nvidia(readings: Readings, device: dict[str, Any], host: Host) -> Gpu:
    name = device.get("name") or "NVIDIA GPU"
    memory = device.get("memory")
    unified = memory is None or bool(UNIFIED.search(name))
    if memory is None or unified:
        total, free = host.memory_total or 1, host.memory_available
    else:
        total, free = memory["total"], memory["free"]
    pcie = device.get("pcie") or {}
    slice_of_card = "parent" in device
    return Gpu(
        name=name,
        memory_total=total,
        memory_free=free,
        unified_memory=unified,
        uuids=(device["uuid"],) if device.get("uuid") else (),
        mig=slice_of_card,
        ecc=device.get("ecc"),
        pcie=_pcie_text(pcie),
        pcie_rate=slot_rate(device),
        numa_node=_numa_node(readings, device.get("bus_id")),
        persistence=device.get("persistence"),
        memory_held=_held(memory),
        processes=tuple(GpuProcess(**process) for process in device.get("processes") or ()),
        # A slice has a part of the card's rates that no table here states: unknown is better than a guess.
        **({} if slice_of_card else nominal(name)) | _known(compute_capability=device.get("capability")),
    )


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _pcie_text(pcie: dict[str, Any]) -> str | None:
    if not pcie.get("max_generation"):
        return None
    return (
        f"gen {pcie.get('generation')} x{pcie.get('width')} "
        f"(at most gen {pcie['max_generation']} x{pcie.get('max_width')})"
    )


def slot_rate(device: dict[str, Any]) -> float | None:
    """Bytes/s that a card's slot signals. The generation falls while a card rests, the width does not: so the largest
    generation with the present width."""
    pcie = device.get("pcie") or {}
    lane, width = PCIE_LANE.get(pcie.get("max_generation") or 0), pcie.get("width") or pcie.get("max_width")
    return None if lane is None or not width else lane * int(width)


def _held(memory: dict[str, Any] | None) -> int | None:
    """Bytes that processes hold: what is used less the driver's own part, where the driver tells them apart."""
    if memory is None or memory.get("reserved") is None or memory.get("used") is None:
        return None
    # NVML's first form counts the driver's part as used.
    return max(0, int(memory["total"]) - int(memory["free"]) - int(memory["reserved"]))


def _numa_node(readings: Readings, bus_id: str | None) -> int | None:
    """The node that a card hangs on; None where the machine has but one (the kernel says -1) or does not tell."""
    if not bus_id:
        return None
    # NVML writes eight digits of the domain, the kernel four.
    domain, _, rest = bus_id.lower().partition(":")
    text = (readings.ask("text", f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node") or "").strip()
    return int(text) if text.isdigit() else None


def nominal(name: str) -> dict[str, Any]:
    """Rates of the card ``name`` from the shipped profile that has it; nothing for an unknown card."""
    from advisor.hardware.load import load_profile, profile_paths

    for profile, path in profile_paths().items():
        if f'name = "{name}"' in path.read_text(encoding="utf-8"):
            for card in load_profile(profile).gpus:
                if card.name == name:
                    return {rate: getattr(card, rate) for rate in RATES}
    return {}


def from_smi(readings: Readings) -> list[dict[str, Any]]:
    """Cards as nvidia-smi prints them, in the shape of NVML's answers: for when the Python binding fails."""
    fields = "index,name,uuid,pci.bus_id,compute_cap,memory.total,memory.free,memory.used"
    text = readings.ask("command", "nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    cards: list[dict[str, Any]] = []
    for line in (text or "").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 8 or not parts[0].isdigit():
            continue
        sizes = [int(part) << 20 if part.isdigit() else None for part in parts[5:]]
        memory = dict(zip(("total", "free", "used"), sizes, strict=True)) if None not in sizes else None
        cards.append(
            {"index": int(parts[0]), "name": parts[1], "uuid": parts[2], "bus_id": parts[3], "capability": parts[4],
             "memory": memory, "mig": False, "slices": []}
        )  # fmt: skip
    return cards
