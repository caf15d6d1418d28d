"""Every model of the catalogue against its published parameter count, on the real architecture at full depth."""

from __future__ import annotations

import json

import pytest

from advisor.job import Job
from advisor.models.known import catalogue, find, nearest
from advisor.models.spec import ModelSpec
from tests.models.counting import counted


@pytest.mark.parametrize("repo", sorted(catalogue()))
def test_parameters_as_published(repo: str) -> None:
    entry = catalogue()[repo]
    count = counted(entry)
    assert count.made + count.head == pytest.approx(entry.parameters, rel=0.005), entry.counted_by


@pytest.mark.parametrize("repo", sorted(name for name, entry in catalogue().items() if entry.variant_of is None))
def test_active_parameters_as_published(repo: str) -> None:
    entry = catalogue()[repo]
    active = counted(entry).active
    if active is None:
        assert entry.active is None
        return
    # Some publishers leave out the input embedding, or both; and all round: "3B" is anything from 2.5 to 3.5.
    embeddings = 2 * entry.config["vocab_size"] * entry.config["hidden_size"]
    assert entry.active is not None
    digits = len(str(entry.active).rstrip("0"))
    rounding = 10 ** (len(str(entry.active)) - digits) / 2
    assert active - embeddings - rounding <= entry.active <= active + rounding


# One of each architecture: the first in its file.
FIRSTS = {entry.config["model_type"]: repo for repo, entry in reversed(catalogue().items())}


@pytest.mark.parametrize("repo", sorted(FIRSTS.values()))
def test_every_architecture_can_be_traced(repo: str) -> None:
    """A step of the cut model, stretched to full depth, has every parameter of the full model."""
    from advisor.memory.stretch import parameters
    from advisor.memory.trace.run import run

    entry = catalogue()[repo]
    if entry.kind == "masked":
        job = Job(task="finetune", method="full", strategy="single", sequence_length=128)
    else:
        job = Job(task="inference", strategy="single", sequence_length=128, max_new_tokens=4)
    stretched = parameters(run(entry.spec(repo), job))
    assert sum(parameter.numel for parameter in stretched) == counted(entry).made


def test_it_is_large_and_has_every_kind() -> None:
    entries = catalogue().values()
    assert len({json.dumps(dict(entry.config), sort_keys=True) for entry in entries}) >= 200
    assert {entry.kind for entry in entries} == {"causal", "seq2seq", "masked"}
    assert any(entry.config.get("kv_lora_rank") for entry in entries)  # multi-head latent attention
    assert any(entry.config.get("sliding_window") for entry in entries)
    assert any(entry.active for entry in entries)


@pytest.mark.parametrize("repo", sorted(catalogue()))
def test_every_spec_has_its_sizes(repo: str) -> None:
    spec: ModelSpec = catalogue()[repo].spec(repo)
    assert min(spec.layers, spec.hidden_size, spec.vocab_size) > 0
    assert catalogue()[repo].counted_by


def test_every_name_leads_to_its_own_repository() -> None:
    for repo, entry in catalogue().items():
        for name in (repo, repo.upper(), *entry.aliases, *([entry.original] if entry.original else [])):
            found = find(name)
            assert found is not None and found.repo == repo, name


@pytest.mark.parametrize(
    ("name", "repo"),
    [
        ("llama-2-7b", "meta-llama/Llama-2-7b-hf"),
        ("Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
        ("meta-llama/llama-2-70B", "meta-llama/Llama-2-70b-hf"),
        ("gpt2", "openai-community/gpt2"),
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("zephyr-7b-beta", "HuggingFaceH4/zephyr-7b-beta"),
        ("THUDM/GLM-4-9B-0414", "zai-org/GLM-4-9B-0414"),
    ],
)
def test_short_and_other_names(name: str, repo: str) -> None:
    found = find(name)
    assert found is not None and found.repo == repo


def test_a_variant_changes_only_what_it_says() -> None:
    base, variant = catalogue()["Qwen/Qwen3-4B"], catalogue()["Qwen/Qwen3-4B-Instruct-2507"]
    assert variant.variant_of == base.repo
    assert dict(variant.config) == {**base.config, "max_position_embeddings": 262144}
    assert not catalogue()["NousResearch/Llama-2-7b-hf"].gated and catalogue()["meta-llama/Llama-2-7b-hf"].gated


def test_nearest_names() -> None:
    assert nearest("meta-llama/Llama-2-70b-hff")[0] == "meta-llama/Llama-2-70b-hf"
    assert "Qwen/Qwen2.5-7B-Instruct" in nearest("qwen2.5-7b-instrukt")
    assert nearest("zzzzzzzzzz") == ()
