"""What a newcomer asks first, on machines that are not here: the answers say what the issue promises."""

from __future__ import annotations

import sys

import pytest

from advisor import cli
from advisor.hardware.load import load_profile
from advisor.hardware.profile import HardwareProfile, Host
from advisor.job import Workload
from advisor.models.resolve import resolve
from advisor.strategies.search import candidates
from advisor.units import GIB


def test_a_machine_without_gpu_says_so_and_names_profiles_that_would_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = HardwareProfile(name="this machine", host=Host(memory_total=16 * GIB), here=True)
    monkeypatch.setattr("advisor.hardware.load.this_machine", lambda: bare)
    words = ["advisor", "recommend", "--model", "meta-llama/Llama-2-70b", "--task", "inference"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().out
    assert ended.value.code == 1
    assert "This machine has no GPU" in said and "Machines that would do" in said
    ways = [line.split()[1:] for line in said.splitlines() if line.startswith("  - ")]
    assert {profile.rstrip(":") for profile, *_ in ways} >= {"h200", "a100-40g"}  # 16 bits, and 4 bits
    assert "meta-llama/Llama-2-70b-hf" in said and "is gated" in said


def test_plain_zero3_of_a_70b_on_8_x_141_gb_is_refused_with_numbers() -> None:
    """18 bytes x 69e9 / 8 are 144.5 GiB, and the card has 140.4; offloaded, the host's need is stated."""
    model, machine = resolve("meta-llama/Llama-2-70b"), load_profile("h200-x8")
    asked = Workload(task="finetune", method="full", strategy="zero3")
    found = {candidate.label: candidate for candidate in candidates(model, machine, asked)}
    plain = found["zero3/full"]
    assert not plain.fits
    assert "18 bytes x 69B / 8 = 144.5 GiB of states" in plain.reason and "140.4 GiB of the card" in plain.reason
    offloaded = found["zero3+cpu-optimizer/full"]
    assert offloaded.fits and "GiB of host RAM" in offloaded.reason
    assert offloaded.budget is not None and offloaded.budget.host_ram > 16 * 68_976_648_192


def test_a_70b_on_one_24_gb_card_is_short_of_what_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["advisor", "recommend", "--model", "meta-llama/Llama-2-70b", "--task", "finetune", "--method", "qlora"]
    monkeypatch.setattr(sys, "argv", [*words, "--hardware", "rtx4090-x1"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().out
    assert ended.value.code == 1
    assert "Nothing fits on rtx4090-x1: single/qlora comes nearest and is short of 22." in said
    assert "Nearest ways out" in said
