"""Runs that end badly, and plans that must not start: what is said, and that no process stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor.execute.apply import RefusedError, Result
from advisor.execute.options import Hooks, Options
from advisor.execute.phases import apply_plan, offer
from advisor.execute.worker.main import _cause
from advisor.plan import PlanLaunch, Promise, PromisedGpu, read_plan, write_plan
from tests.execute.plans import finetune, inference, plan_of
from tests.execute.running import HERE, apply, left_over, rehearse


def script(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "script.py"
    path.write_text(text)
    return (str(path),)


def test_a_killed_rank_is_named_and_leaves_no_process(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "ready" and event["rank"] == 1:
            killed.append(event["rank"])
            os.kill(pids[1], signal.SIGKILL)
        if event["event"] == "start":
            pids[event["rank"]] = event["pid"]

    pids: dict[int, int] = {}
    result = apply(tmp_path, finetune("ddp"), Hooks(on_event=kill), options={"rehearse": True, "steps": 100_000})
    assert killed == [1]
    assert result.outcome.ending == "dead_rank"
    assert "rank 1" in result.outcome.sentence
    assert result.record.measured.outcome == "failed"
    assert not left_over()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_interrupting_or_killing_the_command_leaves_no_process(tmp_path: Path, how: int, code: int) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan_of(finetune("ddp")), path)
    log = tmp_path / "log.jsonl"
    words = [sys.executable, "-m", "advisor", "apply", str(path), "--force", "--log", str(log)]
    process = subprocess.Popen(
        [*words, "--rehearse", "--steps", "1000000", "--output", str(tmp_path / "out")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "ADVISOR_DATA_DIR": str(tmp_path)},
    )  # fmt: skip
    _wait(lambda: log.exists() and log.read_text().count('"start"') == 2)
    process.send_signal(how)
    output = process.communicate(timeout=60)[0].decode()
    assert process.returncode == code
    _wait(lambda: not left_over())
    if how == signal.SIGINT:
        assert "Interrupted; every process of the run was ended." in output


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, left_over()
        time.sleep(0.1)


def test_a_hung_run_is_ended_with_the_reason(tmp_path: Path) -> None:
    given = {"script": script(tmp_path, "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n")}
    result = apply(tmp_path, finetune(), options={**given, "stall_limit": 1.5})
    assert result.outcome.ending == "hung" and "collective" in result.outcome.sentence
    assert result.outcome.last_lines == ("waiting",)
    result = apply(tmp_path, finetune(), options={**given, "time_limit": 1.5})
    assert result.outcome.ending == "hung" and "time limit of 2 s" in result.outcome.sentence


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    text = "with open('/dev/full', 'w') as handle:\n    handle.write('x')\n    handle.flush()\n"
    result = apply(tmp_path, finetune(), options={"script": script(tmp_path, text)})
    assert result.outcome.ending == "disk_full" and "No space left" in result.outcome.sentence
    try:
        Path("/dev/full").write_text("x")
    except OSError as error:
        assert _cause(error)[0] == "disk_full"
    assert _cause(RuntimeError("SafetensorError: No space left on device (os error 28)"))[0] == "disk_full"


def memory_plan(folder: Path) -> tuple[Any, Path]:
    """One process first, which runs out; two as the fallback."""
    plan = plan_of(finetune())
    gpu = PromisedGpu(parts={}, allocated=1, reserved=1, required=3 << 30, runtime=1 << 30, load_allocated=1)
    other = plan_of(finetune("ddp", method="lora")).main
    promised = other.model_copy(update={"promise": Promise(gpus=(gpu,), host_ram=1, host_ram_load=1)})
    path = folder / "plan.json"
    write_plan(plan.model_copy(update={"fallbacks": (promised,)}), path)
    return read_plan(path), path


def test_out_of_memory_offers_the_next_way_in_words_and_takes_it_when_told(tmp_path: Path) -> None:
    plan, path = memory_plan(tmp_path)
    text = (
        "import os, sys\n"
        "if 'WORLD_SIZE' not in os.environ:\n"
        "    sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB')\n"
    )
    options = Options(script=script(tmp_path, text), keep_record=False, time_limit=300, force=True)
    (result,) = apply_plan(plan, path, options, HERE)
    assert isinstance(result, Result) and result.outcome.ending == "oom"
    assert result.outcome.last_lines[-1].startswith("torch.OutOfMemoryError")
    assert offer(plan, result, options) == (
        "Next way in this plan: lora ddp, 4.0 GiB of each GPU by the prediction. Run again with --fallback to take it."
    )
    taken = Options(script=options.script, keep_record=False, time_limit=300, force=True, fallback=True)
    endings = [(end.step.job.strategy, end.outcome.ending) for end in apply_plan(plan, path, taken, HERE)]
    assert endings == [("single", "oom"), ("ddp", "ok")]


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (("bash", "-c", "true", "{script}"), {}),
        (("python", "-c", "print(1)", "{script}"), {}),
        (("python", "/tmp/other.py", "{script}"), {}),
        (("python", "{script}", "/tmp/other.py"), {}),
        (("python", "{script}"), {"LD_PRELOAD": "evil.so"}),
        (("python", "{script}"), {"PYTHONPATH": "elsewhere"}),
        (("python", "{script}"), {"PYTHONSTARTUP": "evil.py"}),
        (("python", "{script}"), {"CUDA_VISIBLE_DEVICES": "0; touch ran"}),
        (("python", "{script}"), {"ADVISOR_DATA_DIR": "elsewhere"}),
    ],
)
def test_a_plan_cannot_run_code(tmp_path: Path, argv: tuple[str, ...], environment: dict[str, str]) -> None:
    launch = PlanLaunch(launcher="python", argv=argv, environment=environment)
    with pytest.raises(InputError):
        rehearse(tmp_path, finetune(), launch=launch)


@pytest.mark.parametrize(
    ("launcher", "argv"),
    [
        ("torchrun", ("torchrun", "--module=os", "{script}")),
        ("torchrun", ("torchrun", "--rdzv_backend=/tmp/x", "{script}")),
        ("torchrun", ("torchrun", "--log_dir=/etc", "{script}")),
        ("accelerate", ("accelerate", "launch", "--config_file=/tmp/evil.yaml", "{script}")),
        ("accelerate", ("accelerate", "env", "{script}")),
        ("deepspeed", ("deepspeed", "--launcher_args=evil", "{script}")),
        ("deepspeed", ("deepspeed", "--venv_script=/tmp/evil.sh", "{script}")),
    ],
)
def test_launchers_get_no_flag_that_runs_something(tmp_path: Path, launcher: str, argv: tuple[str, ...]) -> None:
    launch = PlanLaunch(launcher=launcher, argv=argv)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        rehearse(tmp_path, finetune("ddp"), launch=launch)


def test_a_plan_file_with_an_unknown_field_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan_of(finetune()), path)
    value = json.loads(path.read_text())
    value["steps"][0]["command"] = "touch ran"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match="command"):
        read_plan(path)


def test_a_plan_for_another_machine_is_refused(tmp_path: Path) -> None:
    gpu = PromisedGpu(parts={}, allocated=1, reserved=1, required=1, runtime=1, load_allocated=1)
    promise = Promise(gpus=(gpu,), host_ram=1, host_ram_load=1)
    with pytest.raises(RefusedError, match="1 GPUs"):
        rehearse(tmp_path, finetune(), promise=promise)


def test_a_training_without_samples_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data: is needed"):
        apply(tmp_path, finetune())
    broken = tmp_path / "data.jsonl"
    broken.write_text("{}\n")
    with pytest.raises(InputError, match="no training sample"):
        apply(tmp_path, finetune(), options={"data": broken})
    broken.write_text('{"text": "x"}\n')
    with pytest.raises(InputError, match="--resume"):
        apply(tmp_path, finetune(), options={"data": broken, "resume": tmp_path / "none"})


def test_a_models_own_code_is_not_run_unasked(tmp_path: Path) -> None:
    plan = plan_of(inference())
    path = tmp_path / "plan.json"
    write_plan(plan.model_copy(update={"model": plan.model.model_copy(update={"trust_remote_code": True})}), path)
    with pytest.raises(InputError, match="trust-remote-code"):
        list(apply_plan(read_plan(path), path, Options(rehearse=True, keep_record=False), HERE))
