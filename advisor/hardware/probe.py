"""This machine as a profile, from raw readings: nothing heavy is imported and nothing is run but small tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from advisor.hardware.cards import from_smi, nvidia_cards
from advisor.hardware.disk import read_disk
from advisor.hardware.host import read_host
from advisor.hardware.links import read_links
from advisor.hardware.other_cards import amd_cards, apple_cards
from advisor.hardware.profile import HardwareProfile
from advisor.hardware.readings import Live, Readings
from advisor.hardware.software import ASYNC_IO, missing_for_op, nvcc_command, read_software
from advisor.hardware.trouble import troubles

NVIDIA_VENDOR = "0x10de"


def live() -> Live:
    """This machine; the driver and the compiler are asked at once, as they take their time."""
    return Live(("nvml",), ("command", *nvcc_command(dict(os.environ))))


def probe(readings: Readings | None = None, place: Path | None = None, *, here: bool | None = None) -> HardwareProfile:
    """The machine behind ``readings`` (this one by default); the disk is the one under ``place`` (working folder).

    ``here`` says whether the readings are of this very machine, now: by default when none were given.
    """
    here = readings is None if here is None else here
    readings = readings or live()
    # A replay has its own folder: the question must be the same on any machine.
    system: dict[str, Any] = readings.ask("system", str(place or ".")) or {}
    environment: dict[str, str] = readings.ask("environment") or {}
    host = read_host(readings, system)
    nvml: dict[str, Any] = readings.ask("nvml") or {"error": "no reading", "cards": []}
    software = read_software(readings, system, nvml, environment)
    displays: list[dict[str, str]] = readings.ask("displays") or []
    notes: list[str] = []
    if nvml.get("error"):
        nvml = _fall_back(readings, nvml, displays, "torch" in software.packages, notes)
    cards, visible = nvidia_cards(readings, nvml, environment, host)
    notes += visible.notes
    notes += _unseen(nvml, displays, environment)
    cards = cards or amd_cards(readings, environment) or apple_cards(readings, system)
    if not cards and not nvml.get("cards"):
        notes.append("no GPU found")
    can_build = None if software.python is None else missing_for_op(software, ASYNC_IO) is None
    profile = HardwareProfile(
        name="this machine" if here else system.get("node") or "recorded machine",
        description="read by advisor probe",
        gpus=cards,
        host=host,
        links=read_links(readings, nvml, visible.devices, cards),
        disk=read_disk(readings, system, can_build),
        software=software,
        sources={
            "gpus.memory_total": _source(nvml, cards[0].vendor if cards else None),
            "gpus": "nominal rates of the shipped profile with this card",
            "host": "/proc, cgroups, batch system",
            "links": "NVML and /sys: nominal rates, PCIe at 80% of its signalling rate",
        },
        here=here,
    )
    return profile.model_copy(update={"notes": (*notes, *troubles(profile))})


def _source(nvml: dict[str, Any], vendor: str | None) -> str:
    if vendor != "nvidia":
        return "the system"
    return str(nvml.get("source", "NVML"))


def _fall_back(
    readings: Readings, nvml: dict[str, Any], displays: list[dict[str, str]], has_torch: bool, notes: list[str]
) -> dict[str, Any]:
    """Without NVML: ask nvidia-smi, then a child process through torch, and say what is the matter."""
    why = nvml["error"]
    if cards := from_smi(readings):
        notes.append(f"NVML does not answer ({why}): cards are as nvidia-smi prints them, links unknown")
        return {**nvml, "cards": cards, "source": "nvidia-smi"}
    driver = readings.ask("text", "/proc/driver/nvidia/version") or readings.ask("names", "/proc/driver/nvidia/gpus")
    # A Jetson's driver is another, and older ones have no NVML.
    signs = driver or readings.ask("text", "/etc/nv_tegra_release")
    if not signs:
        if any(display["vendor"] == NVIDIA_VENDOR for display in displays):
            notes.append(f"an NVIDIA card is on the bus, but no driver is loaded ({why}): install or load the driver")
        return nvml
    # Importing torch takes seconds, in a process of its own: only where there is something to find.
    seen = readings.ask("torch") if has_torch else None
    if seen and seen.get("cards"):
        notes.append(
            f"NVML does not answer ({why}), CUDA does: cards are as torch sees them, links and other users unknown. "
            "After a driver update a restart mends it"
        )
        cards = [{**card, "memory": None if card.get("integrated") else card["memory"]} for card in seen["cards"]]
        return {**nvml, "cards": cards, "source": "torch.cuda in a process of its own", "as_seen": True}
    notes.append(
        f"NVML does not answer ({why}), though an NVIDIA driver is loaded: CUDA may still work. After a driver update "
        "a restart mends it; until then give --hardware"
    )
    return nvml


def _unseen(nvml: dict[str, Any], displays: list[dict[str, str]], environment: dict[str, str]) -> list[str]:
    """Cards on the bus that the driver does not show this process: a container or a batch system keeps them back."""
    if nvml.get("error") or nvml.get("as_seen"):
        return []
    on_bus = sum(display["vendor"] == NVIDIA_VENDOR for display in displays)
    shown = len(nvml.get("cards") or [])
    if on_bus <= shown:
        return []
    given = [name for name in ("NVIDIA_VISIBLE_DEVICES", "SLURM_JOB_GPUS") if environment.get(name)]
    reason = (
        ", ".join(f"{name}={environment[name]}" for name in given) or "the container, the batch system or the driver"
    )
    return [f"{on_bus - shown} of {on_bus} NVIDIA card(s) of the machine are hidden from this process ({reason})"]
