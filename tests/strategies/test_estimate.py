"""Estimates by formula beside the replayed budgets that they stand for."""

from __future__ import annotations

import pytest

from advisor.hardware.load import load_profile
from advisor.job import STRATEGY_NAMES, Job, StrategyName, Workload
from advisor.models.resolve import resolve
from advisor.strategies import limits
from advisor.strategies.estimate import estimate
from advisor.strategies.registry import STRATEGIES
from advisor.strategies.search import NEAR, NEAR_BYTES
from tests.strategies import tiny

# Llama-3.2-1B with half its layers and vocabulary.
SMALL = {
    **tiny.LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 64128, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.parametrize("name", STRATEGY_NAMES)
@pytest.mark.parametrize("task", ["finetune", "inference"])
def test_an_estimate_is_nearer_than_the_band_in_which_jobs_are_replayed(name: StrategyName, task: str) -> None:
    """What the search decides without a replay, a replay decides the same way: on a card of which the job takes half."""
    model, machine = tiny.model(SMALL), load_profile("rtx4090-x2")
    strategy = STRATEGIES[name]
    workload = Workload(task=task, sequence_length=1024, global_batch_size=4)  # type: ignore[arg-type]
    if strategy.refuses(model, machine, workload):
        pytest.skip("not for this task")
    for job in strategy.jobs(model, machine, workload):
        settled = strategy.settle(model, machine, job)
        if not isinstance(settled, Job) or limits.objection(model, machine, workload, settled):
            continue
        ours, replayed = estimate(model, machine, settled), strategy.budget(model, machine, settled)
        assert len(ours.gpus) == len(replayed.gpus)
        room = 2 * replayed.fullest.needed
        assert abs(ours.fullest.needed - replayed.fullest.needed) <= max(NEAR[name] * room, NEAR_BYTES)
        # Formulas round the whole share to a page-locked block, a replay each sub group's.
        assert ours.host_ram == pytest.approx(replayed.host_ram, rel=0.02, abs=1 << 30)
        assert ours.disk == replayed.disk


def test_depth_costs_nothing_and_is_counted_in_full() -> None:
    """A Llama of 80 layers: the outline repeats its middle layer, and agrees with the replay."""
    model, machine = resolve("meta-llama/Llama-2-70b"), load_profile("h200-x2")
    strategy = STRATEGIES["single"]
    job = next(iter(strategy.jobs(model, machine, Workload(task="inference", sequence_length=2048))))
    ours, replayed = estimate(model, machine, job).fullest, strategy.budget(model, machine, job).fullest
    assert ours.allocated == pytest.approx(replayed.allocated, rel=0.005)
