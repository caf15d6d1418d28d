"""Decisions beside measured runs: for each family of capped runs, what is chosen on that card and how it was measured.

A family is one job that was run in several ways under the same cap on torch's allocator. The question is asked with what
the family fixes (model, task, method, batch, length) on a machine whose cards have the cap and the runtime's bytes. What
is chosen must run at 95% or more of the speed of the best that was measured to fit.

With ``--like`` the families are tried at other models and caps, where the ways' outcomes are predicted for the measured
recipe (DeepSpeed's default buckets, torch's AdamW, the default allocator): a check of the rules alone.

    python benchmarks/decisions.py [--like]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.ask import Ask, ask
from advisor.decide.facts import way_of
from advisor.decide.types import Candidate
from advisor.deciding import decide
from advisor.job import Job
from advisor.record import RunRecord, read_records
from advisor.units import GIB

RUNS = Path(__file__).parent.parent / "measurements" / "h200.jsonl"
BAR = 0.95
# What lies outside the allocator: one process and two under ZeRO-2 (measured; see measurements/README.md).
RUNTIMES = (int(0.75 * GIB), int(2.05 * GIB))
# Models, micro batches, lengths and caps (GiB) that the families are tried at with --like.
LIKE: dict[str, tuple[tuple[str, int, int, tuple[int, ...]], ...]] = {
    "full": (
        ("meta-llama/Llama-3.2-1B", 4, 1024, (10, 16, 32, 48)),
        ("Qwen/Qwen2.5-1.5B", 4, 1024, (16, 24, 32, 40)),
        ("facebook/opt-1.3b", 4, 1024, (16, 24, 32)),
        ("Qwen/Qwen2.5-3B", 4, 1024, (16, 32, 40, 48, 80)),
        ("google/gemma-2-2b", 2, 1024, (16, 24, 32, 40, 64)),
        ("meta-llama/Llama-3.2-3B", 2, 1024, (16, 24, 32, 40, 48, 80)),
        ("mistralai/Mistral-7B-v0.1", 2, 1024, (24, 40, 64, 80, 100)),
        ("meta-llama/Llama-3.1-8B", 1, 1024, (24, 40, 80, 100, 120)),
    ),
    "lora": (
        ("Qwen/Qwen2.5-3B", 4, 1024, (8, 16, 24)),
        ("mistralai/Mistral-7B-v0.1", 2, 1024, (16, 24, 40)),
        ("meta-llama/Llama-3.1-8B", 2, 1024, (24, 32)),
        ("meta-llama/Llama-2-13b-hf", 2, 1024, (32, 40)),
    ),
    "inference": (
        ("meta-llama/Llama-3.2-3B", 4, 512, (5, 10)),
        ("mistralai/Mistral-7B-v0.1", 8, 1024, (10, 16, 24)),
        ("meta-llama/Llama-2-13b-hf", 4, 512, (10, 16, 24, 40)),
        ("Qwen/Qwen2.5-32B", 4, 512, (24, 48, 80)),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Way:
    """One way a family was run: its name, and trained or decoded tokens a second; None when it ran out of memory."""

    name: str
    speed: float | None


@dataclass(frozen=True, slots=True)
class Family:
    """One job under one cap, with the ways that it was run in."""

    name: str
    job: Job
    model: str
    hardware: str
    cap: int
    ways: tuple[Way, ...]

    @property
    def best(self) -> Way | None:
        """The fastest that fits."""
        return max((way for way in self.ways if way.speed), key=lambda way: way.speed or 0.0, default=None)

    def question(self, runtime: int) -> Ask:
        """What a user would ask."""
        job = self.job
        options = {"batch_size": job.micro_batch_size, "seq_len": job.sequence_length}
        if job.trains:
            options |= {"method": job.method, "gradient_checkpointing": job.gradient_checkpointing}
        else:
            options |= {"max_new_tokens": job.max_new_tokens}
        memory = self.cap + runtime
        return ask(self.model, job.task, hardware=self.hardware, gpu_memory=memory, **options)

    def choice(self, runtime: int) -> Candidate | None:
        """What is chosen with that much outside the allocator."""
        question = self.question(runtime)
        return decide(question.model, question.machine, question.workload).chosen

    def share(self, chosen: Candidate | None) -> float | None:
        """The chosen way's speed as a share of the best; 0 when it ran out of memory, None when it was not run."""
        name = way_of(chosen) if chosen is not None else "none"
        same = [way for way in self.ways if way.name == name]
        if not same or self.best is None:
            return None
        return max(way.speed or 0.0 for way in same) / (self.best.speed or 1.0)


