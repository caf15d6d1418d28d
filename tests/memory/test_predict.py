"""Predictions beside runs that were measured on H200s (``measurements/h200.jsonl``)."""

from pathlib import Path

import pytest

from advisor.hardware.load import load_profile
from advisor.memory.predict import predict_memory
from advisor.models.resolve import resolve
from advisor.record import read_records

RECORDS = {record.id: record for record in read_records(Path(__file__).parents[2] / "measurements" / "h200.jsonl")}


@pytest.mark.parametrize("name", ["ft-l1-b1", "lora-l8-b1", "inf-l7-b1", "inf-q3moe", "dm-l70", "dm-l7"])
def test_peak_is_the_measured_one(name: str) -> None:
    record = RECORDS[name]
    budget = predict_memory(resolve(record.model), load_profile(record.hardware), record.job())
    assert max(gpu.allocated for gpu in budget.gpus) == pytest.approx(
        max(record.measured.gpu_allocated or ()), rel=0.006
    )
    for gpu in budget.gpus:
        assert gpu.allocated <= gpu.required <= gpu.reserved
        assert sum(gpu.parts.values()) == gpu.allocated
