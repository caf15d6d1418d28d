"""Raw readings of a machine behind one small interface, so that a probe can be recorded and replayed.

A reading is a question (a kind and its arguments) and a JSON answer; None means that there was none. ``Live`` asks the
machine, ``Recorder`` keeps what it answered, ``Replay`` answers from such a record. No answer carries a secret: of the
environment only the named variables are read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from advisor.errors import InputError
from advisor.files import read_json, write_whole

FILE = "readings.json"
VERSION = 1

# The only variables that a probe looks at (and that a record contains).
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU",
    "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "PBS_JOBID", "LSB_JOBID", "CUDA_HOME",
    "CUDA_PATH", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_CUMEM_HOST_ENABLE",
)  # fmt: skip


class Readings(Protocol):
    """Answers to a probe's questions."""

    def ask(self, kind: str, *key: str) -> Any:
        """The JSON answer, None when there is none."""


class Live:
    """This machine. ``ahead`` names questions that wait for others (a driver, a program): they are asked at once, each
    in a thread of its own, while the caller does something else."""

    def __init__(self, *ahead: tuple[str, ...]) -> None:
        pool = ThreadPoolExecutor(max_workers=len(ahead)) if ahead else None
        self._ahead = {question: pool.submit(self._answer, *question) for question in ahead} if pool else {}

    def ask(self, kind: str, *key: str) -> Any:
        pending = self._ahead.pop((kind, *key), None)
        return self._answer(kind, *key) if pending is None else pending.result()

    def _answer(self, kind: str, *key: str) -> Any:
        if kind == "text":
            return _text(Path(key[0]))
        if kind == "names":
            return _names(Path(key[0]))
        if kind == "mounts":  # only the lines about control groups: the rest is nobody's business
            lines = (_text(Path("/proc/self/mountinfo")) or "").splitlines()
            return [line for line in lines if " - cgroup" in line]
        if kind == "filesystem":  # by "major:minor"
            return _filesystem(key[0])
        if kind == "device":  # "major:minor" below a path
            return _device(Path(key[0]))
        if kind == "displays":
            return _displays()
        if kind == "torch":
            return _torch()
        if kind == "link":
            return _link(Path(key[0]))
        if kind == "command":
            return _command(key)
        if kind == "environment":
            return {name: os.environ[name] for name in VARIABLES if name in os.environ}
        if kind == "nvml":
            from advisor.hardware.nvml import read_all

            return read_all()
        if kind == "system":
            from advisor.hardware.system import read_system

            return read_system(Path(key[0]))
        if kind == "packages":
            from advisor.hardware.system import read_packages

            return read_packages()
        raise ValueError(f"no reading of kind {kind!r}")


class Recorder:
    """Another's answers, kept."""

    def __init__(self, source: Readings) -> None:
        self._source, self._answers = source, dict[str, Any]()

    def ask(self, kind: str, *key: str) -> Any:
        answer = self._source.ask(kind, *key)
        self._answers[" ".join((kind, *key))] = answer
        return answer

    def save(self, folder: Path, origin: str) -> None:
        """Write the record into ``folder``; ``origin`` says where it comes from. Raises InputError when it cannot."""
        value = {"version": VERSION, "origin": origin, "readings": _anonymous(self._answers)}
        write_whole(folder / FILE, json.dumps(value, indent=1, sort_keys=True) + "\n")


def _anonymous(answers: dict[str, Any]) -> dict[str, Any]:
    """A record is made to be handed on: the machine's own name and its cards' numbers stay at home.

    A card's UUID becomes one that counts, everywhere in the record (a variable may name it); MIG's forms hold it, too.
    """
    text = json.dumps(answers)
    for number, found in enumerate(dict.fromkeys(re.findall(r"(?:GPU|MIG)-([0-9a-f]{8}-[0-9a-f-]{27})", text))):
        text = text.replace(found, f"{number:08x}-0000-0000-0000-000000000000")
    kept: dict[str, Any] = json.loads(text)
    for question, answer in kept.items():
        if question.startswith("system ") and answer:
            answer["node"] = None
    return kept


class Replay:
    """Answers of a record; a question that was not asked then has no answer."""

    def __init__(self, answers: dict[str, Any], origin: str = "") -> None:
        self._answers, self.origin = answers, origin

    @classmethod
    def load(cls, folder: Path) -> Replay:
        """The record in ``folder``. Raises InputError when it is missing, broken or of another version."""
        path = folder if folder.is_file() else folder / FILE
        value = read_json(path)
        if not isinstance(value, dict) or not isinstance(value.get("readings"), dict):
            raise InputError(str(path), "is no recorded probe", expected="a file that `advisor probe --record` wrote")
        if value.get("version") != VERSION:
            raise InputError(
                str(path), "has another version", field="version", found=value.get("version"), expected=str(VERSION)
            )
        return cls(value["readings"], str(value.get("origin", "")))

    def ask(self, kind: str, *key: str) -> Any:
        return self._answers.get(" ".join((kind, *key)))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _names(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in path.iterdir())
    except OSError:
        return []


def _filesystem(number: str) -> dict[str, str] | None:
    """Type and source of the file system with this device number."""
    for line in (_text(Path("/proc/self/mountinfo")) or "").splitlines():
        before, _, after = line.partition(" - ")
        fields = after.split()
        if number in before.split()[:3] and len(fields) > 1:
            return {"type": fields[0], "source": fields[1]}
    return None


def _device(path: Path) -> str | None:
    try:
        number = path.stat().st_dev
    except OSError:
        return None
    return f"{os.major(number)}:{os.minor(number)}"


def _displays() -> list[dict[str, str]]:
    """Display and compute cards on the PCI bus (class 03): what the machine has, whatever a container shows of it."""
    found = []
    for place in sorted(Path("/sys/bus/pci/devices").glob("*")):
        if (_text(place / "class") or "").startswith("0x03"):
            found.append({"bus_id": place.name, "vendor": (_text(place / "vendor") or "").strip()})
    return found


def _torch() -> dict[str, Any] | None:
    """What a process of its own sees through torch; None when that fails or takes a minute."""
    command = [sys.executable, "-m", "advisor.hardware.torch_child"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    answer: dict[str, Any] | None = json.loads(lines[-1]) if done.returncode == 0 and lines else None
    return answer


def _link(path: Path) -> str | None:
    """Where a link leads in the end, as sysfs tells a device's place; None when nothing is there."""
    try:
        return str(path.resolve(strict=True))
    except OSError:
        return None


def _command(argv: tuple[str, ...]) -> str | None:
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
