"""Hand-made readings for the traps people meet: no machine gave these, they are built from public reports."""

from __future__ import annotations

from typing import Any

from advisor.hardware.readings import Replay

GIB = 1 << 30


def card(index: int = 0, name: str = "NVIDIA H200", total: int = 143771 << 20, **more: Any) -> dict[str, Any]:
    """One card as NVML answers."""
    return {
        "index": index, "name": name, "uuid": f"GPU-{index}aaa-bbbb", "bus_id": f"0000:{index:02x}:00.0",
        "capability": "9.0", "memory": {"total": total, "free": total, "used": 0}, "ecc": True, "mig": False,
        "slices": [], "processes": [], "cores": 16896, "clock": 1980,
        "pcie": {"generation": 1, "width": 16, "max_generation": 5, "max_width": 16},
        "nvlink": {"links": 0, "rate": None}, **more,
    }  # fmt: skip


def readings(
    cards: tuple[dict[str, Any], ...] = (),
    *,
    files: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    available: int = 64 * GIB,
    shm: int = 8 * GIB,
    shm_free: int | None = None,
    mounts: tuple[str, ...] = (),
    driver: str = "580.65",
    cuda: int = 13000,
    peers: dict[str, int] | None = None,
    bridged: dict[str, int] | None = None,
    error: str | None = None,
    more: dict[str, Any] | None = None,
    **system: Any,
) -> Replay:
    """A whole machine: what is not given is harmless."""
    answers: dict[str, Any] = {
        "system .": {
            "platform": "linux", "machine": "x86_64", "node": "trap", "python": "3.12.3", "memory_total": 2 * available,
            "memory_available": available, "cpus": 16, "affinity": 16, "limits": {},
            "shm": {"total": shm, "free": shm if shm_free is None else shm_free}, "libaio": True, "ninja": True,
            "disk": {"path": ".", "free": 500 * GIB, "device": "259:1", "o_direct": True}, **system,
        },
        "environment": environment or {},
        "nvml": {
            "error": error, "driver": None if error else driver, "cuda": None if error else cuda, "cards": list(cards),
            "peers": peers or {}, "bridged": bridged or {},
        },
        "packages": {},
        "mounts": list(mounts),
        **{f"text {path}": text for path, text in (files or {}).items()},
        **(more or {}),
    }  # fmt: skip
    return Replay(answers, "made by hand")
