"""Run records: what is read, what is refused, and that a written one reads back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InputError
from advisor.job import Job, Lora, ZeroTuning
from advisor.record import Measurement, RunRecord, append_record, read_records

MEASUREMENTS = Path(__file__).parents[2] / "measurements"
GOOD = {
    "id": "a",
    "model": "m",
    "hardware": "h200",
    "workload": {"task": "inference", "micro_batch_size": 1, "sequence_length": 8},
    "strategy": {"name": "single"},
    "measured": {"outcome": "ok"},
}


def line(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


@pytest.mark.parametrize(("name", "count"), [("h200.jsonl", 107), ("h200-load.jsonl", 9)])
def test_the_measured_runs_read_without_an_unknown_field(name: str, count: int) -> None:
    records = read_records(MEASUREMENTS / name)
    assert len(records) == count
    assert not any(record.unknown_fields for record in records)


def test_the_recipe_of_the_measured_runs() -> None:
    jobs = {record.id: record.job() for record in read_records(MEASUREMENTS / "h200.jsonl")}
    zero = jobs["z3-lora-l7"]
    assert (zero.zero_optimizer, zero.zero, zero.precision, zero.gpus) == ("torch_adam", ZeroTuning(), "bf16-mixed", 2)
    assert zero.lora == Lora(rank=16, target_modules="all-linear", dtype="fp32")
    assert jobs["dm-l7-cpu"].max_memory == {"0": 6 << 30, "cpu": 100 << 30}
    assert jobs["x-z3-l1"].expandable_segments and not jobs["z3-l1"].expandable_segments
    assert jobs["inf-l7-b1"].method is None and jobs["ft-l1-ga4"].global_batch_size == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "is no run record"),
        (line(workload={"task": "guess", "micro_batch_size": 1, "sequence_length": 8}), "workload.task"),
        (line(workload={"task": "inference", "micro_batch_size": 0, "sequence_length": 8}), "micro_batch_size"),
        (line(strategy={}), "strategy.name: is missing"),
        (line(measured={"outcome": "ok", "gpu_used": 12}), "measured.gpu_used"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(f"{line()}\n\n{text}\n")
    with pytest.raises(InputError) as caught:
        read_records(path)
    assert f"{path}:3: " in str(caught.value) and said in str(caught.value)


def test_a_size_without_unit_is_refused() -> None:
    record = RunRecord.model_validate({**GOOD, "strategy": {"name": "device_map", "max_memory": {"0": "24gb"}}})
    with pytest.raises(InputError, match=r"strategy\.max_memory\.0"):
        record.job()


def test_an_unknown_field_is_kept_and_named() -> None:
    value = {**GOOD, "strategy": {"name": "single", "aloc_conf": "x"}}
    assert RunRecord.model_validate(value).unknown_fields == ("strategy.aloc_conf",)


jobs = st.builds(
    Job,
    task=st.sampled_from(["inference", "finetune"]),
    strategy=st.sampled_from(["single", "device_map", "ddp", "zero2", "zero3"]),
    method=st.sampled_from(["full", "lora", "qlora"]),
    micro_batch_size=st.integers(1, 64),
    gradient_checkpointing=st.booleans(),
    lora=st.builds(Lora, rank=st.integers(1, 64), target_modules=st.just(("q_proj", "v_proj"))),
    gpus=st.integers(1, 8),
    max_memory=st.none() | st.just({"0": 5, "cpu": 9}),
    expandable_segments=st.booleans(),
    zero_optimizer=st.sampled_from(["torch_adam", "deepspeed", "client"]),
)


@given(jobs)
def test_a_job_survives_its_record(job: Job) -> None:
    from dataclasses import replace

    job = job if job.method in ("lora", "qlora") else replace(job, lora=None)
    record = RunRecord.of(job, Measurement(outcome="ok"), id="x", model="m", hardware="h200")
    assert RunRecord.model_validate_json(record.line()).job() == job


def test_records_are_appended_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for name in ("a", "b"):
        append_record(RunRecord.model_validate({**GOOD, "id": name}), path)
    assert [record.id for record in read_records(path)] == ["a", "b"]
    path.write_text("not a record\n")
    with pytest.raises(InputError):
        append_record(RunRecord.model_validate(GOOD), path)
    assert path.read_text() == "not a record\n"
