"""Every shipped profile: it loads, its numbers have sources, and cards of one name agree."""

from __future__ import annotations

from typing import Any

import pytest

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


def test_there_are_enough() -> None:
    assert len(NAMES) >= 24


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    stated = profile.model_dump(exclude={"sources", "nodes"}, exclude_none=True)
    wanted = numbers(stated) - {"gpus.count"}
    missing = {path for path in wanted if not any(key.startswith(path) for key in profile.sources)}
    assert not missing


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
