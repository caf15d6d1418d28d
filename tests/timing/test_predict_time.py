"""The time model on a small trace made by hand, where each part can be counted on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.profile import Disk, Gpu, HardwareProfile, Host, Links, Measured
from advisor.job import Job
from advisor.memory.trace.types import Operator, Param, Segment, Stack, Trace
from advisor.models.spec import ModelSpec
from advisor.timing import predict
from advisor.timing.rates import (
    CUDNN_NEXT_PLAN_SECONDS,
    MATRIX_EFFICIENCY,
    MEMORY_EFFICIENCY,
    TENSOR_PARALLEL_SECONDS,
    ZERO3_GATHER_SECONDS,
    ZERO3_MODULE_SECONDS,
    rates,
)
from advisor.timing.work import device_seconds, phases

MODEL = ModelSpec(
    name="m", asked="m", loader_repo="m", source="catalogue", kind="causal", parameters=10**9,
    config={"model_type": "llama", "num_hidden_layers": 12, "hidden_size": 1024},
)  # fmt: skip
GPU = Gpu(
    name="card", count=2, memory_total=80 << 30, compute_capability="9.0", memory_bandwidth=2e12, bf16_flops=500e12,
    fp16_flops=500e12, fp32_flops=50e12,
)  # fmt: skip
MACHINE = HardwareProfile(
    name="machine",
    gpus=(GPU,),
    host=Host(memory_bandwidth=100e9),
    links=Links(gpu_to_gpu=200e9, host_to_gpu=25e9, gpu_to_host=25e9, network=25e9),
    disk=Disk(read=2e9),
)
STACK = Stack("dec", 1, 1, 1, 12)
PHASES = ("forward", "backward", "prefill", "decode")


def small_trace() -> Trace:
    """Three cut layers of one matrix product and one element-wise kernel each, and a head after them."""
    segments, operators = [], []
    for phase in PHASES:
        part = 10**6 if phase == "decode" else 1  # a token does next to nothing
        for layer in (0, 1, 2):
            segments.append(Segment(phase, 0, "dec", layer))
            operators.append(
                (
                    Operator(1, 10**12 // part, 10**9 // part, "matmul:bf16:10"),
                    Operator(2, 0, 2 * 10**9 // part, "other:bf16:0"),
                )
            )
        segments.append(Segment(phase, 0, "dec", -2))
        operators.append((Operator(1, 10**11 // part, 10**9 // part, "matmul:fp32:7"),))
    params = [
        Param(f"layers.{layer}.{name}.weight", 80_000_000, 2, 160_000_000, True, "dec", layer)
        for layer in (0, 1, 2)
        for name in ("up", "down")
    ]
    return Trace(tuple(segments), (), tuple(operators), tuple(params), 0, (STACK,))


@pytest.fixture(autouse=True)
def _trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "trace_of", lambda model, job: small_trace())


def train(**changes: Any) -> Job:
    return Job(**{"task": "finetune", "strategy": "single", "method": "full", **changes})


def generate(**changes: Any) -> Job:
    return Job(**{"task": "inference", "strategy": "single", "max_new_tokens": 11, **changes})


def step(job: Job, machine: HardwareProfile = MACHINE) -> float:
    seconds = predict.predict_time(MODEL, machine, job).step_seconds
    assert seconds is not None
    return seconds


def test_the_template_layer_counts_as_often_as_it_stands_in_the_model() -> None:
    work = phases(small_trace())["forward"]
    assert work.operators == 12 * 2 + 1
    assert work.sums["matmul:bf16:10"] == (12e12, 12e9)


def test_device_time_is_the_longer_of_arithmetic_and_traffic() -> None:
    seconds = device_seconds(phases(small_trace())["forward"], rates(MACHINE))
    compute = 12e12 / (500e12 * MATRIX_EFFICIENCY) + 1e11 / (50e12 * MATRIX_EFFICIENCY)
    assert seconds == pytest.approx((compute, 24e9 / (2e12 * MEMORY_EFFICIENCY)))


def test_measured_rates_replace_the_data_sheet() -> None:
    slow = MACHINE.model_copy(
        update={"measured": Measured(date="2026-01-01", method="probe", bf16_flops=200e12, gpu_memory_bandwidth=0.9e12)}
    )
    assert rates(slow).matrix["bf16"] == pytest.approx(250e12 * MATRIX_EFFICIENCY)
    assert rates(slow).memory == pytest.approx(1e12 * MEMORY_EFFICIENCY)
    assert step(train(), slow) > step(train())


def test_parts_add_up_and_tokens_follow() -> None:
    job = train(strategy="ddp", gpus=2, micro_batch_size=3, sequence_length=100)
    time = predict.predict_time(MODEL, MACHINE, job)
    assert time.step_seconds == pytest.approx(sum(time.parts.values()))
    assert time.tokens_per_second == pytest.approx(600 / (time.step_seconds or 0))
    tokens = predict.predict_time(MODEL, MACHINE, generate(micro_batch_size=4))
    token = 4 / (tokens.decode_tokens_per_second or 0)
    assert token == pytest.approx(sum(tokens.parts.values()))
    assert tokens.tokens_per_second == pytest.approx(44 / ((tokens.prefill_seconds or 0) + 10 * token))


def test_what_a_profile_does_not_know_stays_unknown() -> None:
    def without(**parts: Any) -> HardwareProfile:
        return MACHINE.model_copy(update=parts)

    no_host = without(host=Host())
    offloaded = train(strategy="zero2", gpus=2, offload_optimizer="cpu")
    assert predict.predict_time(MODEL, no_host, offloaded).step_seconds is None
    assert step(train(), no_host) == step(train())
    no_links = without(links=Links())
    assert predict.predict_time(MODEL, no_links, train(strategy="ddp", gpus=2)).step_seconds is None
    assert predict.predict_time(MODEL, no_links, train()).load_seconds is None
    blind = without(gpus=(GPU.model_copy(update={"memory_bandwidth": None}),))
    assert predict.predict_time(MODEL, blind, generate()).prefill_seconds is None
    no_disk = without(disk=Disk())
    nvme = train(strategy="zero3", gpus=2, offload_optimizer="nvme", offload_param="nvme")
    assert predict.predict_time(MODEL, no_disk, nvme).step_seconds is None and step(nvme) > 0


def test_strategies_rank_as_they_do_on_machines() -> None:
    shared = {"gpus": 2, "precision": "bf16-mixed"}
    three = train(strategy="zero3", **shared)
    on_cpu = replace(three, offload_optimizer="cpu")
    both = replace(on_cpu, offload_param="cpu")
    nvme = replace(both, offload_optimizer="nvme", offload_param="nvme")
    times = [step(job) for job in (three, on_cpu, both, nvme)]
    assert times == sorted(times) and len(set(times)) == 4
    assert step(train(optimizer="adamw_torch_fused")) < step(train(optimizer="adamw_torch"))
    assert step(replace(on_cpu, zero_optimizer="deepspeed")) < step(replace(on_cpu, zero_optimizer="torch_adam"))


def test_a_slow_network_shows_between_nodes() -> None:
    two_nodes = MACHINE.model_copy(update={"nodes": 2, "links": Links(gpu_to_gpu=200e9, network=1e9)})
    job = train(strategy="ddp", gpus=4, nodes=2)
    time = predict.predict_time(MODEL, two_nodes, job)
    moved = 2 * (3 / 4) * 12 * 160e6 * 2 / (1e9 * 0.75)
    assert time.parts["communication"] == pytest.approx(moved, rel=0.25)


def test_cudnn_plans_count_once_a_card_and_only_where_it_is_asked() -> None:
    def token(machine: HardwareProfile, **changes: Any) -> float:
        rate = predict.predict_time(MODEL, machine, generate(**changes)).decode_tokens_per_second
        return 1 / (rate or 0)

    older = MACHINE.model_copy(update={"gpus": (GPU.model_copy(update={"compute_capability": "8.0"}),)})
    one, two = token(MACHINE), token(MACHINE, strategy="device_map", gpus=2)
    assert two - one == pytest.approx(CUDNN_NEXT_PLAN_SECONDS)
    assert token(older) < one and token(MACHINE, attention="eager") < one
    notes = predict.predict_time(MODEL, MACHINE, generate()).notes
    assert any("TORCH_CUDNN_SDPA_DEPRIORITIZED" in note for note in notes)


def test_spilled_weights_cross_pcie_at_every_token() -> None:
    job = generate(strategy="device_map", max_memory={"0": 1 << 30, "cpu": 1 << 40})
    time = predict.predict_time(MODEL, MACHINE, job)
    spilled = 24 * 160e6 - (1 << 30)
    assert time.parts["offload"] == pytest.approx(spilled / 8e9, rel=0.01)


def test_libraries_show_in_a_token() -> None:
    def token(**changes: Any) -> float:
        return sum(predict.predict_time(MODEL, MACHINE, generate(**changes)).parts.values())

    plain = token()
    assert token(strategy="zero3", gpus=2) == pytest.approx(plain + 24 * (ZERO3_MODULE_SECONDS + ZERO3_GATHER_SECONDS))
    on_cpu = predict.predict_time(MODEL, MACHINE, generate(strategy="zero3", gpus=2, offload_param="cpu"))
    assert on_cpu.parts["offload"] == pytest.approx(24 * 160e6 / 2 / 25e9)
    reductions = 2 * 12
    assert token(strategy="tensor_parallel", gpus=2) > plain + reductions * TENSOR_PARALLEL_SECONDS * 0.9


def test_loads_by_way() -> None:
    def load(**changes: Any) -> float:
        seconds = predict.predict_time(MODEL, MACHINE, generate(**changes)).load_seconds
        assert seconds is not None
        return seconds

    assert load() == pytest.approx(2e9 / 2e9)  # the disk, 2 GB/s, is slower than the copy
    cached = MACHINE.model_copy(update={"disk": Disk()})
    warm = predict.predict_time(MODEL, cached, generate()).load_seconds
    assert warm == pytest.approx(2e9 / 8e9, abs=0.2)
    assert load(quantization="int8") > load() and load(load_dtype="fp32") == pytest.approx(2 * load())


@given(st.floats(0.1, 10))
def test_a_faster_card_is_never_slower(factor: float) -> None:
    changed = GPU.model_copy(update={"bf16_flops": 500e12 * factor, "memory_bandwidth": 2e12 * factor})
    machine = MACHINE.model_copy(update={"gpus": (changed,)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "trace_of", lambda model, job: small_trace())
        assert (step(train(), machine) - step(train())) * (1 - factor) >= -1e-12
