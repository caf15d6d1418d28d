"""The measured runs, with constants of host and libraries that were taken from OTHER models than the one predicted.

Each model's runs are left out in turn, the scale of every part of the estimate is fitted anew to the rest, and the
left-out model is predicted with that. If the constants were tuned to the rows, this would show.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from advisor.hardware.load import load_profile
from advisor.models.resolve import resolve
from advisor.record import RunRecord, read_records
from advisor.timing.estimate import TimeEstimate
from advisor.timing.predict import predict_time
from advisor.timing.rates import CUDNN_PLAN_SECONDS

MEASUREMENTS = Path(__file__).parents[2] / "measurements"
TRAINING = ("compute", "memory", "optimizer")


@cache
def records() -> tuple[RunRecord, ...]:
    return tuple(record for record in read_records(MEASUREMENTS / "h200.jsonl") if record.gpu_memory_cap is None)


_estimates: dict[str, TimeEstimate] = {}


def estimate(record: RunRecord) -> TimeEstimate:
    if record.id not in _estimates:
        machine = load_profile(record.hardware)
        _estimates[record.id] = predict_time(resolve(record.model), machine, record.job())
    return _estimates[record.id]


def left_out_errors(rows: list[tuple[str, list[float], float]]) -> list[float]:
    """Absolute relative errors; a row is (model, columns, measured seconds), fitted with relative weights."""
    errors = []
    for model in {name for name, _, _ in rows}:
        others = [(columns, seconds) for name, columns, seconds in rows if name != model]
        matrix = np.array([[value / seconds for value in columns] for columns, seconds in others])
        scales = np.linalg.lstsq(matrix, np.ones(len(others)), rcond=None)[0]
        for name, columns, seconds in rows:
            if name == model:
                errors.append(abs(float(np.dot(columns, scales)) / seconds - 1))
    return errors


def training_rows(chosen: Iterable[RunRecord]) -> list[tuple[str, list[float], float]]:
    rows = []
    for record in chosen:
        if record.workload.method == "full" and record.strategy.name == "single":
            parts, seconds = estimate(record).parts, record.measured.step_seconds
            assert seconds is not None
            rows.append((record.model, [*(parts[name] for name in TRAINING), parts["launch"]], seconds))
    return rows


def test_steps_of_a_model_that_no_constant_saw() -> None:
    # fp32 weights with autocast are left to the tests of the trace.
    rows = training_rows(record for record in records() if record.workload.precision != "bf16-mixed")
    assert len(rows) >= 18
    errors = left_out_errors(rows)
    assert statistics.median(errors) <= 0.20
    assert sorted(errors)[int(0.9 * len(errors))] <= 0.35


def test_tokens_of_a_model_that_no_constant_saw() -> None:
    rows = []
    for record in records():
        measured = record.measured.decode_tokens_per_second
        if record.strategy.name != "single" or not measured or record.workload.quantization:
            continue
        parts = estimate(record).parts
        plans = CUDNN_PLAN_SECONDS if any("cuDNN" in note for note in estimate(record).notes) else 0.0
        rows.append((record.model, [sum(parts.values()) - plans, plans], record.workload.micro_batch_size / measured))
    assert len(rows) >= 12
    errors = left_out_errors(rows)
    assert statistics.median(errors) <= 0.30


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        ("z2-l1", "z3-l1"), ("z3-l1", "z2o-l1"), ("z2-l7-ckpt", "z3-l7-ckpt"), ("ddp-lora-l7", "z3-lora-l7"),
        ("dm-l7", "dm-l7-cpu"), ("inf-l7-fp32", "inf-l7-b1"),
    ],
)  # fmt: skip
def test_the_order_that_was_measured(faster: str, slower: str) -> None:
    by_id = {record.id: estimate(record) for record in records() if record.id in (faster, slower)}

    def seconds(name: str) -> float:
        one = by_id[name]
        return one.step_seconds or 1 / (one.decode_tokens_per_second or 0)

    assert seconds(faster) < seconds(slower)
