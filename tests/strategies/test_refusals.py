"""What cannot be done is refused in one sentence that holds the reason; the cases are public reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.hardware.profile import Disk, HardwareProfile, Host, Software
from advisor.job import Job, StrategyName, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies import limits
from advisor.strategies.advice import advice
from advisor.strategies.deepspeed_json import config
from advisor.strategies.registry import STRATEGIES
from advisor.units import GIB
from tests.strategies import tiny

ONE, TWO, EIGHT = tiny.machine(1), tiny.machine(2), tiny.machine(8)
MIXED = tiny.machine(gpus=(tiny.card(24), tiny.card(48, "NVIDIA A40")))
MIG = tiny.machine(gpus=(tiny.card(20, mig=True, count=2),))
APPLE = tiny.machine(
    gpus=(tiny.card(100, "Apple M3 Max", vendor="apple", unified_memory=True, compute_capability=None),)
)
TUNE, SERVE = tiny.finetune(), tiny.inference()


@pytest.mark.parametrize(
    ("name", "machine", "workload", "word"),
    [
        ("ddp", ONE, TUNE, "one GPU"),
        ("ddp", TWO, SERVE, "serve"),
        ("ddp", MIG, TUNE, "MIG"),
        ("zero2", MIG, TUNE, "MIG"),
        ("zero2", TWO, SERVE, "inference has neither"),
        ("zero2", MIXED, TUNE, "24.0 GiB to 48.0 GiB"),
        ("zero3", MIXED, TUNE, "cards differ"),
        ("zero3", APPLE, TUNE, "apple"),
        ("zero3", TWO, replace(SERVE, quantization="int8"), "int8"),
        ("tensor_parallel", TWO, TUNE, "Trainer"),
        ("tensor_parallel", ONE, SERVE, "one GPU"),
        ("tensor_parallel", MIXED, SERVE, "cards differ"),
        ("tensor_parallel", TWO, replace(SERVE, quantization="nf4"), "nf4"),
        ("device_map", ONE, TUNE, "cannot be trained"),
        ("device_map", ONE, replace(SERVE, quantization="nf4"), "CPU or disk"),
        ("device_map", APPLE, SERVE, "one pool of memory"),
    ],
)
def test_a_strategy_says_why_it_cannot_be_used(
    name: StrategyName, machine: HardwareProfile, workload: Workload, word: str
) -> None:
    reason = STRATEGIES[name].refuses(tiny.model(), machine, workload)
    assert reason is not None and word in reason


def test_heads_must_be_divisible_by_the_number_of_gpus() -> None:
    odd = tiny.model({**tiny.LLAMA, "num_attention_heads": 7, "num_key_value_heads": 7, "hidden_size": 56})
    reason = STRATEGIES["tensor_parallel"].refuses(odd, TWO, SERVE)
    assert reason == "7 attention heads cannot be split over 2 GPUs"
    groups = limits.heads_split(tiny.model(), 4)
    assert groups == "2 key and value heads cannot be split over 4 GPUs"
    worlds = [job.gpus for job in STRATEGIES["tensor_parallel"].jobs(tiny.model(), EIGHT, SERVE)]
    assert worlds == [2]


def test_an_architecture_without_a_plan_is_not_split() -> None:
    reason = STRATEGIES["tensor_parallel"].refuses(tiny.model(tiny.GPT2), TWO, SERVE)
    assert reason == "transformers has no tensor-parallel plan for gpt2"


def objection(machine: HardwareProfile, model: ModelSpec | None = None, workload: Workload = TUNE, **job: Any) -> str:
    """Why a job with these settings cannot run; empty when it can."""
    from advisor.strategies.common import job_of

    values: dict[str, Any] = {"strategy": "single", "method": "full" if workload.task == "finetune" else None}
    values |= job
    spec = model or tiny.model()
    made = job_of(spec, machine, workload, values.pop("strategy"), values.pop("method"), **values)
    return limits.objection(spec, machine, workload, made) or ""


OLD = tiny.machine(gpus=(tiny.card(16, "Tesla V100-SXM2-16GB", compute_capability="7.0", bf16_flops=None),))


def test_bf16_only_where_the_card_has_it() -> None:
    """Case E06: below compute capability 8.0 it is fp16, and asking for bf16 is refused."""
    assert objection(OLD) == ""
    assert "V100" in objection(OLD, precision="bf16") and "fp16" in objection(OLD, precision="bf16-mixed")


def test_flash_attention_needs_ampere() -> None:
    assert "8.0" in objection(OLD, attention="flash_attention_2")
    assert objection(ONE, attention="flash_attention_2") == ""


def test_quantized_layers_never_lie_on_the_host_and_never_train_there() -> None:
    """Case B07."""
    spilled = {"model.layers.0": 0, "model.layers.1": "cpu"}
    for quantization in ("nf4", "int8"):
        assert "CPU or disk" in objection(
            ONE, workload=SERVE, strategy="device_map", quantization=quantization, device_map=spilled
        )
    assert "gradients" in objection(TWO, strategy="device_map", device_map=spilled)
    assert objection(ONE, workload=SERVE, strategy="device_map", device_map=spilled) == ""


def test_eight_bits_cannot_be_sharded() -> None:
    assert "int8" in objection(TWO, strategy="zero3", method="qlora", quantization="int8", gpus=2)


def test_bitsandbytes_needs_cuda() -> None:
    amd = tiny.machine(gpus=(tiny.card(192, "AMD Instinct MI300X", vendor="amd", compute_capability=None),))
    assert "bitsandbytes" in objection(amd, method="qlora")
    assert "bitsandbytes" in objection(amd, optimizer="adamw_8bit")
    assert objection(amd, method="lora") == ""


def test_a_quantized_checkpoint_is_not_trained_in_full_nor_quantized_again() -> None:
    stored = tiny.model(quantization_config={"quant_method": "fp8"})
    assert "fp8" in objection(ONE, stored) and "fp8" in objection(ONE, stored, method="qlora")
    assert objection(ONE, stored, method="lora") == ""


def test_one_pool_of_memory_has_no_cpu_tier() -> None:
    pooled = tiny.machine(gpus=(tiny.card(120, "NVIDIA GB10", unified_memory=True),))
    assert "one pool" in objection(pooled, strategy="zero3", offload_param="cpu", offload_optimizer="cpu")


READY = {"ninja": True, "C++ compiler": True}


@pytest.mark.parametrize(
    ("software", "word"),
    [
        (Software(python="3.12", cuda="12.8", tools=READY), "no nvcc"),
        (Software(python="3.12", cuda="12.8", nvcc="11.8", tools=READY), "nvcc 11.8 does not match"),
        (Software(python="3.12", cuda="12.8", nvcc="12.4", tools={"C++ compiler": True}), "no ninja"),
        (Software(python="3.12", cuda="12.8", nvcc="12.4", tools=READY), ""),
        (Software(python="3.12", cuda="12.8", tools={"cpu_adam": True}), ""),
        (Software(), ""),
    ],
)
def test_a_cpu_optimizer_needs_the_compiler_of_torchs_cuda(software: Software, word: str) -> None:
    """Cases A11 and E06: judged only on a machine that was probed, and not where the operator is compiled already."""
    machine = tiny.machine(2, software=software)
    reason = objection(machine, strategy="zero2", gpus=2, offload_optimizer="cpu", zero_optimizer="deepspeed")
    assert (word in reason) if word else reason == ""


def test_nothing_is_pinned_under_wsl() -> None:
    """Windows limits pinned memory: DeepSpeed's buffers stay pageable, in its file, too."""
    strategy = STRATEGIES["zero3"]
    for wsl in (False, True):
        machine = tiny.machine(2, host=Host(memory_total=256 * GIB, wsl=wsl))
        base = Job(
            task="finetune",
            strategy="zero3",
            method="full",
            gpus=2,
            offload_optimizer="cpu",
            zero_optimizer="deepspeed",
        )
        job = strategy.settle(tiny.model(), machine, base)
        assert not isinstance(job, str)
        file = config(tiny.model(), machine, job)
        assert file["zero_optimization"]["offload_optimizer"]["pin_memory"] is not wsl
        assert any("unpinned" in sentence for sentence in advice(tiny.model(), machine, job)) == wsl


