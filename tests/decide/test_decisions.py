"""Decisions over made-up budgets: what the tree may never do, whatever the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.decide.facts import best_by_way, build, show, speed_of, way_of
from advisor.decide.rules import load_tree
from advisor.decide.types import Candidate
from advisor.deciding import choose, nearest, why_not
from advisor.hardware.profile import HardwareProfile
from advisor.job import Workload
from advisor.units import GIB

from .synthetic import MODEL, candidate, machine, usual

TRAIN, SERVE = Workload(task="finetune", method="full"), Workload(task="inference")


def decided(on: HardwareProfile, found: list[Candidate], workload: Workload = TRAIN) -> Candidate | None:
    method = "full" if workload.task == "finetune" else ""
    _, chosen = choose(load_tree(workload.task), on, workload, MODEL, found, method)
    return chosen


@pytest.mark.parametrize(
    ("memory", "way"),
    [(40, "ddp"), (18.5, "zero2"), (12.0, "zero3"), (6, "zero2_cpu"), (4.5, "zero3_cpu"), (1.2, None)],
)
def test_replicate_then_shard_then_offload(memory: float, way: str | None) -> None:
    on = machine(memory=memory)
    chosen = decided(on, list(usual(on, scale=1.0)))
    assert (way_of(chosen) if chosen else None) == way


_SIZES = st.floats(0.1, 8.0)
_CARDS = st.floats(1.0, 120.0)


@given(scale=_SIZES, card=_CARDS, batch=st.floats(0, 40), host=st.floats(1, 400), links=st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_decision_never_names_what_does_not_fit(
    scale: float, card: float, batch: float, host: float, links: bool
) -> None:
    on = machine(memory=card, host=host)
    if not links:
        on = on.model_copy(update={"links": on.links.model_copy(update={"gpu_to_gpu_kind": "pcie"})})
    found = list(usual(on, scale, batch))
    chosen = decided(on, found)
    assert chosen is None or chosen.fits
    # and where it names nothing, nothing that its tree serves fits
    assert (chosen is None) == (not any(c.fits for c in found))


@given(scale=_SIZES, card=_CARDS, more=st.floats(0, 60), batch=st.floats(0, 20), host=st.floats(1, 400))
@settings(max_examples=150, deadline=None)
def test_more_memory_never_turns_fits_into_does_not(
    scale: float, card: float, more: float, batch: float, host: float
) -> None:
    small, large = machine(memory=card, host=host), machine(memory=card + more, host=host + more)
    before, after = list(usual(small, scale, batch)), list(usual(large, scale, batch))
    for one, other in zip(before, after, strict=True):
        assert other.fits or not one.fits
    if decided(small, before) is not None:
        assert decided(large, after) is not None


@given(scale=_SIZES, card=_CARDS, batch=st.floats(0, 20), more=st.floats(0, 20), host=st.floats(1, 400))
@settings(max_examples=150, deadline=None)
def test_a_bigger_batch_never_turns_does_not_into_fits(
    scale: float, card: float, batch: float, more: float, host: float
) -> None:
    on = machine(memory=card, host=host)
    small, large = list(usual(on, scale, batch)), list(usual(on, scale, batch + more))
    for one, other in zip(small, large, strict=True):
        assert one.fits or not other.fits
    if decided(on, large) is not None:
        assert decided(on, small) is not None


def test_the_fastest_of_a_way_stands_for_it_and_unknown_speeds_do_not() -> None:
    on = machine()
    slow, fast = (candidate(on, "zero3", 5, speed=s, gpus=2, offload_optimizer="cpu") for s in (5.0, 9.0))
    unknown = candidate(on, "zero3", 5, speed=None, gpus=2, offload_optimizer="cpu")
    assert best_by_way([unknown, slow, fast])["zero3_cpu"] is fast
    assert best_by_way([candidate(on, "zero3", 500, gpus=2)]) == {}
    assert speed_of(unknown) is None


@pytest.mark.parametrize(
    ("strategy", "job", "way"),
    [
        ("single", {}, "single"),
        ("zero3", {"offload_optimizer": "nvme", "offload_param": "nvme"}, "zero3_nvme"),
        ("zero3", {"offload_param": "cpu"}, "zero3_cpu"),
        ("zero2", {"gpus": 4, "nodes": 2}, "zero2_nodes"),
        ("zero2", {"gpus": 4, "nodes": 2, "offload_optimizer": "cpu"}, "zero2_nodes_cpu"),
    ],
)
def test_ways_of_training(strategy: str, job: dict[str, object], way: str) -> None:
    assert way_of(candidate(machine(), strategy, 1, **job)) == way  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strategy", "job", "way"),
    [
        ("single", {"quantization": "nf4"}, "single_nf4"),
        ("device_map", {"device_map": {"a": 0, "b": 1}}, "device_map"),
        ("device_map", {"device_map": {"a": 0, "b": "cpu"}}, "device_map_cpu"),
        ("device_map", {"device_map": {"a": "cpu", "b": "disk"}}, "device_map_disk"),
        ("device_map", {"quantization": "int8", "device_map": {"a": 0, "b": 1}}, "device_map_int8"),
    ],
)
def test_ways_of_serving(strategy: str, job: dict[str, object], way: str) -> None:
    assert way_of(candidate(machine(), strategy, 1, method=None, **job)) == way  # type: ignore[arg-type]


def test_within_the_error_the_simpler_one_is_preferred_and_it_says_so() -> None:
    on = machine(memory=80)
    close = [candidate(on, "single", 20, method=None, speed=50.0, error=0.35)]
    close += [candidate(on, "tensor_parallel", 11, method=None, speed=60.0, error=0.35, gpus=2)]
    taken, chosen = choose(load_tree("inference"), on, SERVE, MODEL, close, "")
    assert chosen is close[0]
    reason = why_not(close[1], close[0], taken)
    assert "60 tokens/s against 50 tokens/s, within the 35%" in reason and "INF003" in reason
    clear = [close[0], replace(close[1], time=replace(close[1].time, decode_tokens_per_second=90.0))]  # type: ignore[type-var]
    assert decided(on, clear, SERVE) is clear[1]


def test_a_loser_that_does_not_fit_gives_its_numbers() -> None:
    on = machine(memory=18.5)
    found = list(usual(on, scale=1.0))
    taken, chosen = choose(load_tree("finetune"), on, TRAIN, MODEL, found, "full")
    ddp = next(c for c in found if c.strategy == "ddp")
    assert chosen is not None and "18.5 GiB" in why_not(ddp, chosen, taken)
    offload = next(c for c in found if way_of(c) == "zero2_cpu")
    # With one card fitting, the rules never came to ask about offload: FIN040 sent the walk another way.
    assert "FIN040" in why_not(offload, chosen, taken) and "12 tokens/s against 97 tokens/s" in why_not(
        offload, chosen, taken
    )


def test_the_nearest_lacks_least() -> None:
    on = machine(memory=2)
    order = [way_of(c) for c in nearest(list(usual(on, scale=1.0)))]
    assert order[0] in ("zero3_cpu", "zero2_cpu") and order[-1] == "ddp"


def test_facts_of_a_machine() -> None:
    on = machine(memory=24, gpus=4, nodes=2)
    facts = build([], on, TRAIN, MODEL, "full")
    assert (facts["gpus"], facts["cards"], facts["nodes"], facts["nvlink"]) == (8, 4, 2, True)
    assert facts["card_memory"] == 24 * GIB and show("card_memory", facts["card_memory"]) == "24.0 GiB"
    assert facts["model_over_card"] == pytest.approx(2e6 / (24 * GIB))
    assert facts["host_link"] is None and show("host_link", None) == "unknown"
    assert facts["margin"] == 1.0 and facts["zero3.fits"] is False and facts["zero3.speed"] is None


def test_no_gpu_reaches_none() -> None:
    bare = HardwareProfile(name="bare")
    assert decided(bare, []) is None and decided(bare, [], SERVE) is None
