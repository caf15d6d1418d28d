"""The search: every strategy, method and offload at its own best settings, each with a verdict and its numbers.

Bounded and fast. A kind of job (strategy, method, storage, offload, nodes) is tuned by outlines of its step, which cost
milliseconds: largest micro batch that fits, with and without gradient checkpointing, and where nothing can be sharded
leaner optimizers. The faster of what fits stays. Only where the outline comes near the card's limit does the memory
model replay the job. The whole result is cached by everything that it depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from advisor.cache import cached, source_digest, version_of
from advisor.decide.types import Candidate
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, Precision, StrategyName, Workload
from advisor.memory.budget import Budget
from advisor.models.spec import ModelSpec
from advisor.strategies import limits
from advisor.strategies.base import Strategy
from advisor.strategies.common import accumulation, methods
from advisor.strategies.defaults import MAX_MICRO_BATCH_TOKENS, filled
from advisor.strategies.estimate import estimate
from advisor.strategies.outline import outline
from advisor.strategies.reasons import formula, hint, hopeless, total_shortfall
from advisor.strategies.registry import STRATEGIES
from advisor.strategies.verdict import TYPICAL, judge

# How far an estimate may be from the replayed budget, as a share of the card: nearer to the limit it decides nothing.
NEAR: Mapping[StrategyName, float] = {
    "single": 0.01, "device_map": 0.04, "tensor_parallel": 0.01, "ddp": 0.01, "zero2": 0.01, "zero3": 0.01,
}  # fmt: skip
_KEPT_OF_LAYER = 0.3
NEAR_BYTES = 512 << 20  # what the formulas leave out of small jobs: splitting, and ZeRO's buffers in turn
MAX_REPLAYS = 60  # of a whole search
# Leaner ways to fine-tune all weights, dearest first: (precision, optimizer). What each gives up is said by the plan.
_LEANER: tuple[tuple[Precision, str], ...] = (
    ("bf16", "adamw_torch_fused"),
    ("bf16", "adamw_8bit"),
    ("bf16", "paged_adamw_8bit"),
    ("bf16", "adafactor"),
)


@dataclass
class _Search:
    model: ModelSpec
    machine: HardwareProfile
    workload: Workload  # filled
    asked: Workload
    replays: int = 0
    tunes: bool = True


def candidates(model: ModelSpec, machine: HardwareProfile, workload: Workload) -> tuple[Candidate, ...]:
    """Every way to do the work on the machine, in the order of the registry; refused ones with their reason.

    Raises InputError when transformers cannot read the model's config.
    """
    from pydantic import TypeAdapter

    form = TypeAdapter(tuple[Candidate, ...])
    key = {
        "model": {"config": dict(model.config), "kind": model.kind, "parameters": model.parameters,
                  "checkpoint": model.checkpoint_bytes, "stored": model.quantization_config},
        "machine": machine.model_dump(mode="json", exclude={"sources", "notes", "description"}),
        "workload": asdict(workload),
        "versions": [version_of(name) for name in ("torch", "transformers", "accelerate", "peft", "deepspeed")],
        "code": source_digest("memory", "timing", "strategies", "decide/types", "job", "hardware/profile"),
    }  # fmt: skip
    found = cached("search", key, lambda: form.dump_python(tuple(_all(model, machine, workload)), mode="json"))
    return form.validate_python(found)


def exact(candidate: Candidate, model: ModelSpec, machine: HardwareProfile) -> Candidate:
    """The candidate with its memory replayed, judged anew: what a plan promises."""
    if candidate.job is None:
        return candidate
    strategy = STRATEGIES[candidate.strategy]
    return _candidate(model, machine, strategy, candidate.job, strategy.budget(model, machine, candidate.job))


def _all(model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterator[Candidate]:
    search = _Search(model, machine, filled(workload, machine), workload)
    able: list[Strategy] = []
    for strategy in STRATEGIES.values():
        if workload.strategy not in (None, strategy.name):
            continue
        reason = strategy.refuses(model, machine, workload)
        if reason is None:
            able.append(strategy)
            continue
        method = workload.method if workload.method != "auto" and workload.task == "finetune" else None
        yield Candidate(strategy=strategy.name, method=method, verdict="refused", reason=reason)
    if workload.task == "inference":
        yield from (
            _best(search, strategy, job) for strategy in able for job in strategy.jobs(model, machine, workload)
        )
        return
    for method in methods(workload):
        of_method = replace(workload, method=method)
        found = [_best(search, strategy, job) for strategy in able for job in strategy.jobs(model, machine, of_method)]
        yield from found
        # A more faithful method that fits is taken: the later ones are shown at their leanest.
        search.tunes = search.tunes and not any(candidate.fits for candidate in found)


def _best(search: _Search, strategy: Strategy, job: Job) -> Candidate:
    """One kind of job at its best settings: the faster of what fits, or the leanest with what is missing."""
    reason = limits.objection(search.model, search.machine, search.workload, job)
    if reason is not None:
        return Candidate(strategy=job.strategy, method=job.method, verdict="refused", reason=reason, job=job)
    if not job.trains:
        return _judged(search, strategy, job)
    leanest: Candidate | None = None
    for setting in _settings(search, job):
        found = _tuned(search, strategy, setting)
        if found.fits:
            return found
        if leanest is None or _missing(found) < _missing(leanest):
            leanest = found
    assert leanest is not None  # the job's own setting is always tried
    return replace(leanest, reason=leanest.reason + hint(search.model, search.machine, leanest))


def _missing(candidate: Candidate) -> int:
    return candidate.budget.fullest.needed if candidate.budget else candidate.shortfall


def _settings(search: _Search, job: Job) -> Iterator[Job]:
    """The job as it is, then leaner optimizers where nothing can be sharded and the user left them open."""
    yield job
    asked, machine = search.asked, search.machine
    alone = machine.gpu_count == 1 or asked.strategy == job.strategy
    if job.method != "full" or job.strategy in ("zero2", "zero3") or not alone or asked.optimizer is not None:
        return
    if asked.precision not in (None, "bf16"):
        return
    for precision, optimizer in _LEANER:
        leaner = replace(job, precision=precision, load_dtype="bf16", optimizer=optimizer)
        if leaner != job and limits.objection(search.model, machine, search.workload, leaner) is None:
            yield leaner


def _tuned(search: _Search, strategy: Strategy, job: Job) -> Candidate:
    """The job with the micro batch and checkpointing that make it fastest; the leanest of them where none fits."""
    sizes = _micro_batches(search, job)
    forced = search.workload.gradient_checkpointing
    if not search.tunes:
        return _judged(search, strategy, _sized(search, job, sizes[0]))
    if forced is not None:
        return _largest(search, strategy, replace(job, gradient_checkpointing=forced), sizes)
    # Keeping activations never takes less than recomputing them, so what fails with checkpointing fails without.
    lean = _largest(search, strategy, replace(job, gradient_checkpointing=True), sizes)
    if not lean.fits or lean.job is None:
        return lean
    sizes = tuple(size for size in sizes if size <= lean.job.micro_batch_size)
    if not _may_keep_activations(search, replace(lean.job, micro_batch_size=sizes[0])):
        return lean
    fast = _largest(search, strategy, replace(job, gradient_checkpointing=False), sizes)
    return fast if fast.fits and _speed(fast) >= _speed(lean) else lean


def _may_keep_activations(search: _Search, lean: Job) -> bool:
    """Whether the job could fit without checkpointing, by what one layer holds while it is computed again.

    Only a part of that would be kept for the backward; a third is less than any architecture of the catalogue keeps.
    """
    found = outline(search.model, lean)
    layers = len({parameter.layer for parameter in found.parameters if parameter.layer is not None})
    kept = (
        _KEPT_OF_LAYER * layers * max((p.inside for p in found.points if p.phase == "backward" and p.inner), default=0)
    )
    if lean.strategy == "device_map":
        kept /= max(1, lean.gpus)
    needed = estimate(search.model, search.machine, lean).fullest.needed
    return needed + kept <= max(search.machine.capacities)


def _speed(candidate: Candidate) -> float:
    """Tokens a second; where the machine's rates are unknown, what computes less comes first."""
    assert candidate.job is not None
    if candidate.time is not None and candidate.time.tokens_per_second is not None:
        return candidate.time.tokens_per_second
    return 0.0 if candidate.job.gradient_checkpointing else 1.0


