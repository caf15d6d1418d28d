"""Versions of drivers, libraries and compilers from raw readings; nothing is imported."""

from __future__ import annotations

import re
from typing import Any

from advisor.hardware.profile import Software
from advisor.hardware.readings import Readings


def read_software(
    readings: Readings, system: dict[str, Any], nvml: dict[str, Any], environment: dict[str, str]
) -> Software:
    """What is installed; torch's CUDA by its version file, nvcc's by asking it."""
    packages = readings.ask("packages") or {}
    built = re.search(r"^cuda[^=\n]*=\s*'([\d.]+)'", system.get("torch_version_file") or "", re.MULTILINE)
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    said = readings.ask("command", f"{home}/bin/nvcc" if home else "nvcc", "--version")
    nvcc = re.search(r"release ([\d.]+)", said or "")
    return Software(
        python=system.get("python"),
        driver=nvml.get("driver"),
        cuda=built[1] if built else None,
        nvcc=nvcc[1] if nvcc else None,
        packages=packages,
        tools={"ninja": "ninja" in packages, "libaio": bool(system.get("libaio"))},
    )


def can_build_ops(software: Software) -> bool | None:
    """Whether DeepSpeed can compile its CUDA operators: nvcc of torch's CUDA major version, and ninja. None without a
    CUDA build of torch, where the question does not arise."""
    if software.cuda is None:
        return None
    return (
        software.nvcc is not None
        and software.nvcc.split(".")[0] == software.cuda.split(".")[0]
        and software.tools.get("ninja", False)
    )
