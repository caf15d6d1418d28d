"""The whole flow with real predictions on a small model: decisions, what would change them, ways out, staged work."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from advisor.advise import Advice, recommend
from advisor.compare import as_csv, as_json, compare, cost
from advisor.decide.facts import way_of
from advisor.decide.types import Decision
from advisor.deciding import decide
from advisor.hardware.profile import HardwareProfile
from advisor.job import Workload
from advisor.staged import SHARD
from advisor.strategies.common import parameter_count
from advisor.units import GIB
from tests.strategies import tiny

# 0.3 billion parameters: its states are in GiB, and its trace takes a blink.
MODEL = tiny.model(tiny.LLAMA | {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_key_value_heads": 16, "vocab_size": 32000,
})  # fmt: skip
TRAIN = Workload(task="finetune", method="full", micro_batch_size=2, sequence_length=1024)
SERVE = Workload(task="inference", micro_batch_size=2, sequence_length=512, max_new_tokens=64)


def machine(memory: float, cards: int = 2, *, nvlink: bool = False, **changes: Any) -> HardwareProfile:
    made = tiny.machine(cards, memory, **changes)
    kind = {"gpu_to_gpu_kind": "nvlink", "gpu_to_gpu": 300e9} if nvlink else {}
    return made.model_copy(update={"links": made.links.model_copy(update=kind)})


@cache
def decided(memory: float, workload: Workload, cards: int = 2) -> Decision:
    return decide(replace(MODEL, parameters=parameter_count(MODEL)), machine(memory, cards), workload)


def fitting(found: Decision) -> set[str]:
    return {way_of(c) for c in found.candidates if c.fits}


@pytest.mark.parametrize(
    ("workload", "sizes"),
    [(TRAIN, (4.0, 6.5, 12.0)), (SERVE, (1.0, 1.35, 2.5))],
    ids=["finetune", "inference"],
)
def test_more_memory_never_turns_fits_into_does_not_with_real_predictions(
    workload: Workload, sizes: tuple[float, ...]
) -> None:
    found = [decided(size, workload) for size in sizes]
    assert [f.chosen is not None for f in found] == sorted(f.chosen is not None for f in found)
    assert all(f.chosen is None or f.chosen.fits for f in found)
    for small, large in pairwise(found):
        # what spills to the host is not tried where everything fits on the cards
        assert {way for way in fitting(small) if not way.endswith(("_cpu", "_disk"))} <= fitting(large)
    assert len({way_of(f.chosen) for f in found if f.chosen}) > 1  # the sizes reach several answers


def test_a_bigger_batch_never_turns_does_not_into_fits_with_real_predictions() -> None:
    found = [decided(5.0, replace(TRAIN, micro_batch_size=size)) for size in (1, 32)]
    assert all(f.chosen is None or f.chosen.fits for f in found)
    for small, large in pairwise(found):
        assert fitting(large) <= fitting(small)
    assert fitting(found[0]) != fitting(found[-1])


def advice(workload: Workload, on: HardwareProfile) -> Advice:
    return recommend(MODEL, on, workload)


def test_the_largest_batch_and_the_longest_sequence_are_where_the_job_stops_to_fit() -> None:
    found = advice(TRAIN, machine(12, 1))
    limits = re.match(r"single/full holds at most about micro batch (\d+) at length 1024", found.decision.changes[0])
    assert limits, found.decision.changes
    largest = int(limits[1])
    assert largest > 2

    def fits(micro: int) -> bool:
        chosen = decided(12, replace(TRAIN, micro_batch_size=micro), 1).chosen
        return chosen is not None and chosen.strategy == "single"

    assert fits(largest)
    assert not fits(8 * largest)


def test_what_would_change_the_answer_is_computed_for_memory_and_cards() -> None:
    found = advice(TRAIN, machine(12))
    lines = " | ".join(found.decision.changes)
    less = re.search(r"with cards of ([\d.]+) GiB or less \(now 12.0 GiB\): (\w+)", lines)
    assert less, lines
    turned = decided(float(less[1]) - 0.25, TRAIN)
    assert found.decision.chosen is not None
    assert (way_of(turned.chosen) if turned.chosen else "none") != way_of(found.decision.chosen)


def test_a_pipeline_that_is_only_estimated_is_named_beside_what_was_measured() -> None:
    slow_host = tiny.machine().host.model_copy(update={"memory_bandwidth": 10e9, "cpus": 4})
    on = machine(5, nvlink=True, host=slow_host)
    found = advice(TRAIN, on).decision
    pipeline = next(c for c in found.candidates if c.strategy == "device_map")
    assert pipeline.fits and found.chosen is not None and way_of(found.chosen) == "zero2_cpu"
    assert any("--strategy device_map: a naive pipeline, one GPU at a time" in line for line in found.changes)
    forced = advice(replace(TRAIN, strategy="device_map"), on).decision
    assert "a naive pipeline in which one GPU works at a time" in forced.sentence


def test_ways_out_fit_and_never_name_the_machine_itself() -> None:
    on = machine(2.2, 1, name="a10g", host=tiny.machine().host.model_copy(update={"memory_total": GIB}))
    found = advice(replace(TRAIN, micro_batch_size=4), on).decision
    assert found.chosen is None and found.missing_bytes > 0 and len(found.ways_out) == 3
    assert not any(line.startswith("a10g:") for line in found.ways_out)
    assert any(line.startswith(("--method", "--batch-size", "--seq-len")) for line in found.ways_out)


def test_flags_that_no_machine_can_serve_are_lifted() -> None:
    stored = replace(MODEL, quantization_config={"quant_method": "gptq"})
    asked = replace(SERVE, quantization="nf4")
    found = recommend(stored, machine(8, 1), asked).decision
    assert found.chosen is None
    assert found.ways_out[0].startswith("without --quantization: single on 1 GPU")


def test_staged_work_plans_both_phases_and_the_hand_over() -> None:
    count = parameter_count(MODEL)
    found = advice(replace(TRAIN, then="inference", strategy="zero3"), machine(8, nvlink=True)).plan
    assert found is not None and [step.name for step in found.steps] == ["train", "serve"]
    assert found.steps[0].job.strategy == "zero3" and found.steps[1].job.strategy == "single"
    over = found.handover
    assert over is not None and over["kind"] == "gathered" and over["fits"]
    assert over["disk"] == 2 * count and over["host_ram"] == 2 * count + SHARD
    lora = advice(replace(TRAIN, method="lora", then="inference"), machine(8, 1)).plan
    assert lora is not None and lora.handover is not None and "merge" in lora.handover["how"]


def test_compare_sorts_by_speed_and_prices_a_million_tokens() -> None:
    slow = machine(8, 1, name="slow").model_copy(update={"price_per_hour": 1.0, "price_currency": "USD"})
    small = machine(1.0, 1, name="small")
    fast = slow.model_copy(update={
        "name": "fast", "gpus": (tiny.card(8, memory_bandwidth=3e12, bf16_flops=900e12, fp16_flops=900e12),),
    })  # fmt: skip
    seen: list[str] = []
    rows = compare([MODEL], [small, slow, fast], TRAIN, progress=seen.append)
    assert [row.hardware for row in rows] == ["fast", "slow", "small"] and len(seen) == 3
    assert [row.fits for row in rows] == [True, True, False]
    speed = rows[1].tokens_per_second
    assert speed and rows[1].cost_per_million_tokens == pytest.approx(1.0 / 3600 / speed * 1e6)
    assert cost(small, 10.0) is None
    table = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert [line["hardware"] for line in table] == [row["hardware"] for row in as_json(rows)]
    assert table[2]["strategy"] == "" and table[0]["fits"] == "True"