def _micro_batches(search: _Search, job: Job) -> tuple[int, ...]:
    """Micro batch sizes to try, smallest first: the asked one, or powers of two that make up the global batch."""
    asked = search.workload.micro_batch_size
    if asked is not None:
        return (asked,)
    largest = max(1, MAX_MICRO_BATCH_TOKENS // job.sequence_length)
    powers = (1 << power for power in range(largest.bit_length()))
    return tuple(size for size in powers if accumulation(search.workload, size, job.data_parallel_size) is not None)


def _largest(search: _Search, strategy: Strategy, job: Job, sizes: tuple[int, ...]) -> Candidate:
    """The job with the largest of ``sizes`` that fits; with the smallest where none does."""
    if not hopeless(search.model, search.machine, job):
        found = _judged(search, strategy, _sized(search, job, sizes[-1]))
        if found.fits or len(sizes) == 1:
            return found
    low, high = 0, len(sizes) - 1  # ``high`` is known not to fit
    best = _judged(search, strategy, _sized(search, job, sizes[0]))
    if not best.fits:
        return best
    while high - low > 1:
        middle = (low + high) // 2
        found = _judged(search, strategy, _sized(search, job, sizes[middle]))
        if found.fits:
            low, best = middle, found
        else:
            high = middle
    return best


def _sized(search: _Search, job: Job, micro: int) -> Job:
    steps = accumulation(search.workload, micro, job.data_parallel_size) or 1
    return replace(job, micro_batch_size=micro, gradient_accumulation_steps=steps)


def _judged(search: _Search, strategy: Strategy, job: Job) -> Candidate:
    settled = strategy.settle(search.model, search.machine, job)
    if isinstance(settled, str):
        return Candidate(
            strategy=job.strategy, method=job.method, verdict="does_not_fit", reason=settled, job=job,
            shortfall=total_shortfall(search.model, search.machine, job),
        )  # fmt: skip
    reason = limits.objection(search.model, search.machine, search.workload, settled)
    if reason is not None:
        return Candidate(strategy=job.strategy, method=job.method, verdict="refused", reason=reason, job=settled)
    budget = estimate(search.model, search.machine, settled)
    if near_limit(search.machine, settled, budget) and search.replays < MAX_REPLAYS:
        search.replays += 1
        budget = strategy.budget(search.model, search.machine, settled)
    return _candidate(search.model, search.machine, strategy, settled, budget)


def _candidate(model: ModelSpec, machine: HardwareProfile, strategy: Strategy, job: Job, budget: Budget) -> Candidate:
    judgement = judge(model, machine, job, budget)
    reason = judgement.reason + (formula(model, job) if judgement.verdict == "does_not_fit" else "")
    return Candidate(
        strategy=job.strategy, method=job.method, verdict=judgement.verdict, reason=reason, job=job, budget=budget,
        time=strategy.time(model, machine, job), shortfall=judgement.shortfall, headroom=judgement.headroom,
    )  # fmt: skip


def near_limit(machine: HardwareProfile, job: Job, budget: Budget) -> bool:
    """Whether the estimate is too near a card's limit to decide."""
    limit = 1 - TYPICAL[job.strategy]
    return any(
        abs(gpu.needed - limit * room) < max(NEAR[job.strategy] * room, NEAR_BYTES)
        for gpu, room in zip(budget.gpus, machine.capacities, strict=False)
    )
