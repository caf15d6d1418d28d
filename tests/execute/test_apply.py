"""Plans of tiny random models run by the real engines on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.execute.find_batch import Tried, find_batch
from advisor.execute.options import Hooks, Options
from advisor.plan import read_plan, write_plan
from tests.execute.plans import TINY, finetune, inference, plan_of
from tests.execute.running import HERE, apply, rehearse

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "train.py"


@pytest.mark.parametrize("strategy", ["single", "zero3"])
def test_training_rehearsal_runs_and_is_measured(tmp_path: Path, strategy: str) -> None:
    result = rehearse(tmp_path, finetune(strategy))
    assert result.outcome.ok, result.outcome
    measured = {line.name: line.measured for line in result.comparison.lines}
    assert measured["step_seconds"] is not None
    assert result.record.strategy.name == strategy
    ready = [event for event in result.outcome.events if event["event"] == "ready"]
    assert {event["processes"] for event in ready} == {result.step.job.world_size}


def test_device_map_spills_to_cpu_and_disk_as_planned(tmp_path: Path) -> None:
    places = {
        "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu",
        "lm_head": "cpu", "model.rotary_emb": "cpu",
    }  # fmt: skip
    job = inference("device_map")
    result = rehearse(tmp_path, job, device_map=places, offload_folder=str(tmp_path / "disk"))
    assert result.outcome.ok, result.outcome
    assert any((tmp_path / "disk").iterdir())


@pytest.mark.parametrize("strategy", ["tensor_parallel", "zero3"])
def test_two_ranks_generate(tmp_path: Path, strategy: str) -> None:
    result = rehearse(tmp_path, inference(strategy, gpus=2))
    assert result.outcome.ok, result.outcome
    assert {event["rank"] for event in result.outcome.events if event["event"] == "done"} == {0, 1}
    assert result.comparison.measurement.decode_tokens_per_second


def test_a_plan_for_eager_attention_runs_eager(tmp_path: Path) -> None:
    """MPT knows no SDPA: a worker that did not pass the plan's kernel on would fail at once."""
    mpt = {"model_type": "mpt", "d_model": 32, "n_heads": 2, "n_layers": 1, "max_seq_len": 64, "vocab_size": 64}
    result = rehearse(tmp_path, inference("single", attention="eager"), config=mpt)
    assert result.outcome.ok, result.outcome


def test_a_trainer_script_runs_under_accelerate_launch(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    script = (
        str(SCRIPT), "--model", str(tmp_path), "--output_dir", str(tmp_path / "out"), "--max_steps", "2",
        "--per_device_train_batch_size", "2", "--save_strategy", "no", "--length", "16", "--learning_rate", "1e-4",
    )  # fmt: skip
    said: list[str] = []
    given = {"script": script, "launcher": "accelerate"}
    result = apply(tmp_path, finetune("zero3"), Hooks(on_output=said.append), options=given)
    assert result.outcome.ok, result.outcome
    assert "trained 2 steps" in "".join(said) and "DeepSpeedEngine" in "".join(said)


def test_a_script_gets_its_ranks_and_files_from_the_deepspeed_launcher(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "stage = json.load(open(sys.argv[2]))['zero_optimization']['stage']\n"
        "print(sys.argv[1], 'stage', stage, 'rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n"
    )
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    said: list[str] = []
    words = (str(script), "--deepspeed", "{deepspeed_config}")
    given = {"script": words, "launcher": "deepspeed", "hostfile": hosts}
    result = apply(tmp_path, finetune("zero2"), Hooks(on_output=said.append), options=given)
    assert result.outcome.ok, result.outcome
    for rank in (0, 1):
        assert f"--deepspeed stage 2 rank {rank} of 2" in "".join(said)


def _tried(size: int, edge: int, ending: str = "oom") -> Tried:
    class Outcome:
        pass

    outcome = Outcome()
    outcome.ok, outcome.ending = size <= edge, "ok" if size <= edge else ending  # type: ignore[attr-defined]

    class Result:
        pass

    result = Result()
    result.outcome = outcome  # type: ignore[attr-defined]
    return Tried(micro_batch_size=size, result=result, samples_per_second=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("edge", [1, 2, 3, 7, 8, 37, 100])
def test_the_search_for_a_batch_ends_within_an_eighth_of_the_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: int
) -> None:
    from advisor.execute import find_batch as room

    monkeypatch.setattr(room, "_try", lambda plan, path, options, machine, hooks, size: _tried(size, edge))
    plan = plan_of(finetune(micro_batch_size=1))
    tried = list(find_batch(plan, tmp_path / "plan.json", Options(), HERE))
    largest = max(one.micro_batch_size for one in tried if one.ok)
    assert largest <= edge <= largest + max(1, largest // 8)
    assert len({one.micro_batch_size for one in tried}) == len(tried)


def test_batches_are_really_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.execute import find_batch as room

    monkeypatch.setattr(room, "LARGEST", 4)
    path = tmp_path / "plan.json"
    write_plan(plan_of(finetune()), path)
    options = Options(keep_record=False, steps=2, output=tmp_path / "out")
    tried = list(find_batch(read_plan(path), path, options, HERE))
    assert [(one.micro_batch_size, one.ok) for one in tried] == [(2, True), (4, True)]
    assert all(one.samples_per_second for one in tried)
