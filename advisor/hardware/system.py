"""What the operating system and the installed packages say; JSON-ready, in bytes. Nothing is imported, but psutil where
the system is no Linux."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch", "transformers", "accelerate", "deepspeed", "bitsandbytes", "flash-attn", "peft", "trl", "datasets",
    "safetensors", "triton", "tokenizers", "nvidia-ml-py", "ninja", "numpy", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip

# "torch-2.11.0+cu130.dist-info", "numpy-1.26.4-py3.11.egg-info"
_METADATA = re.compile(r"(.+?)-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info")


def read_system(place: Path) -> dict[str, Any]:
    """Platform, memory, cores, limits, and the disk under ``place`` (free bytes, whether O_DIRECT opens)."""
    return {
        "platform": sys.platform,
        "machine": platform.machine(),
        "node": platform.node(),
        "python": platform.python_version(),
        **_memory(),
        "cpus": os.cpu_count(),
        "affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "limits": _limits(),
        "shm": _space(Path("/dev/shm")),
        "disk": {"path": str(place), **(_space(place) or {}), "device": _device(place), "o_direct": _o_direct(place)},
        "libaio": _has_library("aio"),
        "libaio_header": any(Path(folder, "libaio.h").is_file() for folder in ("/usr/include", "/usr/local/include")),
        "compiler": any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", "g++")),
        "ninja": shutil.which("ninja") is not None,
        "torch_version_file": _package_file("torch", "version.py"),
        "deepspeed_ops_file": _package_file("deepspeed", "git_version_info_installed.py"),
        "built_ops": _built_ops(),
    }


def _memory() -> dict[str, int]:
    """Total and available memory where the system has no /proc/meminfo, which says it better."""
    if sys.platform == "linux":
        return {}
    import psutil

    memory = psutil.virtual_memory()
    return {"memory_total": memory.total, "memory_available": memory.available}


def read_packages() -> dict[str, str]:
    """Installed versions of the libraries that matter, by the names of their metadata folders: reading the metadata
    itself would take longer than all the rest of a probe."""
    found: dict[str, str] = {}
    for folder in sys.path:  # the first that has a package is the one that Python would import
        try:
            names = [entry.name for entry in Path(folder or ".").iterdir()]
        except OSError:
            continue
        for match in map(_METADATA.fullmatch, names):
            if match:
                found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])
    return {name: found[name] for name in PACKAGES if name in found}


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


def _package_file(package: str, name: str) -> str | None:
    """A file of an installed package as text, without importing it: torch/version.py names the CUDA of the build, and
    importing torch takes seconds."""
    found = importlib.util.find_spec(package)  # a top-level name: nothing is imported
    if found is None or found.origin is None:
        return None
    try:
        return (Path(found.origin).parent / name).read_text(encoding="utf-8")
    except OSError:
        return None


def _built_ops() -> dict[str, list[str]]:
    """DeepSpeed's operators that torch has compiled here before, by the folder of their Python and CUDA."""
    base = os.environ.get("TORCH_EXTENSIONS_DIR")
    roots = [Path(base)] if base else list((Path.home() / ".cache" / "torch_extensions").glob("*"))
    found = {root.name: sorted(op.parent.name for op in root.glob("*/*.so")) for root in roots}
    return {name: ops for name, ops in found.items() if ops}
