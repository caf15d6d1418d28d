"""Every strategy of the registry keeps the protocol: sentences, complete jobs, budgets, times and plans that agree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from advisor.execute.launch import check
from advisor.hardware.profile import Disk, HardwareProfile
from advisor.job import STRATEGY_NAMES, Job, StrategyName, Workload
from advisor.models.spec import ModelSpec
from advisor.plan import PlanLaunch
from advisor.strategies import limits
from advisor.strategies.base import PlanParts, Strategy
from advisor.strategies.registry import STRATEGIES
from tests.strategies import tiny

MODELS = {"llama": tiny.LLAMA, "gpt2": tiny.GPT2, "t5": tiny.T5, "bert": tiny.BERT}
WORKLOADS = {"finetune": tiny.finetune(), "inference": tiny.inference()}
MACHINES = {
    "one": tiny.machine(1),
    "four": tiny.machine(4, disk=Disk(path="/scratch", kind="nvme", free=4 << 40, async_io=True)),
    "two nodes": tiny.machine(2, nodes=2, links=tiny.machine().links.model_copy(update={"network": 12e9})),
    "none": tiny.machine(0),
}


def jobs(strategy: Strategy, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterator[Job]:
    if strategy.refuses(model, machine, workload) is None:
        for job in strategy.jobs(model, machine, workload):
            if limits.objection(model, machine, workload, job) is None:
                settled = strategy.settle(model, machine, job)
                assert isinstance(settled, Job), settled
                yield settled


def test_the_registry_names_every_strategy() -> None:
    assert set(STRATEGIES) == set(STRATEGY_NAMES) == set(get_args(StrategyName))
    assert all(strategy.name == name and strategy.title for name, strategy in STRATEGIES.items())


@pytest.mark.parametrize("name", STRATEGY_NAMES)
@pytest.mark.parametrize("task", WORKLOADS)
def test_without_a_gpu_every_strategy_refuses(name: StrategyName, task: str) -> None:
    reason = STRATEGIES[name].refuses(tiny.model(), MACHINES["none"], WORKLOADS[task])
    assert reason and not reason.endswith(".")


@pytest.mark.parametrize("name", STRATEGY_NAMES)
@pytest.mark.parametrize("task", WORKLOADS)
@pytest.mark.parametrize("where", ["one", "four", "two nodes"])
def test_jobs_are_complete_and_agree_with_their_plan(name: StrategyName, task: str, where: str) -> None:
    strategy, machine, workload = STRATEGIES[name], MACHINES[where], WORKLOADS[task]
    model = tiny.model()
    for job in jobs(strategy, model, machine, workload):
        assert job.strategy == name and job.task == task
        assert (job.method is not None) == job.trains
        assert job.gpus % job.nodes == 0 and job.gpus // job.nodes <= len(machine.cards)
        assert job.expandable_segments
        if job.trains:
            assert job.global_batch_size == workload.global_batch_size
        _agree(job, strategy.plan(model, machine, job), machine)


def _agree(job: Job, parts: PlanParts, machine: HardwareProfile) -> None:
    start = parts.launch
    launch = PlanLaunch(launcher=start.launcher, argv=start.argv, environment=dict(start.environment))  # type: ignore[arg-type]
    check(launch, "plan.json")
    ranks = job.world_size // job.nodes
    if start.launcher == "python":
        assert job.world_size == 1
    else:
        assert any(word.rpartition("=")[2] == str(ranks) for word in start.argv)
    if start.launcher != "deepspeed":
        assert len(start.environment["CUDA_VISIBLE_DEVICES"].split(",")) == job.gpus // job.nodes
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        assert start.environment[name] == "expandable_segments:True"
    for part in (parts.deepspeed, parts.accelerate, parts.device_map, parts.max_memory, parts.estimators):
        json.dumps(part)
    assert all(isinstance(sentence, str) and sentence for sentence in parts.steps)
    assert (parts.deepspeed is not None) == (job.strategy in ("zero2", "zero3"))
    assert (parts.device_map is not None) == (job.strategy == "device_map")
    if parts.accelerate is not None:
        assert parts.accelerate["num_processes"] == job.world_size
        assert parts.accelerate["num_machines"] == job.nodes
    if parts.deepspeed is not None:
        _deepspeed_agrees(job, parts.deepspeed)


def _deepspeed_agrees(job: Job, config: Any) -> None:
    assert config["train_micro_batch_size_per_gpu"] == job.micro_batch_size
    assert config["gradient_accumulation_steps"] == job.gradient_accumulation_steps
    assert config["train_batch_size"] == job.micro_batch_size * job.gradient_accumulation_steps * job.world_size
    assert config["bf16"]["enabled"] == job.precision.startswith("bf16")
    zero = config["zero_optimization"]
    assert zero["stage"] == (2 if job.strategy == "zero2" else 3)
    assert ("offload_param" in zero) == (job.offload_param is not None)
    assert ("offload_optimizer" in zero) == (job.offload_optimizer is not None)
    assert zero["reduce_bucket_size"] == job.zero.reduce_bucket_size
    assert "auto" not in json.dumps(config)
    assert ("optimizer" in config) == (job.trains and job.zero_optimizer != "client")


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("task", WORKLOADS)
def test_budgets_and_times_of_every_family(family: str, task: str) -> None:
    """Every first job of a strategy has a budget for each of its cards and, where rates are known, a speed."""
    model, machine, workload = tiny.model(MODELS[family]), MACHINES["four"], WORKLOADS[task]
    for strategy in STRATEGIES.values():
        job = next(jobs(strategy, model, machine, workload), None)
        if job is None:
            continue
        budget = strategy.budget(model, machine, job)
        assert len(budget.gpus) == job.gpus
        for gpu in budget.gpus:
            assert 0 < gpu.allocated <= gpu.required <= gpu.reserved
            assert sum(gpu.parts.values()) == gpu.allocated
        time = strategy.time(model, machine, job)
        assert time.step_seconds if job.trains else time.prefill_seconds


@pytest.mark.parametrize("where", ["four", "two nodes"])
def test_every_kind_of_work_has_a_job_somewhere(where: str) -> None:
    model, machine = tiny.model(), MACHINES[where]
    found = [
        job for strategy in STRATEGIES.values() for workload in WORKLOADS.values()
        for job in jobs(strategy, model, machine, workload)
    ]  # fmt: skip
    assert {job.method for job in found} == {None, "full", "lora", "qlora"}
    assert {job.quantization for job in found} == {None, "nf4", "int8"}
    assert {job.offload_param for job in found} == ({None, "cpu", "nvme"} if machine.disk.path else {None, "cpu"})
    assert {job.nodes for job in found} == ({1} if where == "four" else {1, 2})
