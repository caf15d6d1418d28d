"""Errors, bars, verdicts and pairs on predictions that are known to be off by a known amount."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.record import RunRecord
from advisor.report import validation as report
from advisor.validate.validation import Validation, read_reasons, score_runs

from .known import PREDICTOR, record


def check(*records: RunRecord) -> Validation:
    return score_runs([PREDICTOR.run(item) for item in records])


def test_errors_are_signed_and_of_the_fullest_gpu() -> None:
    run = PREDICTOR.run(record("a", gpu_allocated=[50, 125], gpu_used=[100], host_ram=40, step_seconds=1.6))
    assert run.errors == pytest.approx({"gpu_allocated": -0.2, "gpu_used": 0.3, "host_ram": 0.25, "step_seconds": 0.25})


def test_a_cap_limits_what_is_reserved_and_the_verdict() -> None:
    runs = [PREDICTOR.run(record(str(cap), cap=cap)) for cap in (104, 105, 130)]
    assert [run.predicted["fits"] for run in runs] == [False, True, True]
    assert [run.predicted["gpu_used"] for run in runs] == [[114], [115], [130]]
    assert PREDICTOR.run(record("card")).predicted["fits"] is True


def test_load_time_counts_only_where_a_checkpoint_was_read() -> None:
    made = PREDICTOR.run(record("made", load_seconds=1.5))
    read = record("read", load_seconds=1.5).model_copy(deep=True)
    read = read.model_copy(update={"workload": read.workload.model_copy(update={"load_from": "disk"})})
    assert "load_seconds" not in made.errors and PREDICTOR.run(read).errors["load_seconds"] == 1.0


def test_a_run_that_cannot_be_predicted_is_listed_and_fails_the_whole() -> None:
    result = check(record("good"), record("odd", optimizer="sgd"), record("where", hardware="mars"))
    assert {run.record.id: run.reason for run in result.unpredicted} == {
        "odd": "RuntimeError: no such optimizer",
        "where": "hardware: is not known, found 'mars'",
    }
    assert not result.met and check(record("good")).met


def test_bars_see_the_median_the_ninetieth_and_the_single_run() -> None:
    close = [record(str(index), gpu_allocated=[100]) for index in range(9)]
    good = check(*close, record("near", gpu_allocated=[104])).scores[0]
    assert (good.median, good.p90, good.under, good.met) == (0, 0, pytest.approx(-4 / 104), True)
    far = check(*close, record("far", gpu_allocated=[94])).scores[0]
    assert far.met is False and far.outside == ("far",) and far.over == pytest.approx(6 / 94)


def test_used_by_the_default_allocator_may_be_over_but_not_under() -> None:
    over = check(record("over", gpu_used=[124]), record("more", gpu_used=[100]))
    under = check(record("over", gpu_used=[124]), record("under", gpu_used=[140]))
    assert over.scores[3].outside == () and under.scores[3].outside == ("under",)


def test_verdicts_fall_into_four_fields() -> None:
    result = check(
        record("a", "ok", 200), record("b", "oom", 200), record("c", "ok", 90), record("d", "oom", 90), record("e")
    )
    table = result.verdicts
    assert (table.fits_and_ran, table.fits_but_died) == (("a",), ("b",))
    assert (table.refused_but_ran, table.refused_and_died) == (("c",), ("d",))
    assert not table.met and result.worst_first[0].record.id in "bc"


def test_pairs_are_of_one_job_and_differ_in_more_than_the_allocator() -> None:
    single = record("single", step_seconds=4.0, micro_batch_size=2)
    again = record("again", step_seconds=8.0, micro_batch_size=2, alloc_conf="expandable_segments:True")
    faster = record("ddp", step_seconds=3.0, name="ddp", gpus=2)
    other = record("other", step_seconds=9.0, name="ddp", gpus=2, micro_batch_size=4)
    assert check(single, again, faster, other).pairs.right == 2
    wrong = check(single, record("ddp", step_seconds=5.0, name="ddp", gpus=2)).pairs
    assert wrong.wrong == (("single", "ddp"),) and wrong.met is False
    assert check(single, record("ddp", step_seconds=3.5, name="ddp", gpus=2)).pairs.count == 0


def test_json_holds_runs_and_summary() -> None:
    value = json.loads(json.dumps(check(record("a", gpu_allocated=[50]), record("odd", optimizer="sgd")).as_json()))
    odd, run = value["runs"]
    assert odd["reason"] and odd["predicted"] == {}
    assert run["predicted"]["gpu_allocated"] == [100] and run["measured"]["gpu_allocated"] == [50]
    assert run["error"]["gpu_allocated"] == 1.0 and run["predicted"]["fits"] is True
    assert value["summary"]["groups"]["allocated_one"]["met"] is False


def test_the_readme_block_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    result = check(record("a", gpu_allocated=[94], step_seconds=2.0))
    path.write_text("no markers")
    with pytest.raises(InputError):
        report.write_readme(result, path)
    path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_readme(result, path)
    once = path.read_text()
    report.write_readme(result, path)
    assert path.read_text() == once
    assert once.startswith("before\n") and once.endswith("\nafter\n") and "old" not in once
    assert "`a` +6.4%" in once and "missed" in once


def test_reasons_lie_beside_the_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    assert read_reasons([runs]) == {}
    (tmp_path / "reasons.toml").write_text('a = "the card was hot"\n')
    reasons = read_reasons([runs, runs])
    result = score_runs([PREDICTOR.run(record("a", gpu_allocated=[94]))], reasons)
    assert "(the card was hot)" in report.markdown(result)
    assert result.as_json()["runs"][0]["known_reason"] == "the card was hot"
    (tmp_path / "reasons.toml").write_text("a = 3\n")
    with pytest.raises(InputError, match="a: is no sentence"):
        read_reasons([runs])
