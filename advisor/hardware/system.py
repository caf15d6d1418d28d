"""What the operating system and Python's package metadata say; JSON-ready, in bytes. Nothing is imported but psutil."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch", "transformers", "accelerate", "deepspeed", "bitsandbytes", "flash-attn", "peft", "trl", "datasets",
    "safetensors", "triton", "tokenizers", "nvidia-ml-py", "ninja", "numpy",
)  # fmt: skip


def read_system(place: Path) -> dict[str, Any]:
    """Platform, memory, cores, limits, and the disk under ``place`` (free bytes, whether O_DIRECT opens)."""
    import psutil

    memory = psutil.virtual_memory()
    return {
        "platform": sys.platform,
        "machine": platform.machine(),
        "node": platform.node(),
        "python": platform.python_version(),
        "memory_total": memory.total,
        "memory_available": memory.available,
        "cpus": os.cpu_count(),
        "affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "limits": _limits(),
        "shm": _space(Path("/dev/shm")),
        "disk": {"path": str(place), **(_space(place) or {}), "device": _device(place), "o_direct": _o_direct(place)},
        "libaio": _has_library("aio"),
        "torch_version_file": _torch_version(),
        "interfaces": {name: state.speed for name, state in psutil.net_if_stats().items() if state.isup},
    }


def read_packages() -> dict[str, str]:
    """Installed versions of the libraries that matter, from their metadata."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _limits() -> dict[str, int | None]:
    """Soft limits in bytes; None for unlimited."""
    if sys.platform == "win32":
        return {}
    import resource

    names = {"memlock": resource.RLIMIT_MEMLOCK, "address_space": resource.RLIMIT_AS}
    limits = {name: resource.getrlimit(which)[0] for name, which in names.items()}
    return {name: None if value == resource.RLIM_INFINITY else value for name, value in limits.items()}


def _space(path: Path) -> dict[str, int] | None:
    try:
        state = os.statvfs(path)
    except OSError:
        return None
    return {"total": state.f_blocks * state.f_frsize, "free": state.f_bavail * state.f_frsize}


def _device(path: Path) -> str | None:
    """ "major:minor" of the device under ``path``."""
    try:
        number = path.stat().st_dev
    except OSError:
        return None
    return f"{os.major(number)}:{os.minor(number)}"


def _o_direct(folder: Path) -> bool | None:
    """Whether a file in ``folder`` opens with O_DIRECT (tmpfs and some network disks refuse); None when unknown."""
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        return False
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".advisor-probe-") as file:
            os.close(os.open(file.name, os.O_RDONLY | flag))
    except PermissionError:
        return None
    except OSError:
        return False
    return True


def _has_library(name: str) -> bool:
    """Whether the loader knows ``lib<name>``, looked up without a compiler (ctypes.util may start one)."""
    import ctypes

    for candidate in (f"lib{name}.so.1", f"lib{name}.so", f"lib{name}.so.1t64"):
        try:
            ctypes.CDLL(candidate)
        except OSError:
            continue
        return True
    return False


def _torch_version() -> str | None:
    """torch/version.py as text: it names the CUDA or ROCm of the build, and importing torch takes seconds."""
    try:
        files = metadata.files("torch") or ()
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if str(file) == "torch/version.py":
            try:
                return Path(str(file.locate())).read_text(encoding="utf-8")
            except OSError:
                return None
    return None
