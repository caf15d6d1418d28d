"""Memory against micro batch and against sequence length: the chosen job at a few other sizes, each predicted in full.

Where the line meets the card is guessed from the job's growth, and the sizes are laid around it, so that the crossing
lies between two predicted points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from advisor.cache import cached, source_digest, version_of
from advisor.decide.types import Candidate
from advisor.grown import Growth
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.models.spec import ModelSpec
from advisor.strategies.registry import STRATEGIES

_REACH = 4  # the farthest size that is predicted, in times of the job's own, where the card's limit is not reached


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes that the fullest GPU needs (runtime included) at rising sizes of one setting; ``limit`` is the card's."""

    setting: str  # micro_batch_size | sequence_length
    now: int
    limit: int
    points: tuple[tuple[int, int], ...]  # (size, bytes), predicted each


def curves(
    model: ModelSpec, machine: HardwareProfile, job: Job, say: Callable[[str], None] = lambda text: None
) -> tuple[Curve, ...]:
    """The curves of ``job``; none when it uses no GPU. ``say`` hears what is being predicted."""
    limit = max(machine.capacities, default=0)
    if not limit:
        return ()

    def needed(changed: Job) -> int:
        key = {
            "model": [dict(model.config), model.parameters, model.quantization_config, model.dtype],
            "machine": machine.model_dump(mode="json"),
            "job": asdict(changed),
            "versions": [version_of(name) for name in ("torch", "transformers")],
            "code": source_digest("curves", "strategies", "memory"),
        }
        budget = STRATEGIES[job.strategy].budget
        return int(cached("curves", key, lambda: budget(model, machine, changed).fullest.needed))

    own = needed(job)
    budget = STRATEGIES[job.strategy].budget(model, machine, job)
    growth = Growth.of(
        Candidate(strategy=job.strategy, method=job.method, verdict="fits", reason="", job=job, budget=budget), model
    )

    def guess(micro: int, length: int) -> int:
        grown = growth.at(micro, length, machine).budget
        return grown.fullest.needed if grown is not None else own

    found = []
    for setting, now, most, at in (
        ("micro_batch_size", job.micro_batch_size, None, lambda size: (size, job.sequence_length)),
        ("sequence_length", job.sequence_length, _longest(model, job), lambda size: (job.micro_batch_size, size)),
    ):
        sizes = _sizes(now, most, [guess(*at(now)), guess(*at(2 * now))], limit)
        points = []
        for size in sizes:
            say(f"memory at {setting.replace('_', ' ')} {size}")
            micro, length = at(size)
            points.append((size, needed(replace(job, micro_batch_size=micro, sequence_length=length))))
        if len(points) > 1:
            found.append(Curve(setting, now, limit, tuple(points)))
    return tuple(found)


def _longest(model: ModelSpec, job: Job) -> int | None:
    context = model.context_length
    return None if context is None else max(context - job.max_new_tokens, job.sequence_length)


def _sizes(now: int, most: int | None, guessed: Sequence[int], limit: int) -> list[int]:
    """The smallest size, the job's own, and two around where a straight line through ``guessed`` meets the limit."""
    once, twice = guessed
    slope = (twice - once) / now
    meets = now + (limit - once) / slope if slope > 0 else float(_REACH * now)
    far = max(now + 1, min(int(meets * 1.15) + 1, 64 * now))
    sizes = {max(1, now // 2), now, _round((now + far) // 2), _round(far)}
    sizes = {size if most is None else min(size, most) for size in sizes}
    # A point that would lie on top of the job's own says nothing more.
    apart = (max(sizes) - min(sizes)) // 8
    return sorted(size for size in sizes if size == now or abs(size - now) > apart)


def _round(size: int) -> int:
    """Lengths in whole steps of 256 tokens, as people choose them."""
    return size if size < 1024 else -(-size // 256) * 256