def way_name(job: Job) -> str:
    """The way of a job, as decisions name it."""
    return way_of(Candidate(strategy=job.strategy, method=job.method, verdict="fits", reason="", job=job))


def families(records: Iterable[RunRecord]) -> Iterator[Family]:
    """The capped families of several ways: records named r-FAMILY-CAP-WAY."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.gpu_memory_cap is not None and record.id.startswith("r-"):
            groups.setdefault("-".join(record.id.split("-")[1:3]), []).append(record)
    for name, group in groups.items():
        job, cap = group[0].job(), group[0].gpu_memory_cap
        assert cap is not None
        ways = tuple(_measured(record) for record in group if record.job().method == job.method)
        yield Family(name, job, group[0].model, group[0].hardware, cap, ways)


def _measured(record: RunRecord) -> Way:
    job, measured = record.job(), record.measured
    speed = measured.decode_tokens_per_second
    if measured.step_seconds:
        speed = job.global_batch_size * job.sequence_length / measured.step_seconds
    name = way_name(job)
    if job.max_memory and "cpu" in job.max_memory:
        name += "_cpu"
    return Way(name, speed)


def alike(records: Sequence[RunRecord]) -> Iterator[Family]:
    """The families at other models and caps, their ways predicted for the measured recipe."""
    from advisor.validate.runs import Predictor

    predictor = Predictor.ours()
    for family in families(records):
        for model, micro, length, caps in LIKE[family.job.method or "inference"] if family.name != "l7-80" else ():
            rows = [row for row in records if row.id.startswith(f"r-{family.name}-")]
            rows = [row for row in rows if row.job().method == family.job.method and not row.strategy.max_memory]
            for cap in caps:
                ways = tuple(_predicted(predictor, row, model, micro, length, cap * GIB) for row in rows)
                job = replace(family.job, micro_batch_size=micro, sequence_length=length)
                yield Family(f"{model.split('/')[1]} {cap} GiB", job, model, family.hardware, cap * GIB, ways)


def _predicted(predictor: object, row: RunRecord, model: str, micro: int, length: int, cap: int) -> Way:
    from advisor.validate.runs import Predictor

    assert isinstance(predictor, Predictor)
    work = row.workload.model_copy(update={"micro_batch_size": micro, "sequence_length": length})
    run = predictor.run(row.model_copy(update={"model": model, "gpu_memory_cap": cap, "workload": work}))
    if run.job is None:
        raise SystemExit(f"{row.id} as {model}: {run.reason}")
    speed = run.predicted.get("decode_tokens_per_second")
    if run.predicted.get("step_seconds"):
        speed = run.job.global_batch_size * length / run.predicted["step_seconds"]
    return Way(way_name(run.job), speed if run.predicted["fits"] else None)


def main() -> int:
    """Print a line a family and runtime; 1 when one falls under the bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--like", action="store_true", help="other models and caps, by prediction")
    like = parser.parse_args().like
    records = read_records(RUNS)
    below = 0
    for family in alike(records) if like else families(records):
        for runtime in RUNTIMES:
            chosen = family.choice(runtime)
            share = family.share(chosen)
            below += share is None or share < BAR
            best = family.best
            print(
                f"{family.name:28} {family.job.method or 'inference':10} +{runtime / GIB:4.2f} GiB  "
                f"chosen {way_of(chosen) if chosen else 'none':12} "
                f"best {f'{best.name} at {best.speed:,.0f} tokens/s' if best else 'none':34} "
                f"{'not run' if share is None else f'{share:.0%}'}",
                flush=True,
            )
    return 1 if below else 0


if __name__ == "__main__":
    raise SystemExit(main())
