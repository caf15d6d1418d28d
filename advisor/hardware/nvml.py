"""NVML behind one module: every answer in plain units, and None or nothing where there is no NVML."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _library() -> Any:
    """pynvml, initialised; None when the driver or the library is not there."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except (ImportError, OSError):
        return None
    except pynvml.NVMLError:
        return None
    return pynvml


def used_bytes() -> list[int]:
    """Used bytes of every card, in NVML's order; empty without NVML."""
    nvml = _library()
    if nvml is None:
        return []
    return [
        int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(index)).used)
        for index in range(nvml.nvmlDeviceGetCount())
    ]
