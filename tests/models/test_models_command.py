"""``advisor models``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from advisor.cli import app
from advisor.errors import InputError
from advisor.models.known import catalogue, search


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["models", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return str(result.stdout)


def test_a_line_a_model() -> None:
    lines = run("LLAMA-2-70b").splitlines()
    assert len([line for line in lines if "llama-2-70b" in line.lower()]) == len(search("llama-2-70b")) >= 3
    line = next(line for line in lines if line.startswith("meta-llama/Llama-2-70b-hf "))
    assert all(word in line.split() for word in ("69B", "llama", "4,096", "gated"))


def test_all_of_them_by_family_too() -> None:
    assert len(json.loads(run("--json"))) == len(catalogue())
    assert {item["family"] for item in json.loads(run("--json", "gpt_neox"))} == {"gpt_neox"}


def test_json_holds_the_facts() -> None:
    (item,) = json.loads(run("--json", "Qwen3-235B-A22B-Thinking"))
    assert item["name"] == "Qwen/Qwen3-235B-A22B-Thinking-2507" and item["variant_of"] == "Qwen/Qwen3-235B-A22B"
    assert (item["context_length"], item["active"], item["gated"]) == (262144, 22_000_000_000, False)
    assert item["config"]["num_experts"] == 128 and item["counted_by"]


def test_no_match_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"matches no model.*meta-llama/Llama-2-70b-hf"):
        run("llama-2-70b-hff")
