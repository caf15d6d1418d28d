"""Public reports and measured families decided with the real predictions on shipped profiles.

Ids are those of the collection of public reports ("C01": LlamaFactory issue 5977, and so on); each test says the right
answer in its name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.advise import recommend
from advisor.ask import ask
from advisor.cli import app
from advisor.decide.facts import way_of
from advisor.decide.types import Candidate, Decision
from advisor.deciding import decide
from advisor.strategies.common import parameter_count
from advisor.strategies.registry import STRATEGIES
from advisor.units import GIB


@cache
def _decision(model: str, task: str, hardware: str, options: tuple[tuple[str, Any], ...]) -> Decision:
    question = ask(model, task, hardware=hardware, **dict(options))
    return decide(question.model, question.machine, question.workload)


def decision(model: str, task: str, hardware: str, **options: Any) -> Decision:
    return _decision(model, task, hardware, tuple(sorted(options.items())))


def way(found: Decision) -> str | None:
    return way_of(found.chosen) if found.chosen else None


def of(found: Decision, name: str) -> Candidate:
    return next(c for c in found.candidates if c.job is not None and way_of(c) == name)


# --- families of measured runs: the fastest that was measured to fit (two H200s, a cap on torch's allocator) ------------


@pytest.mark.parametrize("runtime", [0.75, 2.05])  # what lies outside the allocator: one process, two under ZeRO-2
@pytest.mark.parametrize(
    ("model", "task", "cap", "best", "options"),
    [
        ("meta-llama/Llama-3.2-1B", "finetune", 24, "zero2", {"method": "full", "batch_size": 4, "seq_len": 1024}),
        ("meta-llama/Llama-2-7b-hf", "finetune", 80, "zero3", {"method": "full", "batch_size": 2, "seq_len": 1024}),
        ("meta-llama/Llama-2-7b-hf", "finetune", 16, "ddp", {"method": "lora", "batch_size": 2, "seq_len": 1024}),
        ("meta-llama/Llama-2-7b-hf", "inference", 10, "single_nf4",
         {"batch_size": 4, "seq_len": 512, "max_new_tokens": 24}),
    ],
)  # fmt: skip
def test_the_fastest_measured_to_fit_is_chosen(
    model: str, task: str, cap: int, best: str, options: dict[str, Any], runtime: float
) -> None:
    checkpointing = {"gradient_checkpointing": True} if task == "finetune" else {}
    found = decision(model, task, "h200-x2", gpu_memory=int((cap + runtime) * GIB), **options, **checkpointing)
    assert way(found) == best


def test_a_measured_family_decided_from_the_command_line(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    asked = "recommend --model meta-llama/Llama-2-7b-hf --task finetune --method lora --batch-size 2 --seq-len 1024"
    flags = f"--gradient-checkpointing --hardware h200-x2 --gpu-memory 17.58GiB --json --out {plan}"
    done = CliRunner().invoke(app, [*asked.split(), *flags.split()])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)["decision"]
    assert (answer["strategy"], answer["method"], answer["settings"]["gpus"]) == ("ddp", "lora", 2)
    assert json.loads(plan.read_text())["steps"][0]["job"]["strategy"] == "ddp"


# --- public reports ---------------------------------------------------------------------------------------------------


def test_c01_an_8b_on_8_x_24_gib_offloads_from_zero3() -> None:
    found = decision(
        "meta-llama/Meta-Llama-3-8B-Instruct", "finetune", "rtx3090-x8", method="full", batch_size=1, seq_len=1024
    )
    assert way(found) == "zero3_cpu"
    chosen = found.chosen
    assert chosen is not None and chosen.budget is not None
    assert 8 <= chosen.budget.fullest.needed / 1e9 <= 14.5
    assert 144.5 <= chosen.budget.host_ram / 1e9 <= 144.5 * 1.5
    plain = of(found, "zero3")
    assert not plain.fits or (plain.headroom or 0) < 0.16


def test_c02_a_32b_on_8_h200_is_not_for_zero2() -> None:
    found = decision("Qwen/Qwen3-32B", "finetune", "h200-x8", method="full", batch_size=1, seq_len=1024)
    assert way(found) == "zero3"
    zero2 = of(found, "zero2")
    assert not zero2.fits and zero2.budget is not None
    assert max(zero2.budget.phases, key=lambda name: zero2.budget.phases[name]) == "step"  # type: ignore[union-attr]


@pytest.mark.parametrize(("ram", "verdicts"), [
    ("600GB", {"does_not_fit"}), ("744GB", {"does_not_fit"}), ("775GB", {"tight"}), ("1000GB", {"fits"}),
])  # fmt: skip
def test_c04_host_ram_of_a_32b_under_offload(ram: str, verdicts: set[str]) -> None:
    found = decision(
        "Qwen/Qwen2.5-32B-Instruct", "finetune", "a100-40g-x8", method="full", batch_size=1, host_memory=ram
    )
    seen = {c.verdict for c in found.candidates if c.job and c.strategy == "zero3" and c.job.offload_param == "cpu"}
    assert seen == verdicts
    # The profile knows no disk, and an unknown disk is never what makes a job fit.
    assert way(found) == (None if verdicts == {"does_not_fit"} else "zero3_cpu")


def test_c04_short_of_host_ram_a_known_disk_lora_or_more_nodes_are_the_ways_out() -> None:
    options = {"method": "full", "batch_size": 1, "host_memory": "600GB"}
    question = ask("Qwen/Qwen2.5-32B-Instruct", "finetune", hardware="a100-40g-x8", **options)
    advice = recommend(question.model, question.machine, question.workload)
    assert advice.decision.chosen is None and advice.decision.ways_out[0].startswith("--method lora:")
    disk = question.machine.disk.model_copy(update={"free": 4000 * GIB, "path": "/scratch", "async_io": True})
    with_disk = question.machine.model_copy(update={"disk": disk})
    assert way(decide(question.model, with_disk, question.workload)) == "zero3_nvme"
    nodes = decision("Qwen/Qwen2.5-32B-Instruct", "finetune", "a100-40g-x8", nodes=2, **options)
    assert nodes.chosen is not None and nodes.chosen.job is not None and nodes.chosen.job.nodes == 2


def test_c05_every_rank_loads_the_checkpoint_unless_zero_init_came_first() -> None:
    options = {"gpus": 2, "method": "lora", "batch_size": 1, "strategy": "zero3", "host_memory": "482GB"}
    question = ask("Qwen/Qwen3-30B-A3B", "finetune", hardware="b200-x8", **options)
    advice = recommend(question.model, question.machine, question.workload)
    chosen, plan = advice.decision.chosen, advice.plan
    assert chosen is not None and chosen.job is not None and chosen.job.zero_init and plan is not None
    assert any("before from_pretrained, or every rank loads the whole model" in line for line in plan.main.advice)
    late = replace(chosen.job, zero_init=False)
    first, after = (
        STRATEGIES["zero3"].budget(question.model, question.machine, job).host_ram_load for job in (chosen.job, late)
    )
    checkpoint = 2 * parameter_count(question.model)
    assert first < checkpoint / 4
    assert after == pytest.approx(2 * checkpoint, rel=0.15)


def test_c08_a_70b_by_lora_on_8_x_80_and_qlora_on_2_x_40_but_not_2_x_24() -> None:
    asked = {"lora_rank": 8, "seq_len": 2048}
    lora = decision("meta-llama/Llama-2-70b-hf", "finetune", "h100-x8", method="lora", batch_size=8, **asked)
    assert way(lora) == "zero3"
    qlora = decision("meta-llama/Llama-2-70b-hf", "finetune", "a100-40g-x2", method="qlora", batch_size=2, **asked)
    assert way(qlora) == "zero3"
    small = decision("meta-llama/Llama-2-70b-hf", "finetune", "rtx4090-x2", method="qlora", batch_size=2, **asked)
    assert small.chosen is None and small.missing_bytes > GIB
    assert not any(c.job and c.job.method == "qlora" and c.job.offload_param for c in small.candidates)


def test_c12_an_8b_whole_on_one_card_by_a_lean_optimizer() -> None:
    found = decision("meta-llama/Llama-3.1-8B", "finetune", "rtxa6000", method="full", batch_size=1, seq_len=2048)
    assert way(found) == "single" and found.chosen is not None and found.chosen.job is not None
    assert "8bit" in found.chosen.job.optimizer
    tiny = decision("meta-llama/Llama-3.1-8B", "finetune", "rtx4090-x1", method="full", batch_size=2, seq_len=2048)
    assert "steps inside the backward" in of(tiny, "single").reason


def test_c14_an_8b_on_40_gib_offloads_from_zero3_rather_than_zero2() -> None:
    found = decision("meta-llama/Meta-Llama-3-8B", "finetune", "a100-40g-x2", method="full", batch_size=2, seq_len=1024)
    assert way(found) == "zero3_cpu"
    old = decision("facebook/opt-6.7b", "finetune", "v100-16g-x8", gpus=2, method="full", batch_size=8, seq_len=1024)
    assert not of(old, "zero2_cpu").fits


def test_c18_a_40b_cannot_be_replicated_on_24_gib() -> None:
    found = decision("tiiuae/falcon-40b", "finetune", "a10g-x8", method="lora", batch_size=1)
    assert found.chosen is not None and found.chosen.strategy == "zero3"
    assert not of(found, "zero2").fits and not of(found, "ddp").fits
    assert not any(c.job and c.strategy == "zero2" and c.job.offload_param for c in found.candidates)


def test_f01_a_72b_in_4_bits_lies_whole_on_each_80_gib_card_or_is_sharded_in_bf16_storage() -> None:
    found = decision("Qwen/Qwen2.5-72B-Instruct", "finetune", "h100-x8", method="qlora", batch_size=1, seq_len=4096)
    assert found.chosen is not None and found.chosen.fits
    whole = of(found, "ddp").budget
    assert whole is not None and whole.fullest.load_allocated / (1 << 20) == pytest.approx(46448.6, rel=0.12)
    sharded = of(found, "zero3").job
    assert sharded is not None and sharded.lora is not None
    assert sharded.bnb_4bit_quant_storage == sharded.load_dtype == sharded.lora.dtype == "bf16"


def test_a02_lora_on_several_gpus_is_ddp_without_a_device_map() -> None:
    found = decision("Qwen/Qwen2.5-7B", "finetune", "a100-40g-x4", method="lora", batch_size=1, seq_len=1024)
    assert way(found) == "ddp" and found.chosen is not None and found.chosen.job is not None
    assert found.chosen.job.device_map is None


def test_a08_8_bit_training_keeps_the_whole_model_on_each_ranks_card() -> None:
    found = decision(
        "EleutherAI/gpt-j-6b",
        "finetune",
        "rtx2080ti-x8",
        method="qlora",
        quantization="int8",
        batch_size=1,
        seq_len=512,
    )
    assert way(found) in ("ddp", "single") and found.chosen is not None and found.chosen.budget is not None
    weights = found.chosen.budget.fullest.parts["weights"]
    assert weights / 1e9 == pytest.approx(6.1, rel=0.25)
    assert "int8" in next(c.reason for c in found.candidates if c.strategy == "zero3")


def test_b02_a_quantized_27b_is_spread_evenly_over_8_x_24_gb() -> None:
    found = decision("google/gemma-3-27b-it", "finetune", "a10g-x8", method="qlora", batch_size=1, seq_len=512)
    mapped = of(found, "device_map")
    assert mapped.fits and mapped.budget is not None
    held = [gpu.parts.get("weights", 0) for gpu in mapped.budget.gpus]
    assert max(held) <= 0.6 * 24e9


def test_b07_bitsandbytes_never_spills_and_7b_in_8_bits_fits_a_t4() -> None:
    found = decision("meta-llama/Llama-2-7b-hf", "inference", "t4", quantization="int8", seq_len=512)
    assert way(found) == "single_int8" and found.chosen is not None and found.chosen.budget is not None
    assert found.chosen.budget.fullest.parts["weights"] / 1e9 == pytest.approx(7.0, rel=0.1)
    small = decision(
        "meta-llama/Llama-2-7b-hf", "inference", "t4", quantization="int8", seq_len=512, gpu_memory=5 * GIB
    )
    assert small.chosen is None
    assert all("cpu" not in way_of(c) for c in small.candidates if c.job and c.job.quantization)
