"""A predictor whose every figure is known, and records to hold against it."""

from __future__ import annotations

from advisor.errors import InputError
from advisor.hardware.profile import Gpu, HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget, GpuBudget
from advisor.models.spec import ModelSpec
from advisor.record import RunRecord
from advisor.timing.estimate import TimeEstimate
from advisor.validate.runs import Predictor

MODEL = ModelSpec(name="m", asked="m", loader_repo="m", source="catalogue", kind="causal", config={"model_type": "x"})
MACHINE = HardwareProfile(name="card", gpus=(Gpu(name="card", memory_total=1 << 30),))


def profile(name: str) -> HardwareProfile:
    if name != "card":
        raise InputError("hardware", "is not known", found=name)
    return MACHINE


def memory(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    if job.optimizer == "sgd":
        raise RuntimeError("no such optimizer\nwith a second line")
    gpu = GpuBudget(parts={}, allocated=100, reserved=120, required=105, runtime=10, load_allocated=60)
    return Budget(gpus=(gpu,) * job.gpus, host_ram=50, host_ram_load=40)


def time(model: ModelSpec, machine: HardwareProfile, job: Job) -> TimeEstimate:
    return TimeEstimate(step_seconds=1.0 if job.strategy == "ddp" else 2.0, load_seconds=3.0)


PREDICTOR = Predictor(resolve=lambda name: MODEL, profile=profile, memory=memory, time=time)


def record(
    label: str, outcome: str = "ok", cap: int | None = None, hardware: str = "card", **parts: object
) -> RunRecord:
    work = {"task": "finetune", "method": "full", "micro_batch_size": 1, "sequence_length": 8}
    how = {"name": "single", "gpus": 1}
    known = {key: parts.pop(key) for key in ("optimizer", "micro_batch_size", "task") if key in parts}
    placed = {key: parts.pop(key) for key in ("name", "gpus", "alloc_conf") if key in parts}
    return RunRecord.model_validate(
        {
            "id": label, "model": "m", "hardware": hardware, "gpu_memory_cap": cap,
            "workload": {**work, **known}, "strategy": {**how, **placed}, "measured": {"outcome": outcome, **parts},
        }
    )  # fmt: skip
