"""Several machines: DeepSpeed's hostfile by a stand-in for ssh, and what srun prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.advise import recommend
from advisor.ask import ask
from advisor.errors import InputError, RunError
from advisor.hardware.merge import join, probe_hosts, read_hostfile
from advisor.hardware.probe import probe
from advisor.hardware.profile import HardwareProfile, Measured
from tests.hardware.traps import GIB, card, readings

MEASURED = Measured(date="2026-12-01", method="by hand", host_to_gpu=50e9, context_bytes=700, nccl_bytes=300)


def node(name: str, cards: int = 2, **more: Any) -> HardwareProfile:
    total = more.pop("total", 80 * GIB)
    return probe(readings(tuple(card(index, total=total) for index in range(cards)), node=name, **more))


def stand_in(folder: Path, answers: dict[str, HardwareProfile]) -> None:
    """An ``ssh`` that knows the hosts of ``answers``, checks how it is called, and lets the others be out of reach."""
    for name, profile in answers.items():
        (folder / f"{name}.json").write_text(profile.model_dump_json())
    script = f"""#!{sys.executable}
import pathlib, sys
host, command = sys.argv[-2:]
assert "BatchMode=yes" in sys.argv and "advisor probe --json" in command, sys.argv
answer = pathlib.Path({str(folder)!r}) / (host + ".json")
if not answer.exists():
    sys.exit("ssh: connect to host " + host + ": No route to host")
print(answer.read_text())
"""
    (folder / "ssh").write_text(script)
    (folder / "ssh").chmod(0o755)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "advisor", "probe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_hostfile(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# two\nworker-1 slots=8\nworker-2 slots=4 # small\n")
    assert read_hostfile(file) == [("worker-1", 8), ("worker-2", 4)]
    for wrong in ("worker-1\n", "-oProxyCommand=x slots=1\n", "a slots=1\na slots=1\n", "a slots=0\n", ""):
        file.write_text(wrong)
        with pytest.raises(InputError):
            read_hostfile(file)


def test_probe_of_a_hostfile(tmp_path: Path) -> None:
    stand_in(tmp_path, {"worker-1": node("n1", 4), "worker-2": node("n2", 2, available=32 * GIB, driver="570.1")})
    hosts = tmp_path / "hosts"
    hosts.write_text("worker-1 slots=2\nworker-2 slots=2\n")
    shown = run(tmp_path, "--hostfile", str(hosts), "--save", str(tmp_path / "joined.json"))
    assert shown.returncode == 0, shown.stderr
    assert "driver differs: worker-1 580.65, worker-2 570.1" in " ".join(shown.stdout.split())
    joined = json.loads((tmp_path / "joined.json").read_text())
    # Slots are cards that the job may use: two of the first host's four.
    assert (joined["nodes"], len(joined["gpus"]), joined["name"]) == (2, 2, "joined")
    assert joined["host"]["memory_available"] == 32 * GIB


def test_a_host_out_of_reach_and_more_slots_than_cards(tmp_path: Path) -> None:
    stand_in(tmp_path, {"worker-1": node("n1")})
    hosts = tmp_path / "hosts"
    hosts.write_text("worker-1 slots=2\ndead slots=2\n")
    failed = run(tmp_path, "--hostfile", str(hosts))
    assert failed.returncode not in (0, 2) and "dead" in failed.stderr and "No route to host" in failed.stderr
    assert "Traceback" not in failed.stderr
    hosts.write_text("worker-1 slots=8\n")
    failed = run(tmp_path, "--hostfile", str(hosts))
    assert failed.returncode == 2 and "worker-1 more slots than it shows GPUs" in failed.stderr


def test_hosts_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, {"worker-1": node("a"), "worker-2": node("b")})
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    nodes = probe_hosts([("worker-2", 2), ("worker-1", 1)])
    assert [(each.name, len(each.cards)) for each in nodes] == [("worker-2", 2), ("worker-1", 1)]
    with pytest.raises(RunError, match=r"dead.*No route to host"):
        probe_hosts([("dead", 1)])


@pytest.mark.parametrize("way", ["stdin", "files"])
def test_merge_reads_what_srun_prints(tmp_path: Path, way: str) -> None:
    nodes = [node("n1", available=64 * GIB), node("n2", available=48 * GIB)]
    texts = [each.model_dump_json() for each in nodes]
    files = [tmp_path / f"{index}.json" for index in range(2)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    named = [str(file) for file in files] if way == "files" else []
    command = [sys.executable, "-m", "advisor", "probe", "--merge", "--json", *named]
    done = subprocess.run(command, input="\n".join(texts), capture_output=True, text=True, check=True)
    joined = json.loads(done.stdout)
    assert (joined["nodes"], joined["host"]["memory_available"]) == (2, 48 * GIB)
    # Each calls itself "this machine": the node's own name tells them apart.
    assert joined["description"] == "joined from n1, n2"


def test_the_weakest_of_everything() -> None:
    left = node("n1", 2, available=64 * GIB).model_copy(update={"measured": MEASURED})
    right = probe(
        readings(
            (card(0, "Tesla V100-SXM2-32GB", 32 * GIB, capability="7.0"),), node="n2", available=32 * GIB, driver="570.1",
            limits={"memlock": 64 << 10},
        )
    ).model_copy(update={"measured": MEASURED.model_copy(update={"host_to_gpu": 12e9, "nccl_bytes": 900})})  # fmt: skip
    joined = join([left, right])
    assert (joined.nodes, joined.gpu_count, joined.capacities) == (2, 2, (32 * GIB,))
    # Its name and capability are the weaker card's, too: a V100 among others makes all compute in fp16.
    assert (joined.cards[0].name, joined.cards[0].has_bf16) == ("Tesla V100-SXM2-32GB", False)
    assert (joined.host.memory_available, joined.host.pinned_limit) == (32 * GIB, 64 << 10)
    assert joined.measured is not None
    assert (joined.measured.host_to_gpu, joined.measured.nccl_bytes) == (12e9, 900)
    told = [note.split(" differs")[0] for note in joined.notes if " differs: " in note]
    assert {"GPUs", "GPU memory", "host memory", "driver"} <= set(told)
    unmeasured = join([left, right.model_copy(update={"measured": None})])
    assert unmeasured.measured is None


def test_a_plan_for_unequal_nodes_fits_the_weakest() -> None:
    large, small = node("n1", 1, total=80 * GIB), node("n2", 1, total=16 * GIB)
    question = ask("gpt2", "finetune", hardware="h200", seq_len=128)
    plans = [recommend(question.model, join([large, other]), question.workload).plan for other in (large, small)]
    assert all(plan is not None for plan in plans)
    for plan, most in zip(plans, (80, 16), strict=True):
        assert plan is not None
        assert all(gpu.required + gpu.runtime <= most * GIB for gpu in plan.steps[0].promise.gpus)
    assert plans[1] is not None and plans[1].hardware.capacities == (16 * GIB,)
