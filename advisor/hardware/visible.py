"""Which devices a CUDA program will see, and in which order: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER and MIG.

CUDA reads the list from left to right and stops at the first entry that names no device. Without CUDA_DEVICE_ORDER the
fastest card comes first, while NVML and nvidia-smi count by PCI bus. A process can use one MIG instance only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Card = TypeVar("Card")


@dataclass
class Visible:
    """Devices in CUDA's order (raw NVML answers; a MIG slice has the key "parent"), and what was strange."""

    devices: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def visible_devices(cards: list[dict[str, Any]], environment: dict[str, str]) -> Visible:
    """``cards`` as NVML lists them, as CUDA will show them to a program."""
    result = Visible()
    by_bus = sorted(cards, key=lambda card: (card.get("bus_id") or "", card["index"]))
    order = environment.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    ordered = by_bus if order == "PCI_BUS_ID" else sorted(by_bus, key=_speed, reverse=True)
    if order != "PCI_BUS_ID" and [card["index"] for card in ordered] != [card["index"] for card in by_bus]:
        result.notes.append(
            "CUDA lists the fastest card first, nvidia-smi by PCI bus: the numbers differ here; "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID to make them agree"
        )
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    chosen = _all(ordered) if wanted is None else _chosen(wanted, ordered, result.notes)
    slices = [device for device in chosen if "parent" in device]
    if slices and len(chosen) > 1:
        result.notes.append(
            f"a process can use one MIG instance only: {len(chosen) - 1} more device(s) are not counted"
        )
        chosen = slices[:1]
    if slices:
        result.notes.append("MIG instance: plans of one process only (NCCL over MIG instances is not supported)")
    hidden = len(cards) - len({device.get("parent", device["index"]) for device in chosen})
    if hidden > 0:
        reason = f"CUDA_VISIBLE_DEVICES={wanted}" if wanted is not None else "MIG"
        result.notes.append(f"{hidden} of {len(cards)} card(s) are hidden from CUDA ({reason})")
    result.devices = chosen
    return result


def _speed(card: dict[str, Any]) -> float:
    """Cores times clock, a stand-in for CUDA's own heuristic; equal cards keep the bus order."""
    return float((card.get("cores") or 0) * (card.get("clock") or 0))


def _all(cards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without a list: whole cards; a card in MIG mode shows its first instance, and none while it has none."""
    shown = []
    for card in cards:
        if card.get("mig"):
            shown += [_slice(card, part) for part in card["slices"][:1]]
        else:
            shown.append(card)
    return shown


def _slice(card: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    return {**card, **part, "name": part.get("name") or card["name"], "parent": card["index"], "processes": []}


def _chosen(wanted: str, cards: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    chosen: list[dict[str, Any]] = []
    tokens = [token.strip() for token in wanted.split(",")] if wanted.strip() else []
    for token in tokens:
        device = _find(token, cards)
        if device is None:
            if token not in ("-1", "NoDevFiles"):
                notes.append(f"CUDA_VISIBLE_DEVICES names {token!r}, which is no device here: CUDA stops reading there")
            break
        if any(device.get("uuid") == other.get("uuid") for other in chosen):
            notes.append(f"CUDA_VISIBLE_DEVICES names {token!r} twice: CUDA then shows no device")
            return []
        chosen.append(device)
    if any(not token.lstrip("-").isdigit() for token in tokens[: len(chosen)]):
        notes.append(
            "CUDA_VISIBLE_DEVICES holds UUIDs: the deepspeed launcher reads numbers only; use torchrun or accelerate, "
            "or numbers with CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return chosen


def _find(token: str, cards: list[dict[str, Any]]) -> dict[str, Any] | None:
    if token.isdigit():
        shown = _all(cards)
        return shown[int(token)] if int(token) < len(shown) else None
    slices = [_slice(card, part) for card in cards for part in card.get("slices") or []]
    if token.startswith("MIG-GPU-"):  # drivers before 470: MIG-GPU-<uuid>/<gpu instance>/<compute instance>
        name, _, rest = token.removeprefix("MIG-").partition("/")
        matches = [
            device for device in slices
            if cards_uuid(cards, device["parent"]) == name
            and f"{device.get('gpu_instance')}/{device.get('compute_instance')}" == rest
        ]  # fmt: skip
    elif token.startswith("MIG-"):
        matches = [device for device in slices if (device.get("uuid") or "").startswith(token)]
    elif token.startswith("GPU-"):
        matches = [card for card in cards if (card.get("uuid") or "").startswith(token)]
        matches = _all(matches)
    else:
        matches = []
    # A prefix is enough as long as it is unique.
    return matches[0] if len(matches) == 1 else None


def cards_uuid(cards: list[dict[str, Any]], index: int) -> str | None:
    """UUID of the card with NVML's ``index``."""
    return next((card.get("uuid") for card in cards if card["index"] == index), None)


def chosen_by_number(wanted: str, cards: Sequence[Card]) -> list[Card]:
    """AMD's form of the list: numbers, read up to the first that names no card."""
    chosen: list[Card] = []
    for token in (part.strip() for part in wanted.split(",")):
        if not token.isdigit() or int(token) >= len(cards):
            break
        chosen.append(cards[int(token)])
    return chosen
