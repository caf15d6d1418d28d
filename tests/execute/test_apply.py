"""Plans of tiny random models run by the real engines on the CPU, and what ends badly."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from plans import finetune, inference, plan_of

from advisor.errors import InputError
from advisor.execute.apply import RefusedError, Result, apply_step
from advisor.execute.guard import RUN_ID
from advisor.execute.options import Hooks, Options
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.plan import PlanLaunch, read_plan, write_plan

HERE = HardwareProfile(name="cpu")


def rehearse(tmp_path: Path, job: Job, hooks: Hooks | None = None, **step: Any) -> Result:
    path = tmp_path / "plan.json"
    write_plan(plan_of(job, **step), path)
    plan = read_plan(path)
    options = Options(rehearse=True, keep_record=False, output=tmp_path / "out", time_limit=900)
    return apply_step(plan, path, plan.steps[0], options, HERE, hooks)


@pytest.mark.parametrize("strategy", ["single", "ddp", "zero2", "zero3"])
def test_training_rehearsal_runs_and_is_measured(tmp_path: Path, strategy: str) -> None:
    result = rehearse(tmp_path, finetune(strategy))
    assert result.outcome.ok, result.outcome
    measured = {line.name: line.measured for line in result.comparison.lines}
    assert measured["step_seconds"] is not None
    assert result.record.strategy.name == strategy


def test_device_map_spills_to_cpu_and_disk_as_planned(tmp_path: Path) -> None:
    places = {
        "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu",
        "lm_head": "cpu", "model.rotary_emb": "cpu",
    }  # fmt: skip
    job = inference("device_map")
    result = rehearse(tmp_path, job, device_map=places, offload_folder=str(tmp_path / "disk"))
    assert result.outcome.ok, result.outcome
    assert any((tmp_path / "disk").iterdir())


def test_a_killed_rank_ends_the_run_and_leaves_no_process(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "start" and event["rank"] == 1:
            killed.append(event["pid"])
            os.kill(event["pid"], signal.SIGKILL)

    result = rehearse(tmp_path, finetune("ddp"), Hooks(on_event=kill))
    assert killed
    assert not result.outcome.ok
    assert result.outcome.ending == "dead_rank"
    assert "rank 1" in result.outcome.sentence
    assert not _left_over()


def _left_over() -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and RUN_ID in process.environ():
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (("bash", "-c", "true", "{script}"), {}),
        (("python", "-c", "print(1)", "{script}"), {}),
        (("python", "{script}"), {"LD_PRELOAD": "evil.so"}),
        (("python", "{script}"), {"PYTHONPATH": "elsewhere"}),
    ],
)
def test_a_plan_cannot_run_code(tmp_path: Path, argv: tuple[str, ...], environment: dict[str, str]) -> None:
    launch = PlanLaunch(launcher="python", argv=argv, environment=environment)
    with pytest.raises(InputError):
        rehearse(tmp_path, finetune(), launch=launch)


def test_a_plan_for_another_machine_is_refused(tmp_path: Path) -> None:
    from advisor.plan import Promise, PromisedGpu

    gpu = PromisedGpu(parts={}, allocated=1, reserved=1, required=1, runtime=1, load_allocated=1)
    promise = Promise(gpus=(gpu,), host_ram=1, host_ram_load=1)
    with pytest.raises(RefusedError, match="1 GPUs"):
        rehearse(tmp_path, finetune(), promise=promise)
