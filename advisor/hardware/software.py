"""Versions of drivers, libraries and compilers from raw readings; nothing is imported."""

from __future__ import annotations

import re
from typing import Any

from advisor.hardware.profile import Software
from advisor.hardware.readings import Readings

# DeepSpeed's operators that plans may rely on.
CPU_ADAM, ASYNC_IO = "cpu_adam", "async_io"


def nvcc_command(environment: dict[str, str]) -> tuple[str, ...]:
    """How to ask the compiler that torch's extensions would be built with."""
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    return (f"{home}/bin/nvcc" if home else "nvcc", "--version")


def read_software(
    readings: Readings, system: dict[str, Any], nvml: dict[str, Any], environment: dict[str, str]
) -> Software:
    """What is installed; torch's CUDA by its version file, nvcc's by asking it."""
    packages = readings.ask("packages") or {}
    built = _assigned(system.get("torch_version_file"), "cuda")
    nvcc = re.search(r"release ([\d.]+)", readings.ask("command", *nvcc_command(environment)) or "")
    driver_cuda = nvml.get("cuda")
    return Software(
        python=system.get("python"),
        driver=nvml.get("driver"),
        driver_cuda=f"{driver_cuda // 1000}.{driver_cuda % 1000 // 10}" if driver_cuda else None,
        cuda=built,
        rocm=_assigned(system.get("torch_version_file"), "hip"),
        nvcc=nvcc[1] if nvcc else None,
        packages=packages,
        tools={
            "ninja": "ninja" in packages or bool(system.get("ninja")),
            "libaio": bool(system.get("libaio")),
            # Older records did not ask for these two.
            "libaio headers": bool(system.get("libaio_header", system.get("libaio"))),
            "C++ compiler": bool(system.get("compiler", True)),
            CPU_ADAM: _is_built(system, CPU_ADAM, built),
            ASYNC_IO: _is_built(system, ASYNC_IO, built),
        },
    )


def _assigned(text: str | None, name: str) -> str | None:
    """The version in a line such as ``cuda: Optional[str] = '13.0'``."""
    found = re.search(rf"^{name}[^=\n]*=\s*'([\d.]+)", text or "", re.MULTILINE)
    return found[1] if found else None


def _is_built(system: dict[str, Any], op: str, cuda: str | None) -> bool:
    """Whether DeepSpeed was installed with ``op`` compiled, or has compiled it before for this torch."""
    shipped = re.search(rf"'{op}': True", system.get("deepspeed_ops_file") or "")
    suffix = f"_cu{cuda.replace('.', '')}" if cuda else "_cpu"
    before = system.get("built_ops") or {}
    return bool(shipped) or any(op in ops for folder, ops in before.items() if folder.endswith(suffix))


def missing_for_op(software: Software, op: str) -> str | None:
    """What DeepSpeed lacks to run ``op`` with the torch that is installed, in words; None when nothing is lacking.

    An operator that is not there yet is compiled at its first use, by nvcc of torch's CUDA (same major version),
    a C++ compiler and ninja. Nothing can be said of a machine whose software nobody looked at.
    """
    if software.python is None or software.tools.get(op):
        return None
    lacking = []
    if software.cuda is not None:
        if software.nvcc is None:
            lacking.append(f"no nvcc (torch has CUDA {software.cuda})")
        elif software.nvcc.split(".")[0] != software.cuda.split(".")[0]:
            lacking.append(f"nvcc {software.nvcc} does not match torch's CUDA {software.cuda}")
    for tool in ("C++ compiler", "ninja", *(("libaio", "libaio headers") if op == ASYNC_IO else ())):
        if not software.tools.get(tool):
            lacking.append(f"no {tool}")
    return ", ".join(lacking) or None
