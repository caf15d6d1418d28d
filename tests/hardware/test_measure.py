"""Measuring children: real tests of disk and memory, a limit that holds, and ssh by a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from traps import card, readings

from advisor.errors import RunError
from advisor.hardware.load import load_profile
from advisor.hardware.measure import DISK, Trial, run_child, with_measured
from advisor.hardware.merge import probe_hosts
from advisor.hardware.probe import probe
from advisor.hardware.profile import Measured


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


def test_hosts_by_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = tmp_path / "answer.json"
    answer.write_text(probe(readings((card(0), card(1)))).model_dump_json())
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "if 'dead' in sys.argv: sys.exit('no route to host')\n"
        f"print(open({str(answer)!r}).read())\n"
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    nodes = probe_hosts([("worker-1", 2), ("worker-2", 1)])
    assert [(node.name, len(node.cards)) for node in nodes] == [("worker-1", 2), ("worker-2", 1)]
    with pytest.raises(RunError, match=r"dead.*no route to host"):
        probe_hosts([("dead", 1)])


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


def test_merge_reads_what_srun_prints() -> None:
    nodes = [probe(readings((card(0),), available=amount << 30)).model_dump_json() for amount in (64, 48)]
    command = [sys.executable, "-m", "advisor", "probe", "--merge", "--json"]
    done = subprocess.run(command, input="\n".join(nodes), capture_output=True, text=True, check=True)
    joined = json.loads(done.stdout)
    assert joined["nodes"] == 2
    assert joined["host"]["memory_available"] == 48 << 30
