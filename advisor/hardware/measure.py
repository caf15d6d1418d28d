"""Short real tests of a machine, each in child processes with a time limit: ``advisor probe --measure``.

torch is imported in the children alone. Each child leads its own session, so that the whole group can be ended, and
asks the kernel to die with its parent.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.hardware.profile import HardwareProfile, Measured

MARK = "ADVISOR-MEASURED "  # libraries may print, too


@dataclass(frozen=True)
class Trial:
    """One child: its name in ``measure_child``, what the user reads, its limit in seconds."""

    name: str
    label: str
    limit: float


CARD = Trial("card", "one card: context, copies, matrix products", 60)
GROUP = Trial("group", "all cards: NCCL and all-reduce", 60)
HOST = Trial("host", "host memory", 20)
DISK = Trial("disk", "disk", 20)


def measure(
    machine: HardwareProfile, folder: Path, progress: Callable[[str, int, int], None] = lambda label, done, total: None
) -> tuple[Measured, tuple[str, ...]]:
    """Measured rates, and a note for each test that failed. ``progress`` gets (label, done, total)."""
    tests = [DISK, HOST]
    if any(card.vendor == "nvidia" for card in machine.cards):
        tests.append(CARD)
        if len(machine.cards) > 1 and not any(card.mig for card in machine.cards):
            tests.append(GROUP)
    found: dict[str, Any] = {}
    notes: list[str] = []
    arguments = json.dumps(
        {
            "cards": len(machine.cards),
            "uuids": [uuid for card in machine.cards for uuid in card.uuids],
            "folder": str(folder),
            "memory": machine.host.memory_available,
        }
    )
    for done, test in enumerate(tests):
        progress(test.label, done, len(tests))
        result, problem = run_child(test, arguments)
        found |= result
        if problem:
            notes.append(f"measuring {test.label}: {problem}")
    progress("done", len(tests), len(tests))
    method = "advisor probe --measure: " + "; ".join(test.label for test in tests)
    return Measured(date=datetime.date.today().isoformat(), method=method, **found), tuple(notes)


def with_measured(machine: HardwareProfile, found: Measured, notes: tuple[str, ...]) -> HardwareProfile:
    """The machine with what was measured; numbers that it had no value for at all are filled in, too."""
    changes: dict[str, Any] = {"measured": found, "notes": (*machine.notes, *notes)}
    sources = dict(machine.sources)
    if machine.host.memory_bandwidth is None and found.host_memory_bandwidth is not None:
        changes["host"] = machine.host.model_copy(update={"memory_bandwidth": found.host_memory_bandwidth})
        sources["host.memory_bandwidth"] = f"measured {found.date}"
    if machine.disk.write is None and found.disk_write is not None:
        changes["disk"] = machine.disk.model_copy(update={"write": found.disk_write})
        sources["disk.write"] = f"measured {found.date}"
    return machine.model_copy(update={**changes, "sources": sources})


def run_child(test: Trial, arguments: str) -> tuple[dict[str, Any], str | None]:
    """What a child measured until it ended or its time was up, and what went wrong."""
    child = subprocess.Popen(
        [sys.executable, "-m", "advisor.hardware.measure_child", test.name, arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "ADVISOR_PARENT": str(os.getpid())},
    )
    try:
        out, err = child.communicate(timeout=test.limit)
        problem = None if child.returncode == 0 else _last_line(err) or f"ended with {child.returncode}"
    except subprocess.TimeoutExpired:
        _end(child)
        out, _ = child.communicate()
        problem = f"no end after {test.limit:g} s"
    except BaseException:
        _end(child)
        raise
    found: dict[str, Any] = {}
    for line in out.splitlines():
        if line.startswith(MARK):
            found |= json.loads(line.removeprefix(MARK))
    return found, problem


def _end(child: subprocess.Popen[str]) -> None:
    """Kill the child's whole session: its ranks sit in it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.wait()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
