"""A plan takes measured rates before nominal ones, and says so: the real H200's, measured on 2026-12-01."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.advise import recommend
from advisor.ask import ask
from advisor.hardware.load import load_profile
from advisor.hardware.profile import HardwareProfile
from advisor.report.words import describe_machine
from advisor.timing.rates import COPY_EFFICIENCY, MATRIX_PEAK_EFFICIENCY, rates

MEASURED = Path(__file__).parent / "recordings" / "h200-x1" / "measured.json"
QUESTION = (
    "--model",
    "HuggingFaceTB/SmolLM2-135M",
    "--task",
    "inference",
    "--seq-len",
    "512",
    "--max-new-tokens",
    "32",
)


def nominal() -> HardwareProfile:
    return load_profile(str(MEASURED)).model_copy(update={"measured": None})


def test_rates_come_from_the_machine() -> None:
    machine = load_profile(str(MEASURED))
    found, used, stated = machine.measured, rates(machine), rates(nominal())
    assert found is not None
    assert (used.to_gpu, used.to_host, used.disk) == (found.host_to_gpu, found.gpu_to_host, found.disk_read)
    assert (stated.to_gpu, stated.disk) == (machine.links.host_to_gpu, None)
    # A copy and a large product do not reach the whole of what the card has: the rates that models start from do.
    assert found.gpu_memory_bandwidth is not None and found.bf16_flops is not None
    assert used.memory is not None and stated.memory is not None
    share = found.gpu_memory_bandwidth / COPY_EFFICIENCY / 4.8e12
    assert used.memory / stated.memory == pytest.approx(share)
    products = used.matrix["bf16"], stated.matrix["bf16"]
    assert products[0] and products[1]
    assert products[0] / products[1] == pytest.approx(found.bf16_flops / MATRIX_PEAK_EFFICIENCY / 989e12)


def test_a_plan_made_with_measured_rates() -> None:
    plans = []
    for machine in (load_profile(str(MEASURED)), nominal()):
        question = ask("Qwen/Qwen2.5-1.5B", "inference", hardware=str(MEASURED), seq_len=512, max_new_tokens=32)
        advice = recommend(question.model, machine, question.workload)
        assert advice.plan is not None
        plans.append(advice.plan.steps[0].promise)
    measured, stated = plans
    assert measured.prefill_seconds and stated.prefill_seconds and measured.load_seconds and stated.load_seconds
    assert measured.prefill_seconds != stated.prefill_seconds
    assert measured.load_seconds > stated.load_seconds  # the disk is slower than the page cache that one has to assume
    assert measured.gpus[0].runtime == 718077952  # context_bytes
    assert describe_machine(load_profile(str(MEASURED))).endswith("rates measured on 2026-12-01")
    assert "measured" not in describe_machine(nominal().model_copy(update={"name": "h200"}))
