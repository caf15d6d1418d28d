"""ZeRO's layout beside memory histories of real runs, and what must hold of any of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.hardware.load import load_profile
from advisor.job import Job, Lora, ZeroTuning
from advisor.memory.assemble import timeline
from advisor.memory.engines.coordinator import GATHER_STREAM, Coordinator, Shard
from advisor.memory.engines.rank import Rank
from advisor.memory.engines.zero2 import Zero2
from advisor.memory.engines.zero3 import Zero3
from advisor.memory.predict import predict_memory
from advisor.memory.timeline import Event
from advisor.models.resolve import resolve
from advisor.record import read_records

MEASUREMENTS = Path(__file__).parents[2] / "measurements"
HISTORIES = json.loads((MEASUREMENTS / "streams.json").read_text())["runs"]
RECORDS = {record.id: record for record in read_records(MEASUREMENTS / "h200.jsonl")}


def _job(run: dict[str, object], **more: object) -> Job:
    names = ("micro_batch_size", "gradient_checkpointing", "offload_optimizer", "offload_param", "strategy")
    given = {name: run[name] for name in names if name in run} | more
    lora = run.get("lora")
    return Job(
        task="finetune", method="lora" if lora else "full", precision="bf16-mixed", sequence_length=1024, gpus=2,
        optimizer="adamw_torch", zero_optimizer="torch_adam", lora=Lora() if lora else None, **given,
    )  # type: ignore[arg-type]  # fmt: skip


def _events(run: dict[str, object], **more: object) -> tuple[Event, ...]:
    job = _job(run, **more)
    line = timeline(resolve(str(run["model"])), job, optimizer=False)
    return (Zero3 if job.strategy == "zero3" else Zero2)(line, job).events()


def _peaks(events: tuple[Event, ...]) -> tuple[int, dict[int, int], dict[int, Event]]:
    """Peak of live bytes, the same by stream, and what is alive at the end; what is dropped counts no more."""
    alive: dict[int, Event] = {}
    now: dict[int, int] = {}
    most: dict[int, int] = {}
    highest = 0
    for event in events:
        if event.kind == "alloc":
            alive[event.key] = event
            now[event.stream] = now.get(event.stream, 0) + event.size
            most[event.stream] = max(most.get(event.stream, 0), now[event.stream])
            highest = max(highest, sum(now.values()))
        elif event.kind in ("drop", "free") and event.key in alive:
            gone = alive.pop(event.key)
            now[gone.stream] -= gone.size
    return highest, most, alive


@pytest.mark.parametrize("name", ["z2-l1", "z2-l1-ckpt", "z2o-l1", "z3-l1", "z3oo-l1", "z3o-l1", "z3-lora-l7"])
def test_peaks_by_stream_are_those_of_the_memory_history(name: str) -> None:
    run = HISTORIES[name]
    highest, most, _ = _peaks(_events(run))
    assert highest / 2**20 == pytest.approx(run["allocated"], rel=0.015)
    assert len(most) == len(run["streams"])
    for stream, measured in enumerate(run["streams"]):
        assert most[stream] / 2**20 == pytest.approx(measured, rel=0.02, abs=2)


@pytest.mark.parametrize("name", ["z2-l7-ckpt", "z3-l7-ckpt", "z3-q7-ckpt"])
def test_what_the_allocator_takes_is_the_measured_use(name: str) -> None:
    record = RECORDS[name]
    budget = predict_memory(resolve(record.model), load_profile(record.hardware), record.job())
    assert budget.gpus[0].reserved == pytest.approx(max(record.measured.gpu_reserved or ()), rel=0.01)
    assert budget.gpus[0].allocated == pytest.approx(max(record.measured.gpu_allocated or ()), rel=0.005)


@pytest.mark.parametrize("name", ["z2o-l1", "z3oo-l1", "z3o-l1", "z3-l7-ckpt", "z2-l1"])
def test_host_ram_is_the_measured_one(name: str) -> None:
    record = RECORDS[name]
    budget = predict_memory(resolve(record.model), load_profile(record.hardware), record.job())
    assert budget.host_ram == pytest.approx(record.measured.host_ram, rel=0.07)


def test_smaller_buckets_and_no_prefetch_never_need_more() -> None:
    run = HISTORIES["z3o-l1"]
    lean = ZeroTuning(reduce_bucket_size=10**7, prefetch_bucket_size=0, max_live_parameters=0, max_reuse_distance=0)
    usual, small = _peaks(_events(run)), _peaks(_events(run, zero=lean))
    assert small[0] < usual[0]
    assert small[1][GATHER_STREAM] < usual[1][GATHER_STREAM]


def test_the_whole_model_lies_on_the_card_at_load_without_zero_init() -> None:
    run = HISTORIES["z3o-l1"]
    model, machine = resolve(str(run["model"])), load_profile("h200-x2")
    loads = [
        predict_memory(model, machine, _job(run, zero_init=built)).gpus[0].load_allocated for built in (True, False)
    ]
    assert loads[0] < 1.5 * 2**30
    assert loads[1] >= 2 * 1_235_814_400  # D01: about 2 bytes a parameter


def _coordinator(world: int, **tuning: int) -> tuple[Rank, Coordinator]:
    rank = Rank()
    shards = tuple(Shard(1 << 20, 2, trainable=True, away=False) for _ in range(4))
    modules = {f"m{number}": (number,) for number in range(4)}
    return rank, Coordinator(rank, shards, modules, world, ZeroTuning(**tuning))


def _pass(coordinator: Coordinator) -> None:
    coordinator.reset()
    for number in range(4):
        coordinator.enter(f"m{number}", backward=False)
        coordinator.exit(f"m{number}", backward=False)
    for number in reversed(range(4)):
        coordinator.enter(f"m{number}", backward=True)
        coordinator.exit(f"m{number}", backward=True)
    coordinator.leftovers()


@pytest.mark.parametrize("prefetch", [0, 1 << 21, 1 << 30])
@pytest.mark.parametrize("reuse", [0, 1 << 21, 1 << 30])
def test_nothing_stays_gathered_after_a_step(prefetch: int, reuse: int) -> None:
    rank, coordinator = _coordinator(2, prefetch_bucket_size=prefetch, max_reuse_distance=reuse)
    for _ in range(3):
        _pass(coordinator)
    coordinator.release_all()
    assert _peaks(tuple(rank.events))[2] == {}


def test_the_first_pass_gathers_one_module_at_a_time() -> None:
    rank, coordinator = _coordinator(2, max_reuse_distance=1 << 30)
    _pass(coordinator)
    assert _peaks(tuple(rank.events))[0] == 2 << 20
    _pass(coordinator)  # now it is known that all are used again
    assert _peaks(tuple(rank.events))[0] >= 4 * (2 << 20)


def test_a_lone_rank_gathers_nothing_that_lies_on_its_card() -> None:
    rank, coordinator = _coordinator(1)
    _pass(coordinator)
    assert rank.events == []
