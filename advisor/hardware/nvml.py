"""NVML behind one module: every answer in plain units, and None or nothing where there is no NVML.

Bytes are bytes, link rates bytes/s, clocks MHz. An answer that the card does not give (NVML's "not supported", as for
memory on machines with one pool) is None.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def _library() -> tuple[Any, str | None]:
    """pynvml, initialised, and None; or None and why not."""
    try:
        import pynvml
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except (OSError, pynvml.NVMLError) as error:
        return None, str(error)
    return pynvml, None


def used_bytes() -> list[int]:
    """Used bytes of every card, in NVML's order; empty without NVML."""
    nvml, _ = _library()
    if nvml is None:
        return []
    return [
        int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(index)).used)
        for index in range(nvml.nvmlDeviceGetCount())
    ]


def used_bytes_of(uuid: str) -> int | None:
    """Used bytes of the card (or MIG slice) ``uuid``; None without NVML or where the card does not say."""
    nvml, _ = _library()
    if nvml is None:
        return None
    handle = _ask(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid)
    memory = None if handle is None else _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else int(memory.used)


def read_all() -> dict[str, Any]:
    """Driver, cards and peer access as JSON; ``error`` says why there is nothing."""
    nvml, error = _library()
    if nvml is None:
        return {"error": error, "cards": []}
    count = _ask(nvml, nvml.nvmlDeviceGetCount) or 0
    handles = [_ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    return {
        "error": None,
        "driver": _text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)),
        "cuda": _ask(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2),
        "cards": [_card(nvml, handle, index) for index, handle in enumerate(handles) if handle is not None],
        "peers": _peers(nvml, handles, nvml.NVML_P2P_CAPS_INDEX_READ),
        "bridged": _peers(nvml, handles, nvml.NVML_P2P_CAPS_INDEX_NVLINK),
    }


def _ask(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (nvml.NVMLError, UnicodeDecodeError):  # a process of another container can have a name that is no text
        return None


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _card(nvml: Any, handle: Any, index: int) -> dict[str, Any]:
    def ask(name: str, *arguments: Any) -> Any:
        return _ask(nvml, getattr(nvml, name), handle, *arguments)

    capability, pci, ecc, mig = (
        ask("nvmlDeviceGetCudaComputeCapability"), ask("nvmlDeviceGetPciInfo"), ask("nvmlDeviceGetEccMode"),
        ask("nvmlDeviceGetMigMode"),
    )  # fmt: skip
    return {
        "index": index,
        "name": _text(ask("nvmlDeviceGetName")),
        "uuid": _text(ask("nvmlDeviceGetUUID")),
        "bus_id": _text(pci.busId) if pci else None,
        "capability": ".".join(map(str, capability)) if capability else None,
        "memory": _memory(ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetMemoryInfo", nvml.nvmlMemory_v2)),
        "persistence": _flag(ask("nvmlDeviceGetPersistenceMode")),
        "ecc": bool(ecc[0]) if ecc else None,
        "mig": bool(mig and mig[0]),
        "slices": _slices(nvml, handle) if mig and mig[0] else [],
        "processes": _processes(nvml, handle),
        "cores": ask("nvmlDeviceGetNumGpuCores"),
        "clock": ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        "pcie": {
            "generation": ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            "width": ask("nvmlDeviceGetCurrPcieLinkWidth"),
            "max_generation": ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            "max_width": ask("nvmlDeviceGetMaxPcieLinkWidth"),
        },
        "nvlink": _nvlink(nvml, handle),
    }


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _memory(info: Any, split: Any = None) -> dict[str, int | None] | None:
    """Total, free, used; and of the used what the driver keeps for itself, which drivers since 510 tell apart."""
    if info is None:
        return None
    reserved = None if split is None else int(split.reserved)
    return {"total": int(info.total), "free": int(info.free), "used": int(info.used), "reserved": reserved}


def _slices(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    slices = []
    for index in range(_ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part is None:
            continue
        slices.append(
            {
                "name": _text(_ask(nvml, nvml.nvmlDeviceGetName, part)),
                "uuid": _text(_ask(nvml, nvml.nvmlDeviceGetUUID, part)),
                "memory": _memory(_ask(nvml, nvml.nvmlDeviceGetMemoryInfo, part)),
                "gpu_instance": _ask(nvml, nvml.nvmlDeviceGetGpuInstanceId, part),
                "compute_instance": _ask(nvml, nvml.nvmlDeviceGetComputeInstanceId, part),
            }
        )
    return slices


def _processes(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    """Who holds memory: programs of CUDA and of graphics, this process left out."""
    running = {
        item.pid: item
        for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses)
        for item in _ask(nvml, ask, handle) or []
        if item.pid != os.getpid()
    }
    found = []
    for item in running.values():
        # The path may name a user: the program's own name is enough.
        name = _program(_text(_ask(nvml, nvml.nvmlSystemGetProcessName, item.pid)))
        found.append({"pid": item.pid, "name": name, "memory": item.usedGpuMemory, "seconds": _age(item.pid, name)})
    return found


def _program(path: str | None) -> str | None:
    return path.split(" ")[0].rpartition("/")[2] or None if path else None


def _age(pid: int, name: str | None) -> float | None:
    """Seconds since the process began. None for one of another container, whose number may be another's here."""
    import psutil

    try:
        process = psutil.Process(pid)
        # The kernel cuts names at 15 characters.
        return round(time.time() - process.create_time(), 1) if name and process.name()[:15] == name[:15] else None
    except psutil.Error:
        return None


def _nvlink(nvml: Any, handle: Any) -> dict[str, Any]:
    """Active links, and one link's rate in bytes/s, one direction (NVML states MB/s)."""
    states = [_ask(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(nvml.NVML_NVLINK_MAX_LINKS)]
    active = sum(state == nvml.NVML_FEATURE_ENABLED for state in states)
    rate = None
    if active:
        values = _ask(nvml, nvml.nvmlDeviceGetFieldValues, handle, [nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON])
        if values and values[0].nvmlReturn == nvml.NVML_SUCCESS:
            rate = int(values[0].value.uiVal) * 10**6
    return {"links": active, "rate": rate}


def _peers(nvml: Any, handles: list[Any], ability: int) -> dict[str, int | None]:
    """Status of an ability between two cards, "0-1": NVML_P2P_STATUS_* (0 is ok); None where NVML does not say."""
    return {
        f"{left}-{right}": _ask(nvml, nvml.nvmlDeviceGetP2PStatus, handles[left], handles[right], ability)
        for left in range(len(handles))
        for right in range(len(handles))
        if left != right and handles[left] is not None and handles[right] is not None
    }
