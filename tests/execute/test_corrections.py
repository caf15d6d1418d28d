"""Runs that were applied correct what is said about the same machine later."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor import archive
from advisor.corrections import corrected_by_own_runs, fingerprint
from advisor.execute.apply import apply_step
from advisor.execute.options import Options
from advisor.hardware.load import load_profile
from advisor.hardware.profile import HardwareProfile, Host
from advisor.job import Job
from advisor.models.resolve import resolve
from advisor.plan import Promise, read_plan, write_plan
from advisor.record import Measurement, Prediction, RunRecord, read_records
from advisor.timing.predict import predict_time
from tests.execute.plans import finetune, plan_of


@pytest.fixture(autouse=True)
def own_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_DATA_DIR", str(tmp_path / "data"))
    return archive.archive_path()


def here(name: str = "node-1") -> HardwareProfile:
    profile = load_profile("rtx4090-x1")
    host = profile.host.model_copy(update={"name": name})
    return profile.model_copy(update={"here": True, "host": host})


def job(strategy: str = "single", **changes: object) -> Job:
    return Job(task="finetune", strategy=strategy, method="full", gpus=1, **changes)  # type: ignore[arg-type]


def keep(
    said: float, took: float, machine: HardwareProfile, work: Job, *, runtime: int | None = None, outcome: str = "ok"
) -> None:
    archive.keep(
        RunRecord.of(
            work, Measurement(outcome=outcome, step_seconds=took, runtime_overhead=runtime),  # type: ignore[arg-type]
            id="one", model="m", hardware=machine.name, predicted=Prediction(step_seconds=said),
            machine=fingerprint(machine),
        )
    )  # fmt: skip


def test_later_times_are_corrected_by_the_median_and_say_so() -> None:
    for took in (1.2, 1.3, 9.9):  # the last is not believed
        keep(1.0, took, here(), job())
    keep(1.0, 1.3, here(), job())
    machine = corrected_by_own_runs(here())
    assert machine.notes[-1] == "finetune by single: corrected by 3 runs on this machine (+30%)"
    model = resolve("HuggingFaceTB/SmolLM2-135M")
    before, after = predict_time(model, here(), job()), predict_time(model, machine, job())
    assert before.step_seconds and after.step_seconds == pytest.approx(1.3 * before.step_seconds)
    assert "corrected by 3 runs on this machine (+30%)" in after.notes
    # Another kind of job has its own runs, or none.
    offloaded = job("zero3", offload_optimizer="cpu")
    assert predict_time(model, machine, offloaded) == predict_time(model, here(), offloaded)


def test_other_machines_failed_runs_and_profiles_that_are_not_here_count_for_nothing() -> None:
    keep(1.0, 1.5, here("node-2"), job())
    keep(1.0, 1.5, here(), job(), outcome="oom")
    assert corrected_by_own_runs(here()).corrections == ()
    keep(1.0, 1.5, here(), job())
    assert corrected_by_own_runs(here()).corrections[0].runs == 1
    assert corrected_by_own_runs(load_profile("rtx4090-x1")) == load_profile("rtx4090-x1")


def test_runtime_bytes_of_own_runs_fill_what_the_probe_did_not_measure() -> None:
    keep(1.0, 1.0, here(), job(), runtime=600 << 20)
    measured = corrected_by_own_runs(here()).measured
    assert measured is not None and measured.context_bytes == 600 << 20
    probed = here().model_copy(update={"measured": measured.model_copy(update={"context_bytes": 500 << 20})})
    assert corrected_by_own_runs(probed).measured == probed.measured


def test_a_broken_archive_is_named_and_left_out(own_archive: Path) -> None:
    own_archive.parent.mkdir()
    own_archive.write_text("{broken\n")
    machine = corrected_by_own_runs(here())
    assert machine.corrections == () and "own runs were left out" in machine.notes[-1]


def test_an_applied_run_keeps_what_was_said_before_any_correction(tmp_path: Path, own_archive: Path) -> None:
    machine = HardwareProfile(name="cpu", here=True, host=Host(name="node-1", memory_available=8 << 30))
    plan = plan_of(finetune(), promise=Promise(gpus=(), host_ram=1, host_ram_load=1))
    path = tmp_path / "plan.json"
    for _ in range(2):
        archive.keep(
            RunRecord.of(
                finetune(), Measurement(outcome="ok", step_seconds=1.0), id="one", model="m", hardware="cpu",
                predicted=Prediction(step_seconds=0.5), machine="node-1: no GPU",
            )
        )  # fmt: skip
    corrected = corrected_by_own_runs(machine)
    assert corrected.corrections[0].time == 2.0
    # What a corrected plan promises is the raw figure times the factor.
    promise = plan.main.promise.model_copy(update={"step_seconds": 0.25 * 2.0})
    step = plan.main.model_copy(update={"promise": promise})
    write_plan(plan.model_copy(update={"hardware": corrected, "steps": (step,)}), path)
    read = read_plan(path)
    result = apply_step(read, path, read.main, Options(rehearse=True, output=tmp_path / "out"), machine)
    assert result.kept_in == own_archive
    kept = read_records(own_archive)
    assert len(kept) == 3 and kept[-1].predicted is not None
    assert kept[-1].predicted.step_seconds == pytest.approx(0.25)
    assert kept[-1].machine == "node-1: no GPU"
    assert kept[-1].unknown_fields == ()
