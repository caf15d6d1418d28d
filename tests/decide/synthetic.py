"""Candidates made up for tests of decisions: needs grow with the batch, fits follows from the card."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from advisor.decide.types import Candidate
from advisor.hardware.profile import Gpu, HardwareProfile, Host, Links
from advisor.job import Job, Method, StrategyName
from advisor.memory.budget import Budget, GpuBudget
from advisor.models.spec import ModelSpec
from advisor.strategies.verdict import judge
from advisor.timing.estimate import TimeEstimate
from advisor.units import GIB

# So small that DeepSpeed's own count of its states never decides: needs are what a candidate says.
MODEL = ModelSpec(
    name="made/up", asked="made/up", loader_repo="made/up", source="catalogue", kind="causal",
    config={"model_type": "llama"}, parameters=1_000_000,
)  # fmt: skip


def machine(memory: float = 24, gpus: int = 2, host: float = 256, nodes: int = 1, **links: Any) -> HardwareProfile:
    """``gpus`` cards of ``memory`` GiB a node, ``host`` GiB of RAM."""
    card = Gpu(name="test card", count=gpus, memory_total=int(memory * GIB), compute_capability="9.0")
    return HardwareProfile(
        name="test", nodes=nodes, gpus=(card,), host=Host(memory_total=int(host * GIB)),
        links=Links(gpu_to_gpu_kind="nvlink", network=50e9 if nodes > 1 else None, **links),
    )  # fmt: skip


def candidate(
    on: HardwareProfile, strategy: StrategyName, need: float, *, method: Method | None = "full", speed: float | None = 100.0,
    host: float = 1.0, error: float = 0.25, **job: Any,
) -> Candidate:  # fmt: skip
    """A candidate that needs ``need`` GiB of each GPU and ``host`` GiB of RAM, judged against ``on``."""
    made = Job(task="finetune" if method else "inference", strategy=strategy, method=method, **job)
    gpu = GpuBudget(
        parts={"weights": int(need * GIB)}, allocated=int(need * GIB), reserved=int(need * GIB),
        required=int(need * GIB), runtime=0, load_allocated=0,
    )  # fmt: skip
    budget = Budget(
        gpus=(gpu,),
        host_ram=int(host * GIB),
        host_ram_load=0,
        phases={"backward": gpu.allocated, "step": gpu.allocated},
    )
    judged = judge(MODEL, on, made, budget)
    time = TimeEstimate(tokens_per_second=speed, decode_tokens_per_second=None if method else speed, error=error)
    return Candidate(
        strategy=strategy, method=method, verdict=judged.verdict, reason=judged.reason, job=made, budget=budget,
        time=time, shortfall=judged.shortfall, headroom=judged.headroom,
    )  # fmt: skip


def usual(on: HardwareProfile, scale: float, batch: float = 1.0) -> Iterable[Candidate]:
    """The ways to train all weights on two cards, in the proportions that 16, 12 and 8 bytes a parameter have."""
    fixed = {"single": 16, "ddp": 18, "zero2": 12, "zero3": 8.5}
    speeds = {"single": 50.0, "ddp": 98.0, "zero2": 97.0, "zero3": 40.0}
    for name, share in fixed.items():
        gpus = 1 if name == "single" else 2
        yield candidate(on, name, share * scale + batch, speed=speeds[name], gpus=gpus)  # type: ignore[arg-type]
    yield candidate(on, "zero2", 4 * scale + batch, speed=12.0, gpus=2, offload_optimizer="cpu", host=22 * scale)
    yield candidate(on, "zero3", 2 * scale + batch, speed=9.0, gpus=2, offload_optimizer="cpu", host=20 * scale)
    yield candidate(
        on, "zero3", 0.5 * scale + batch, speed=8.0, gpus=2, offload_optimizer="cpu", offload_param="cpu",
        host=24 * scale,
    )  # fmt: skip
