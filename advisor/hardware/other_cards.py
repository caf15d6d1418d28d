"""Cards of other makers, recognised and described: AMD through the kernel's files or rocm-smi, Apple by its platform."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from advisor.hardware.cards import nominal
from advisor.hardware.profile import Gpu
from advisor.hardware.readings import Readings
from advisor.hardware.visible import chosen_by_number
from advisor.units import MIB

AMD_VENDOR = "0x1002"
KFD = "/sys/class/kfd/kfd/topology/nodes"
# Kinds of memory bank in the kernel's topology: the card's own memory, seen by the host or not.
VRAM_HEAPS = ("1", "2")


def amd_cards(readings: Readings, environment: dict[str, str]) -> tuple[Gpu, ...]:
    """AMD cards, as ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES leave them; memory in bytes as the driver states it.

    Asked in turn: the display driver's files, the compute driver's (all that a container may see), rocm-smi.
    """
    found = list(_by_drm(readings)) or list(_by_kfd(readings)) or list(_by_rocm_smi(readings))
    # The runtime below filters first; HIP counts what is left, and takes CUDA's variable where its own is missing.
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        wanted = environment.get(name)
        if wanted is None and name.startswith("HIP"):
            wanted = environment.get("CUDA_VISIBLE_DEVICES")
        if wanted is not None:
            found = chosen_by_number(wanted, found)
    return tuple(found)


def _amd(name: str, total: int, used: int | None) -> Gpu:
    name = re.sub(r" OAM$", "", name.strip()) or "AMD GPU"
    name = name if name.startswith("AMD") else f"AMD {name}"
    free = None if used is None else total - used
    return Gpu(name=name, vendor="amd", memory_total=total, memory_free=free, **nominal(name))


def _by_drm(readings: Readings) -> Iterator[Gpu]:
    for entry in readings.ask("names", "/sys/class/drm") or []:
        if not re.fullmatch(r"card\d+", entry):
            continue
        folder = f"/sys/class/drm/{entry}/device"
        vendor, total = readings.ask("text", f"{folder}/vendor"), readings.ask("text", f"{folder}/mem_info_vram_total")
        if (vendor or "").strip() != AMD_VENDOR or total is None:
            continue
        used = readings.ask("text", f"{folder}/mem_info_vram_used")
        name = readings.ask("text", f"{folder}/product_name") or ""
        yield _amd(name, int(total), None if used is None else int(used))


def _by_kfd(readings: Readings) -> Iterator[Gpu]:
    """The compute driver's topology: nodes with SIMD units are cards, their names are the ISA's (gfx942)."""
    for node in sorted(readings.ask("names", KFD) or [], key=lambda name: (len(name), name)):
        values = _pairs(readings.ask("text", f"{KFD}/{node}/properties"))
        if int(values.get("simd_count", "0")) == 0:
            continue  # the host
        banks = readings.ask("names", f"{KFD}/{node}/mem_banks") or []
        memory = [_pairs(readings.ask("text", f"{KFD}/{node}/mem_banks/{bank}/properties")) for bank in banks]
        total = sum(int(bank.get("size_in_bytes", "0")) for bank in memory if bank.get("heap_type") in VRAM_HEAPS)
        if total:
            version = int(values.get("gfx_target_version", "0"))
            # 90402: major 9, minor 4, stepping 2, the last two in hexadecimal.
            yield _amd(f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}", total, None)


def _pairs(text: str | None) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in (text or "").splitlines() if " " in line)


def _by_rocm_smi(readings: Readings) -> Iterator[Gpu]:
    """rocm-smi's JSON; its keys changed their capitals between releases."""
    text = readings.ask("command", "rocm-smi", "--showmeminfo", "vram", "--showproductname", "--json")
    try:
        cards = json.loads(text or "{}")
    except json.JSONDecodeError:
        return
    for entry in sorted(cards, key=lambda name: (len(name), name)):
        if not re.fullmatch(r"card\d+", entry):
            continue
        values = {key.lower(): str(value) for key, value in cards[entry].items()}
        total, used = values.get("vram total memory (b)", ""), values.get("vram total used memory (b)", "")
        if total.isdigit():
            yield _amd(values.get("card series", ""), int(total), int(used) if used.isdigit() else None)


def apple_cards(readings: Readings, system: dict[str, Any]) -> tuple[Gpu, ...]:
    """The GPU of an Apple machine: one pool with the host, of which a set limit may leave the GPU a part."""
    if system.get("platform") != "darwin" or system.get("machine") != "arm64":
        return ()
    brand = (readings.ask("command", "sysctl", "-n", "machdep.cpu.brand_string") or "Apple GPU").strip()
    # MiB that the GPU may wire; 0 leaves it to the system, which states no number before Metal is asked.
    wired = (readings.ask("command", "sysctl", "-n", "iogpu.wired_limit_mb") or "0").strip()
    free = system.get("memory_available")
    if wired.isdigit() and int(wired):
        free = int(wired) * MIB if free is None else min(free, int(wired) * MIB)
    return (
        Gpu(
            name=brand, vendor="apple", memory_total=system["memory_total"], memory_free=free,
            unified_memory=True, **nominal(brand),
        ),
    )  # fmt: skip
