"""Every shipped profile: it loads, its numbers have sources, and cards of one name agree."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.ask import ask
from advisor.deciding import decide
from advisor.errors import InputError
from advisor.hardware.load import load_profile, profile_paths, select
from advisor.units import MIB

NAMES = sorted(profile_paths())
# Memory in MiB as nvidia-smi prints it, from public logs.
SMI = {"h200": 143771, "a100-80g-x8": 81920, "rtx4090-x1": 24564}


def numbers(value: Any, path: str = "") -> set[str]:
    """Dotted paths of the numbers in a profile, list positions left out."""
    if isinstance(value, dict):
        return {found for key, item in value.items() for found in numbers(item, f"{path}.{key}".strip("."))}
    if isinstance(value, (list, tuple)):
        return {found for item in value for found in numbers(item, path)}
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {path} if number else set()


def test_the_usual_machines_are_there() -> None:
    wanted = (
        "t4 v100-16g-x4 a10g-x4 l4-x4 l40s-x4 l40s-x8 a100-40g-x8 a100-80g-x8 h100-pcie h100-nvl h100-x8 h20-x8 h200-x8 gh200 "
        "b200-x8 gb200-x4 mi300x-x8 rtx3060-12g rtx3090-x2 rtx4090-x2 rtx5090 rtx5090-x2 rtxpro6000-x8 rtxa6000-x4 gb10 "
        "jetson-orin-64g m3max-128g"
    )
    assert not set(wanted.split()) - set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    stated = profile.model_dump(exclude={"sources", "nodes"}, exclude_none=True)
    wanted = numbers(stated) - {"gpus.count"}
    assert not wanted - profile.sources.keys()
    # And no source speaks of a number that is not there.
    assert not profile.sources.keys() - wanted - {"gpus.compute_capability"}
    assert ("gpus.compute_capability" in profile.sources) == (profile.cards[0].compute_capability is not None)
    assert not any("guess" in source for source in profile.sources.values())


# Usable bytes/s of a full slot, by generation, and NVLink-C2C of the superchips.
SLOTS = {12e9, 25e9, 50e9, 225e9, 450e9}


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_sane(name: str) -> None:
    profile = load_profile(name)
    links, cards = profile.links, profile.cards
    for card in cards:
        assert card.memory_total % MIB == 0 and 8 << 30 <= card.memory_total <= 300 << 30
        assert card.memory_bandwidth and 0.1e12 < card.memory_bandwidth <= 8e12
        assert card.fp16_flops and card.fp32_flops and card.fp32_flops < card.fp16_flops
        assert card.has_bf16 == (card.bf16_flops is not None)
        assert card.bf16_flops in (None, card.fp16_flops)
        assert (card.compute_capability is not None) == (card.vendor == "nvidia")
        # Reading all memory once takes a card 5 to 500 ms, whatever its class.
        assert 0.005 < card.memory_total / card.memory_bandwidth < 0.5
        if card.unified_memory:
            assert links.host_to_gpu is None and profile.host.memory_total is None
        else:
            assert links.host_to_gpu in SLOTS and links.gpu_to_host == links.host_to_gpu
            assert profile.host.memory_total and profile.host.cpus
    if len(cards) == 1:
        assert links.gpu_to_gpu is None and links.gpu_to_gpu_kind is None
        return
    assert links.gpu_to_gpu is not None and links.host_to_gpu is not None and links.peer_to_peer is not None
    if links.gpu_to_gpu_kind == "pcie":
        # Without peer access every byte crosses the bus twice, as `advisor probe` counts it, too.
        assert links.gpu_to_gpu == links.host_to_gpu / (1 if links.peer_to_peer else 2)
        geforce = any("GeForce" in card.name for card in cards)
        assert links.peer_to_peer is not geforce
    else:
        assert links.peer_to_peer and links.host_to_gpu < links.gpu_to_gpu <= 900e9


def test_every_kind_of_card_plans_the_inference_of_a_7b() -> None:
    """The smallest machine of each kind of card: there is a decision, which fits; without bf16 units in fp16."""
    kinds: dict[tuple[str, ...], str] = {}
    for name in sorted(NAMES, key=lambda name: len(load_profile(name).cards)):
        kinds.setdefault(tuple(sorted({card.name for card in load_profile(name).cards})), name)
    for name in kinds.values():
        question = ask("meta-llama/Llama-2-7b-hf", "inference", hardware=name)
        found = decide(question.model, question.machine, question.workload).chosen
        assert found is not None and found.job is not None and found.budget is not None, name
        assert all(
            gpu.required + gpu.runtime <= room
            for gpu, room in zip(found.budget.gpus, question.machine.capacities, strict=False)
        ), name
        assert question.machine.cards[0].has_bf16 or found.job.precision == "fp16", name


def test_cards_of_one_name_agree() -> None:
    seen: dict[str, Any] = {}
    for name in NAMES:
        for card in load_profile(name).gpus:
            same = card.model_dump(exclude={"count"})
            assert seen.setdefault(card.name, same) == same or card.memory_total != seen[card.name]["memory_total"]


@pytest.mark.parametrize(("name", "mib"), SMI.items())
def test_memory_as_nvml_reports_it(name: str, mib: int) -> None:
    assert load_profile(name).gpus[0].memory_total == mib * MIB


def test_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(InputError, match="h200-x8"):
        load_profile("h200-x9")


def test_select_refuses_more_than_there_is() -> None:
    profile = load_profile("h200-x2")
    assert select(profile, gpus=1).gpu_count == 1
    assert select(profile, gpu_memory=24 << 30).capacities == (24 << 30,) * 2
    for more in ({"gpus": 3}, {"gpu_memory": 200 << 30}):
        with pytest.raises(InputError):
            select(profile, **more)  # type: ignore[arg-type]