def test_nvme_needs_async_io_and_room() -> None:
    """Case E06: sixteen bytes a parameter of optimizer state."""
    big = tiny.model(parameters=8_000_000_000)
    settings: dict[str, Any] = {
        "strategy": "zero3", "gpus": 2, "offload_optimizer": "nvme", "offload_param": "nvme", "zero_optimizer": "deepspeed"
    }  # fmt: skip
    without = tiny.machine(2, disk=Disk(path="/nvme", free=500 * GIB, async_io=False))
    small = tiny.machine(2, disk=Disk(path="/nvme", free=100 * GIB, async_io=True))
    ample = tiny.machine(2, disk=Disk(path="/nvme", free=500 * GIB, async_io=True))
    assert "async_io" in objection(without, big, **settings)
    assert "119.2 GiB" in objection(small, big, **settings)
    assert objection(ample, big, **settings) == ""


def test_nodes_need_a_network() -> None:
    nodes = tiny.machine(2, nodes=2)
    assert "no network" in objection(nodes, strategy="ddp", gpus=4, nodes=2)


def test_a_global_batch_that_does_not_come_out_even() -> None:
    workload = tiny.finetune(global_batch_size=12)
    assert "global batch of 12" in objection(EIGHT, workload=workload, strategy="ddp", gpus=8)
