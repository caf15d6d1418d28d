"""This machine as a profile, from raw readings: nothing heavy is imported and nothing is run but small tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.hardware.cards import amd_cards, apple_cards, from_smi, nvidia_cards
from advisor.hardware.host import read_host
from advisor.hardware.links import read_disk, read_links
from advisor.hardware.profile import HardwareProfile
from advisor.hardware.readings import Live, Readings
from advisor.hardware.software import read_software
from advisor.hardware.trouble import troubles


def probe(readings: Readings | None = None, place: Path | None = None) -> HardwareProfile:
    """The machine behind ``readings`` (this one by default); the disk is the one under ``place`` (working folder)."""
    here = readings is None
    readings = readings or Live()
    # A replay has its own folder: the question must be the same on any machine.
    system: dict[str, Any] = readings.ask("system", str(place or ".")) or {}
    environment: dict[str, str] = readings.ask("environment") or {}
    nvml: dict[str, Any] = readings.ask("nvml") or {"error": "no reading", "cards": []}
    notes: list[str] = []
    if nvml.get("error"):
        nvml = _fall_back(readings, nvml, notes)
    host = read_host(readings, system)
    cards, visible = nvidia_cards(nvml, environment, host)
    notes += visible.notes
    cards = cards or amd_cards(readings) or apple_cards(readings, system)
    if not cards and not nvml.get("cards"):
        notes.append("no GPU found")
    profile = HardwareProfile(
        name="this machine" if here else system.get("node") or "recorded machine",
        description=f"read from {system.get('node') or 'the machine'} by advisor probe",
        gpus=cards,
        host=host,
        links=read_links(readings, nvml, visible.devices, cards),
        disk=read_disk(readings, system),
        software=read_software(readings, system, nvml, environment),
        sources={
            "gpus.memory_total": "NVML" if cards and cards[0].vendor == "nvidia" else "the system",
            "gpus": "nominal rates of the shipped profile with this card",
            "host": "/proc, cgroups, batch system",
            "links": "NVML and /sys: nominal rates, PCIe at 80% of its signalling rate",
        },
        here=here,
    )
    return profile.model_copy(update={"notes": (*notes, *troubles(profile))})


def _fall_back(readings: Readings, nvml: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Without NVML: ask nvidia-smi, and say what is the matter."""
    cards = from_smi(readings)
    driver = readings.ask("text", "/proc/driver/nvidia/version")
    devices = readings.ask("names", "/proc/driver/nvidia/gpus")
    if cards:
        notes.append(f"NVML does not answer ({nvml['error']}): cards are as nvidia-smi prints them, links unknown")
    elif driver or devices:
        notes.append(
            f"NVML does not answer ({nvml['error']}), though an NVIDIA driver is loaded: CUDA may still work. After a "
            "driver update a restart mends it; until then give --hardware"
        )
    return {**nvml, "cards": cards}
