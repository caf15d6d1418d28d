"""advisor validate as a command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from advisor import cli
from advisor.report.validation import BEGIN, END
from advisor.validate.runs import Predictor

from .known import PREDICTOR, record


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Predictor, "ours", classmethod(lambda cls: PREDICTOR))


def run(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["advisor", "validate", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_table_and_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(record("close", gpu_allocated=[100]).line() + "\n")
    assert run(str(path), monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "close" in shown and "met" in shown and "Capped runs (0)" in shown
    path.write_text(record("far", gpu_allocated=[50]).line() + "\n" + record("odd", optimizer="sgd").line() + "\n")
    assert run(str(path), monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr().out
    assert shown.index("odd") < shown.index("far")  # worst first
    assert "not predicted: odd: RuntimeError: no such optimizer" in shown


def test_json_is_all_that_stands_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = json.loads(record("a", gpu_allocated=[100]).line())
    value["workload"]["colour"] = "red"
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(value) + "\n")
    assert run(str(path), "--json", monkeypatch=monkeypatch) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["runs"][0]["id"] == "a"
    assert "unknown field ignored: workload.colour" in err


def test_a_bad_line_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"id": 3}\n')
    assert run(str(path), monkeypatch=monkeypatch) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"advisor: {path}:1: id: ") and err.count("\n") == 1


def test_readme_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, readme = tmp_path / "runs.jsonl", tmp_path / "README.md"
    path.write_text(record("a", gpu_allocated=[100]).line() + "\n")
    readme.write_text(f"{BEGIN}\n{END}\n")
    assert run(str(path), "--readme", str(readme), monkeypatch=monkeypatch) == 0
    assert "| Peak allocated, one GPU and device_map | 1 | 0.0% |" in readme.read_text()
