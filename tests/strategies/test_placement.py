"""accelerate's planner, called with the real model: every tensor has one home, and no card gets more than its room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.job import Job
from advisor.models.resolve import resolve
from advisor.strategies.placement import place
from advisor.strategies.registry import STRATEGIES
from advisor.units import GIB
from tests.strategies import tiny


def job(**changes: Any) -> Job:
    return Job(**({"task": "inference", "strategy": "device_map", "gpus": 2, "sequence_length": 64} | changes))


@pytest.mark.parametrize(
    "config", [tiny.LLAMA, tiny.GPT2, tiny.T5, tiny.BERT, {**tiny.LLAMA, "tie_word_embeddings": True}]
)
@pytest.mark.parametrize("quantization", [None, "nf4"])
def test_a_balanced_map_covers_every_tensor_once(config: dict[str, Any], quantization: Any) -> None:
    """``place`` raises when a parameter or buffer has no home or two; sizes add up to the model's."""
    model = tiny.model(config)
    found = place(model, job(quantization=quantization), {"0": GIB, "1": GIB}, balance=True)
    assert found is not None and set(found.device_map.values()) <= {0, 1}
    if quantization is None:
        from advisor.strategies.outline import outline

        whole = outline(model, job())
        assert sum(found.sizes.values()) == pytest.approx(whole.weights + whole.buffers, rel=0.01)


def test_what_does_not_fit_spills_to_the_host_and_then_to_disk() -> None:
    model = tiny.model({**tiny.LLAMA, "num_hidden_layers": 16})
    whole = place(model, job(), {"0": GIB}, balance=True)
    assert whole is not None
    total = sum(whole.sizes.values())
    rooms = {"0": total // 2, "cpu": total // 2}
    found = place(model, job(), rooms, balance=False)
    assert found is not None and set(found.sizes) == {"0", "cpu", "disk"}
    assert all(found.sizes[name] <= room for name, room in rooms.items())
    assert sum(found.sizes.values()) == total


def test_too_small_cards_have_no_balanced_map() -> None:
    assert place(tiny.model(), job(), {"0": 1000, "1": 1000}, balance=True) is None


def test_different_cards_are_filled_alike() -> None:
    model = tiny.model({**tiny.LLAMA, "num_hidden_layers": 30})
    found = place(model, job(), {"0": GIB, "1": 2 * GIB}, balance=True)
    assert found is not None
    assert found.sizes["1"] == pytest.approx(2 * found.sizes["0"], rel=0.15)


@pytest.mark.parametrize("tied", [True, False])
def test_a_large_embedding_does_not_unbalance_two_cards(tied: bool) -> None:
    """accelerate keeps room for the largest module on card 0; a balanced map is given that room back, and no more."""
    model = tiny.model({**tiny.LLAMA, "num_hidden_layers": 16, "vocab_size": 8192, "tie_word_embeddings": tied})
    found = place(model, job(), {"0": GIB, "1": GIB}, balance=True)
    assert found is not None
    block = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64)
    assert abs(found.sizes["0"] - found.sizes["1"]) <= (2 * block if tied else 2 * block + 2 * 8192 * 64 // 8)


def test_no_warning_of_cards_that_are_not_here(caplog: pytest.LogCaptureFixture) -> None:
    place(tiny.model({**tiny.LLAMA, "num_hidden_layers": 3}), job(), {"0": GIB, "7": GIB}, balance=True)
    assert not [record for record in caplog.records if not record.name.startswith("advisor")]


def test_a_huge_vocabulary_does_not_overload_the_last_card() -> None:
    """Case B02: 23 GB of a 27B in 4 bits on 8 x 24 GB. The tied embedding counts once; no card is over 60% full."""
    from advisor.hardware.load import load_profile

    model, machine = resolve("google/gemma-3-27b-it"), load_profile("a10g-x8")
    embedding = model.vocab_size * model.hidden_size * 2
    assert embedding / GIB == pytest.approx(2.626, rel=0.005)
    strategy = STRATEGIES["device_map"]
    (found,) = strategy.jobs(model, machine, tiny.inference(quantization="nf4"))
    budget = strategy.budget(model, machine, found)
    for gpu, room in zip(budget.gpus, machine.capacities, strict=False):
        assert gpu.needed <= 0.6 * room
    weights = [gpu.parts["weights"] for gpu in budget.gpus]
    assert sum(weights) == pytest.approx(16e9, rel=0.1)  # half a byte of 26B in linears, and one embedding


def test_the_plan_says_caps_in_gib_and_asks_for_a_folder_only_for_disk() -> None:
    """Cases B05 and B06."""
    strategy, model, machine = STRATEGIES["device_map"], tiny.model(), tiny.machine(2)
    (found,) = strategy.jobs(model, machine, tiny.inference(quantization="none"))
    parts = strategy.plan(model, machine, found)
    assert parts.max_memory is not None and all(size.endswith("GiB") for size in parts.max_memory.values())
    assert not parts.offload_folder
    on_disk = replace(found, device_map={"model": 0, "lm_head": "disk"})
    assert strategy.plan(model, machine, on_disk).offload_folder


def test_lora_is_trained_on_the_map_of_the_bare_model() -> None:
    strategy, model, machine = STRATEGIES["device_map"], tiny.model(), tiny.machine(2)
    (found,) = strategy.jobs(model, machine, tiny.finetune(method="lora"))
    budget = strategy.budget(model, machine, found)
    assert len(budget.gpus) == found.gpus and all(gpu.parts["weights"] for gpu in budget.gpus)
