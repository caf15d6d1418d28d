"""Several nodes: by a Slurm script (run here with stand-ins for Slurm's programs) and by hostfile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.execute.apply import dry_run
from advisor.execute.arguments import as_arguments
from advisor.execute.launchers import with_launcher
from advisor.execute.options import Options
from advisor.execute.slurm import batch_script, submit, write_batch_script
from advisor.plan import Plan, Promise, PromisedGpu, write_plan
from tests.execute.plans import finetune, plan_of

_PROGRAMS = {
    "scontrol": "echo localhost\n",
    # As srun does: the same command once a node, and all are ended when one fails.
    "srun": 'shift\nfor node in 0 1; do SLURM_NODEID=$node "$@" > "$NODES/$node.log" 2>&1 & pids="$pids $!"; done\n'
    "for pid in $pids; do wait $pid || exit 1; done\n",
    "sbatch": 'echo "Submitted batch job 7"\n',
}


def two_nodes() -> Plan:
    gpu = PromisedGpu(parts={}, allocated=1, reserved=1, required=1, runtime=1, load_allocated=1)
    return plan_of(finetune("ddp", nodes=2), promise=Promise(gpus=(gpu,), host_ram=1, host_ram_load=1))


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in _PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("NODES", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-2]")
    return tmp_path


def test_a_written_batch_script_runs_the_plan_on_every_node(slurm: Path) -> None:
    path = slurm / "plan with space.json"
    write_plan(two_nodes(), path)
    script = slurm / "job.sh"
    options = ["--rehearse", "--force", "--output", str(slurm / "out"), "--time-limit", "300", "--slurm", str(script)]
    words = [sys.executable, "-m", "advisor", "apply", str(path), *options]
    environment = {**os.environ, "ADVISOR_DATA_DIR": str(slurm / "data")}
    wrote = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert "Wrote" in wrote.stdout and "Submitted" not in wrote.stdout
    assert "#SBATCH --nodes=2\n" in script.read_text() and "#SBATCH --gpus-per-node=1\n" in script.read_text()
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, check=False)
    logs = [(slurm / f"{node}.log").read_text() for node in (0, 1)]
    assert done.returncode == 0, (done.stderr, logs)
    assert all("The run ended well." in log for log in logs)
    # One record for the run, by the first node.
    assert len((slurm / "data" / "records.jsonl").read_text().splitlines()) == 1
    assert submit(script) == "Submitted batch job 7"


def test_what_goes_into_the_script_is_quoted(tmp_path: Path) -> None:
    evil = "$(touch ran); `touch ran`'\""
    text = batch_script(two_nodes(), tmp_path / "plan.json", as_arguments(Options(prompts=(evil,))), ("train.py", evil))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in {
        "scontrol": "echo n",
        "srun": f'shift; shift; shift; exec {sys.executable} -c "import sys; print(sys.argv[1])" "$1"',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    script = tmp_path / "job.sh"
    write_batch_script(text, script)
    line = subprocess.run(
        ["bash", str(script)], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n"},
    ).stdout.strip()  # fmt: skip
    shown = subprocess.run(
        ["bash", "-c", line.replace("exec ", "printf '%s\\n' ", 1)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines().count(evil) == 2
    assert not (tmp_path / "ran").exists()


def test_a_script_never_replaces_a_file_that_is_none(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    with pytest.raises(InputError, match="left alone"):
        write_batch_script("#SBATCH", other)
    assert other.read_text() == "mine"


def test_a_hostfile_must_fit_the_plan(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    step = plan_of(finetune("zero3", gpus=4, nodes=2)).main
    options = Options(launcher="deepspeed", hostfile=hosts)
    hosts.write_text("one slots=2\ntwo slots=2\n")
    argv = with_launcher(step, options).launch.argv
    assert {"--hostfile={hostfile}", "--num_nodes=2", "--num_gpus=2"} <= set(argv)
    hosts.write_text("one slots=2\n")
    with pytest.raises(InputError, match="2 hosts of 2 slots"):
        with_launcher(step, options)
    with pytest.raises(InputError, match="DeepSpeed"):
        with_launcher(step, Options(launcher="torchrun", hostfile=hosts))


def test_other_nodes_get_the_plans_environment_and_what_is_missing_is_named(tmp_path: Path) -> None:
    plan = plan_of(finetune("zero3", gpus=4, nodes=2))
    path, hosts = tmp_path / "plan.json", tmp_path / "hosts"
    write_plan(plan, path)
    hosts.write_text("one slots=2\ntwo slots=2\n")
    (command,) = dry_run(plan, path, Options(launcher="deepspeed", hostfile=hosts))
    sent = Path(command.environment["DS_ENV_FILE"]).read_text().splitlines()
    assert sent == [
        f"{key}={value}" for key, value in plan.main.launch.environment.items() if key != "CUDA_VISIBLE_DEVICES"
    ]
    with pytest.raises(InputError, match="--master-addr"):
        dry_run(plan, path, Options(launcher="accelerate", node_rank=1))
    (command,) = dry_run(plan, path, Options(launcher="accelerate", node_rank=1, master_addr="one"))
    assert {"--machine_rank=1", "--main_process_ip=one"} <= set(command.argv)
    written = (tmp_path / "plan.files" / "train.accelerate.yaml").read_text()
    assert "main_process_ip: one" in written and "{" not in written
