"""Measuring children: real tests of disk and memory, a limit that holds, and ssh by a stand-in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from advisor.hardware.load import load_profile
from advisor.hardware.measure import DISK, Trial, run_child, with_measured
from advisor.hardware.probe import probe
from advisor.hardware.profile import Measured
from tests.hardware.traps import card, readings


def arguments(folder: Path) -> str:
    return json.dumps({"cards": 1, "uuids": [], "folder": str(folder), "memory": 1 << 30})


def test_disk_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    found, problem = run_child(DISK, arguments(tmp_path))
    assert problem is None
    assert found["disk_read"] > 0 and found["disk_write"] > 0
    assert not list(tmp_path.iterdir())


def test_a_child_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    found, problem = run_child(Trial("disk", "disk", 0.001), arguments(tmp_path))
    assert found == {}
    assert problem == "no end after 0.001 s"


def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    found, problem = run_child(Trial("disk", "disk", 20), arguments(tmp_path / "missing"))
    assert found == {}
    assert problem is not None and "missing" in problem


def test_measured_values_fill_what_was_unknown() -> None:
    machine = probe(readings((card(0),)))
    found = Measured(date="2026-01-01", method="by hand", host_memory_bandwidth=5e9, disk_write=1e9)
    filled = with_measured(machine, found, ("late",))
    assert (filled.host.memory_bandwidth, filled.disk.write) == (5e9, 1e9)
    assert filled.notes[-1] == "late"
    known = machine.model_copy(update={"host": machine.host.model_copy(update={"memory_bandwidth": 1e9})})
    assert with_measured(known, found, ()).host.memory_bandwidth == 1e9


def test_a_saved_probe_is_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    command = [sys.executable, "-m", "advisor", "probe", "--record", str(tmp_path), "--save"]
    subprocess.run([*command, str(file)], check=True, capture_output=True)
    saved = load_profile(str(file))
    assert (saved.name, saved.here) == ("mine", False)
    refused = subprocess.run([*command, str(tmp_path / "mine.toml")], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "ends in .json" in refused.stderr
