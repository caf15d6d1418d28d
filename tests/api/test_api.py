"""The Python API: the command line's names, loaded late, shown in a notebook, and the rooms that can be called."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import advisor
from advisor import ask
from advisor.cli import app
from advisor.errors import InputError
from advisor.execute.apply import RefusedError

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512,
    "max_position_embeddings": 256, "torch_dtype": "bfloat16",
}  # fmt: skip


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def answer(model: Path) -> Any:
    return advisor.recommend(str(model), "inference", hardware="rtx4090-x1", seq_len=64, max_new_tokens=8)


def test_importing_loads_no_library() -> None:
    heavy = ("torch", "transformers", "pydantic", "rich", "typer", "jinja2", "advisor.api")
    assert _run(f"import sys, advisor; print([n for n in {heavy!r} if n in sys.modules])").strip() == "[]"


@pytest.mark.parametrize("before", ["", "import advisor.check.engine, advisor.validate.runs; "])
def test_rooms_are_functions_before_and_after_they_are_imported(before: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n", encoding="utf-8")
    code = (
        f"{before}import advisor; found = advisor.check({str(script)!r}); print(found.files, found.failed); "
        "import advisor.check.engine, advisor.validate.bars; print(advisor.check.engine.__name__); "
        f"print(advisor.check({str(script)!r}) == found, callable(advisor.validate))"
    )
    assert _run(code).split() == ["1", "False", "advisor.check.engine", "True", "True"]


def test_rooms_show_their_signature() -> None:
    assert list(inspect.signature(advisor.validate).parameters) == ["files"]
    assert "select" in inspect.signature(advisor.check).parameters
    assert {"check", "recommend", "read_plan", "validate"} <= set(dir(advisor))
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = advisor.nothing_such


@pytest.mark.parametrize(
    ("name", "function", "cli_only"),
    [
        ("recommend", advisor.recommend, {"out", "json_output"}),
        ("check", advisor.check, {"fix", "yes", "diff", "form", "json_output", "output", "exit_zero"}),
        ("validate", advisor.validate, {"json_output", "readme"}),
    ],
)
def test_names_are_the_command_lines(name: str, function: Any, cli_only: set[str]) -> None:
    """Every flag is an argument, but for those that say how to print and where to write."""
    command: Any = get_command(app).commands[name]  # type: ignore[attr-defined]
    flags = {parameter.name for parameter in command.params} - cli_only - {"help", "quiet", "verbose"}
    arguments = inspect.signature(function).parameters
    known = set(arguments)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in arguments.values()):
        known |= {"model", *inspect.signature(ask.workload).parameters}
    assert flags <= known


def test_recommend_answers_as_the_command_does(answer: Any, model: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    flags = ["--hardware", "rtx4090-x1", "--seq-len", "64", "--max-new-tokens", "8", "--json"]
    out = ["-o", str(tmp_path / "plan.json")]
    ran = CliRunner().invoke(app, ["recommend", "-m", str(model), "-t", "inference", *flags, *out])
    told = json.loads(ran.stdout)
    assert answer.fits and answer.sentence == told["decision"]["sentence"] and repr(answer) == answer.sentence
    assert answer.as_json() | {"plan": None} == told | {"plan": None}
    assert advisor.read_plan(tmp_path / "plan.json").main.promise == answer.plan.main.promise


def test_a_plan_is_saved_read_and_the_same(answer: Any, tmp_path: Path) -> None:
    path = answer.plan.save(tmp_path / "plan.json")
    again = advisor.read_plan(path)
    assert again.model_dump() == answer.plan.model_dump()
    assert isinstance(again, advisor.Plan)
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="no advisor plan"):
        answer.plan.save(tmp_path / "other.json")


def test_apply_runs_what_the_command_runs(answer: Any) -> None:
    """There is no RTX 4090 here: the plan is refused as it is on the command line, before anything starts."""
    with pytest.raises(RefusedError, match="does not hold here"):
        answer.plan.apply(rehearse=True)
    with pytest.raises(InputError, match="stepz"):
        answer.plan.apply(stepz=3)


def test_apply_really_runs_where_the_machine_holds_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model on the CPU, generated by the real worker in its own process."""
    from advisor.job import Job
    from tests.execute.plans import plan_of

    monkeypatch.setenv("ADVISOR_DATA_DIR", str(tmp_path))
    job = Job(task="inference", strategy="single", precision="fp32", load_dtype="fp32", sequence_length=16, gpus=0)
    made = plan_of(dataclasses.replace(job, max_new_tokens=4))
    (result,) = advisor.Plan.of(made).apply(rehearse=True)
    assert result.outcome.ok and result.record.measured.outcome == "ok"
    assert result.kept_in == tmp_path / "records.jsonl"


def test_notebooks_get_the_report_in_a_frame(answer: Any) -> None:
    shown = answer._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in shown
    assert "<script" not in shown and "<style" not in shown
    import html

    page = html.unescape(shown.split('srcdoc="')[1].split('" style=')[0])
    assert page == answer.page() and answer.sentence.split(":")[0] in page
    assert answer.plan._repr_html_().startswith("<iframe")


def test_findings_in_a_notebook_are_escaped(tmp_path: Path) -> None:
    script = tmp_path / "<img src=x>.py"
    script.write_text(
        "from transformers import AutoModelForCausalLM, TrainingArguments\n"
        'args = TrainingArguments("out", deepspeed={"zero_optimization": {"stage": 3}})\n'
        'model = AutoModelForCausalLM.from_pretrained("m", device_map="auto")\n',
        encoding="utf-8",
    )
    found = advisor.check(script)
    assert found.failed and "ADV101" in repr(found)
    shown = found._repr_html_()
    assert "ADV101" in shown and "<img" not in shown
    assert not advisor.check(script, ignore=["ADV"]).findings


def test_validate_holds_records_against_predictions(tmp_path: Path) -> None:
    lines = Path("measurements/h200.jsonl").read_text(encoding="utf-8").splitlines()
    few = [line for line in lines if '"single"' in line and '"inference"' in line][:2]
    runs = tmp_path / "runs.jsonl"
    runs.write_text("\n".join(few) + "\n", encoding="utf-8")
    found = advisor.validate(runs)
    assert len(found.runs) == 2 and all(run.predicted for run in found.runs)
    assert "<table>" in found._repr_html_() and "Peak allocated" in repr(found)
    with pytest.raises(InputError, match="no file"):
        advisor.validate()
