"""Each row of ``known_bad.toml``: the versions that its report names hold, the fixed ones do not."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from advisor.hardware.probe import probe
from advisor.hardware.system import PACKAGES
from advisor.software.known_bad import find, table
from tests.hardware.traps import card, readings

DEEPSPEED, TRAINER = {"deepspeed", "trainer"}, {"trainer"}
PRO = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
# id: tags of the job, versions as reported, what the fix changes.
REPORTS: dict[str, tuple[set[str], dict[str, str], dict[str, str]]] = {
    "lora-deepspeed-strict-zip": (
        {"lora", *DEEPSPEED}, {"torch": "2.13.0", "transformers": "4.57.6", "deepspeed": "0.19.4"},
        {"transformers": "5.1.0"},
    ),
    "deepspeed-numpy-2": (DEEPSPEED, {"deepspeed": "0.14.3", "numpy": "2.0.0"}, {"numpy": "1.26.4"}),
    "deepspeed-no-sync": (DEEPSPEED, {"deepspeed": "0.16.0", "transformers": "4.46.1"}, {"deepspeed": "0.15.4"}),
    "deepspeed-resume-weights-only": (DEEPSPEED, {"torch": "2.6.0", "deepspeed": "0.15.4"}, {"deepspeed": "0.16.9"}),
    "trainer-resume-rng-state": (TRAINER, {"torch": "2.6.0", "transformers": "4.46.3"}, {"transformers": "4.47.0"}),
    "trainer-keep-torch-compile": (TRAINER, {"transformers": "4.52.4", "accelerate": "1.2.1"}, {"accelerate": "1.3.0"}),
    "trainer-dispatch-batches": (TRAINER, {"transformers": "4.39.3", "accelerate": "1.0.1"}, {"accelerate": "0.34.2"}),
    "peft-encoder-decoder-cache": ({"lora"}, {"peft": "0.14.0", "transformers": "4.39.3"}, {"peft": "0.13.2"}),
    "bitsandbytes-triton-ops": ({"qlora"}, {"bitsandbytes": "0.44.1", "triton": "3.2.0"}, {"bitsandbytes": "0.45.2"}),
    "flash-attn-torch-2.6": (set(), {"flash-attn": "2.8.0.post2", "torch": "2.6.0+cu124"}, {"flash-attn": "2.7.4.post1"}),
    "nccl-2.26-host-memory": (
        {"several_gpus"}, {"torch": "2.7.0+cu126", "nvidia-nccl-cu12": "2.26.2"}, {"nvidia-nccl-cu12": "2.26.5"}
    ),
    "nccl-2.26-rtx-pro-6000": (
        {"several_gpus"}, {"torch": "2.7.1", "nvidia-nccl-cu12": "2.26.2"}, {"nvidia-nccl-cu12": "2.31.2"}
    ),
}  # fmt: skip


def test_every_row_has_a_report_and_a_source() -> None:
    assert [row.id for row in table()] == list(REPORTS)
    for row in table():
        assert row.source.startswith("https://github.com/") and row.happens and row.fix
        assert set(row.when) <= {"lora", "qlora", "deepspeed", "trainer", "offload_optimizer", "several_gpus"}
        # A probe must look for what a row is about.
        assert set(row.packages) <= set(PACKAGES)
        assert all(SpecifierSet(specifier) for specifier in row.packages.values())


@pytest.mark.parametrize("name", REPORTS)
def test_reported_versions_hold_and_fixed_ones_do_not(name: str) -> None:
    tags, reported, fixed = REPORTS[name]
    assert name in [row.id for row in find(reported, tags, [PRO])]
    assert name not in [row.id for row in find(reported | fixed, tags, [PRO])]
    if tags:
        assert name not in [row.id for row in find(reported, set(), [PRO])]


@pytest.mark.parametrize(("model", "told"), [(PRO, True), ("NVIDIA H200", False)])
def test_some_rows_concern_some_cards(model: str, told: bool) -> None:
    more: dict[str, Any] = {"packages": {"torch": "2.7.1", "nvidia-nccl-cu12": "2.26.2"}}
    machine = probe(readings((card(0, model), card(1, model)), more=more))
    assert any("illegal memory access" in note for note in machine.notes) == told


def test_the_real_machine_has_none() -> None:
    """torch 2.11.0, transformers 5.17.0, accelerate 1.15.0, DeepSpeed 0.19.8: the measured runs went through."""
    installed = {"torch": "2.11.0", "transformers": "5.17.0", "accelerate": "1.15.0", "deepspeed": "0.19.8"}
    assert find(installed) == ()
