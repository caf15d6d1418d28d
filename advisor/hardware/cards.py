"""Cards from raw readings: NVIDIA through NVML, AMD through the kernel's own files, Apple by its platform.

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


def nvidia_cards(nvml: dict[str, Any], environment: dict[str, str], host: Host) -> tuple[tuple[Gpu, ...], Visible]:
    """Cards as CUDA will show them, and the raw devices in the same order."""
    visible = visible_devices(nvml.get("cards") or [], environment)
    return tuple(_nvidia(device, host) for device in visible.devices), visible


def _nvidia(device: dict[str, Any], host: Host) -> Gpu:
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


def pcie_rate(device: dict[str, Any]) -> float | None:
    """Usable bytes/s of a card's slot. The generation falls while a card rests, the width does not: so the largest
    generation with the present width."""
    pcie = device.get("pcie") or {}
    lane, width = PCIE_LANE.get(pcie.get("max_generation") or 0), pcie.get("width") or pcie.get("max_width")
    return None if lane is None or not width else lane * int(width) * PCIE_USABLE


def nominal(name: str) -> dict[str, Any]:
    """Rates of the card ``name`` from the shipped profile that has it; nothing for an unknown card."""
    from advisor.hardware.load import load_profile, profile_paths

    for profile, path in profile_paths().items():
        if f'name = "{name}"' in path.read_text(encoding="utf-8"):
            for card in load_profile(profile).gpus:
                if card.name == name:
                    return {rate: getattr(card, rate) for rate in RATES}
    return {}


def amd_cards(readings: Readings) -> tuple[Gpu, ...]:
    """AMD cards by /sys/class/drm: memory in bytes as the amdgpu driver states it."""
    cards = []
    for entry in readings.ask("names", "/sys/class/drm") or []:
        if not re.fullmatch(r"card\d+", entry):
            continue
        folder = f"/sys/class/drm/{entry}/device"
        vendor, total = readings.ask("text", f"{folder}/vendor"), readings.ask("text", f"{folder}/mem_info_vram_total")
        if (vendor or "").strip() != "0x1002" or total is None:
            continue
        used = readings.ask("text", f"{folder}/mem_info_vram_used")
        name = (readings.ask("text", f"{folder}/product_name") or "").strip() or "AMD GPU"
        name = name if name.startswith("AMD") else f"AMD {name}"
        memory = int(total)
        free = None if used is None else memory - int(used)
        cards.append(Gpu(name=name, vendor="amd", memory_total=memory, memory_free=free, **nominal(name)))
    return tuple(cards)


def apple_cards(readings: Readings, system: dict[str, Any]) -> tuple[Gpu, ...]:
    """The GPU of an Apple machine: one pool with the host."""
    if system.get("platform") != "darwin" or system.get("machine") != "arm64":
        return ()
    brand = (readings.ask("command", "sysctl", "-n", "machdep.cpu.brand_string") or "Apple GPU").strip()
    return (
        Gpu(
            name=brand, vendor="apple", memory_total=system["memory_total"], memory_free=system.get("memory_available"),
            unified_memory=True, **nominal(brand),
        ),
    )  # fmt: skip


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
