"""Bad input: one clear line on stderr, exit code 2, nothing on stdout, and no file lost or made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor import cli

Run = Callable[..., str]
GPT2 = {
    "model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 1024, "n_positions": 2048,
}  # fmt: skip


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run ``advisor`` with words that it must refuse; the line that it says."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        before = _content(tmp_path)
        monkeypatch.setattr(sys, "argv", ["advisor", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert ended.value.code == 2
        assert out == "" and err.startswith("advisor: ") and err.count("\n") == 1
        assert _content(tmp_path) == before
        return err

    return run


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def recommend(model: str = "openai-community/gpt2", hardware: str = "h200", *more: str) -> tuple[str, ...]:
    return ("recommend", "--model", model, "--task", "finetune", "--hardware", hardware, *more)


def test_an_unknown_model_names_the_nearest_and_three_ways(refused: Run) -> None:
    said = refused(*recommend("meta-lama/Llama-2-7b"))
    assert "meta-llama/Llama-2-7b-hf" in said
    for way in ("a local model folder", "the path of a config.json", "a Hub id with --download"):
        assert way in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{broken", "is not valid JSON (line 1"),
        ("[]", "expected"),
        ('{"hidden_size": 64}', "model_type: is missing"),
        ('{"model_type": "llama", "hidden_size": 64}', "num_hidden_layers: is missing"),
        (json.dumps({**GPT2, "model_type": "no_such_model"}), "no_such_model"),
    ],
)
def test_a_broken_config(refused: Run, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "config.json").write_text(text)
    said = refused(*recommend("config.json"))
    assert "config.json" in said and says in said


@pytest.mark.parametrize(
    ("flag", "value", "says"),
    [
        ("--batch-size", "-4", "must be at least 1, found -4"),
        ("--global-batch-size", "0", "must be at least 1, found 0"),
        ("--seq-len", "-1", "must be at least 1, found -1"),
        ("--lora-rank", "0", "must be at least 1, found 0"),
        ("--lora-alpha", "-8", "must be at least 1, found -8"),
        ("--gpus", "0", "must be at least 1, found 0"),
        ("--gpu-memory", "24", "is not a size with a unit, such as 24GiB"),
        ("--gpu-memory", "24gb", "use one of B, KB, MB, GB"),
        ("--host-memory", "lots", "is not a size with a unit"),
        ("--optimizer", "adam", "expected one of adamw_torch"),
        ("--precision", "fp8", "expected one of"),
        ("--strategy", "zero4", "expected one of"),
        ("--method", "dora", "expected one of auto, full, lora, qlora"),
    ],
)
def test_a_value_that_cannot_be(refused: Run, flag: str, value: str, says: str) -> None:
    said = refused(*recommend("openai-community/gpt2", "h200", flag, value))
    assert said.startswith(f"advisor: {flag}: ") and says in said


def test_an_unknown_profile_names_the_nearest(refused: Run) -> None:
    said = refused(*recommend(hardware="a100-80gb-x8"))
    assert "--hardware" in said and "a100-80g-x8" in said and "or a profile's path" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('name = "mine"\n[[gpus]]\nname = "A"\n', "gpus.0.memory_total: is missing"),
        ('[[gpus]]\nname = "A"\nmemory_total = "24GiB"\n', "name: is missing"),
        ('name = "mine"\n[[gpus]\n', "mine.toml"),
        ('name = "mine"\n[[gpus]]\nname = "A"\nmemory_total = "24"\n', "memory_total"),
    ],
)
def test_a_profile_with_a_field_missing_or_wrong(refused: Run, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    said = refused(*recommend(hardware="mine.toml"))
    assert "mine.toml" in said and says in said


@pytest.mark.parametrize("command", [("apply",), ("explain",), ("explain", "--why-not", "ddp"), ("report",)])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"format": "advisor-plan", "version": 99}, "version: was written by a newer advisor, found 99"),
        ({"format": "advisor-plan", "version": 1}, "is missing"),
        ({"rules": []}, "is not an advisor plan"),
    ],
)
def test_a_file_that_is_no_plan_or_a_newer_one(
    refused: Run, tmp_path: Path, command: tuple[str, ...], value: Any, says: str
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(value))
    said = refused(command[0], "plan.json", *command[1:])
    assert "plan.json" in said and says in said


def test_a_file_that_is_no_plan_is_never_written_over(refused: Run, tmp_path: Path) -> None:
    for name, text in (("notes.json", '{"mine": 1}'), ("notes.txt", "mine")):
        (tmp_path / name).write_text(text)
        said = refused(*recommend("openai-community/gpt2", "h200", "--out", name))
        assert f"{name}: exists and is no advisor plan, so it is left alone" in said


def test_a_folder_that_cannot_be_written_to(refused: Run, tmp_path: Path) -> None:
    """A file stands where the folder should be: that stops every user, root included."""
    (tmp_path / "file").write_text("mine")
    for out in ("file/plan.json", "file/deeper/plan.json"):
        assert "cannot be written" in refused(*recommend("openai-community/gpt2", "h200", "--out", out))
    (tmp_path / "folder").mkdir()
    assert "folder: is a folder" in refused(*recommend("openai-community/gpt2", "h200", "--out", "folder"))


def test_a_length_beyond_the_model(refused: Run) -> None:
    said = refused(*recommend("openai-community/gpt2", "h200", "--seq-len", "4096"))
    assert (
        said
        == "advisor: --seq-len: is beyond the 1024 positions of openai-community/gpt2, found 4096; expected at most 1024\n"
    )


def test_a_kernel_that_the_model_lacks(refused: Run) -> None:
    said = refused(*recommend("bigscience/bloom-560m", "h200", "--attention", "sdpa"))
    assert "BloomForCausalLM has no sdpa path" in said and "expected eager" in said
