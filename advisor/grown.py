"""Candidates at other sizes without tracing them again: activations and caches grow with the tokens of a micro batch,
states do not. Exact at the size that was searched, a few percent off at several times it; it tells where a decision
turns, and what is then decided is predicted anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.decide.types import Candidate
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget, GpuBudget
from advisor.models.spec import ModelSpec
from advisor.strategies.outline import Outline, outline
from advisor.strategies.verdict import host_available, judge


@dataclass(frozen=True, slots=True)
class Growth:
    """What of a candidate grows with its tokens: bytes on its fullest GPU by phase."""

    model: ModelSpec
    candidate: Candidate
    by_phase: dict[str, int]

    @classmethod
    def of(cls, candidate: Candidate, model: ModelSpec) -> Growth:
        """Read off the outline of the candidate's step, which its search has traced."""
        if candidate.job is None or candidate.budget is None or not candidate.budget.gpus:
            return cls(model, candidate, {})
        share = len(candidate.budget.gpus) if candidate.job.strategy in ("device_map", "tensor_parallel") else 1
        growing = _by_phase(outline(model, candidate.job))
        return cls(model, candidate, {phase: size // share for phase, size in growing.items()})

    def at(self, micro: int, length: int, machine: HardwareProfile) -> Candidate:
        """The candidate with another micro batch and length on ``machine``, judged anew; itself without a budget."""
        found, job = self.candidate, self.candidate.job
        if job is None or found.budget is None or not found.budget.gpus or found.verdict == "refused":
            return found
        factor = (
            micro * (length + job.max_new_tokens) / (job.micro_batch_size * (job.sequence_length + job.max_new_tokens))
        )
        changed = replace(job, micro_batch_size=micro, sequence_length=length)
        budget = self._shifted(found.budget, factor)
        return _judged(self.model, replace(found, job=changed, budget=budget), changed, budget, machine)

    def _shifted(self, budget: Budget, factor: float) -> Budget:
        """The budget with ``factor`` times the tokens: another phase may become the largest."""
        now = budget.phases or self.by_phase
        then = {phase: size + int((factor - 1) * self.by_phase.get(phase, 0)) for phase, size in now.items()}
        if not now:
            return budget
        more = max(then.values()) - max(now.values())
        return replace(budget, gpus=tuple(_shifted_gpu(gpu, more) for gpu in budget.gpus), phases=then)


def _judged(model: ModelSpec, found: Candidate, job: Job, budget: Budget, machine: HardwareProfile) -> Candidate:
    judged = judge(model, machine, job, budget)
    if judged.verdict == "does_not_fit" and job.strategy == "device_map" and not job.trains and not job.quantization:
        spilled = _spilled(found, job, budget, judged.shortfall, machine)
        if spilled is not None:
            return spilled
    return replace(
        found, verdict=judged.verdict, reason=judged.reason, shortfall=judged.shortfall, headroom=judged.headroom
    )


def _spilled(found: Candidate, job: Job, budget: Budget, lacking: int, machine: HardwareProfile) -> Candidate | None:
    """A device map planned anew would lay what a card lacks into host RAM, as far as that is weights; speed unknown."""
    lacking *= len(budget.gpus)
    weights = sum(gpu.parts.get("weights", 0) for gpu in budget.gpus)
    room = host_available(machine)
    if lacking > weights or (room is not None and budget.host_ram + lacking > room):
        return None
    moved = replace(job, device_map={"kept": 0, "moved": "cpu"})
    return replace(found, job=moved, verdict="fits", reason="spills to host RAM", shortfall=0, headroom=0.0, time=None)


def _by_phase(found: Outline) -> dict[str, int]:
    """Bytes that grow at each phase's fullest turn."""
    fullest: dict[str, tuple[int, int]] = {}
    for point in found.points:
        grows = point.live + point.cache
        total = grows + point.gradients
        if total >= fullest.get(point.phase, (0, 0))[0]:
            fullest[point.phase] = (total, grows)
    return {phase: grows for phase, (_, grows) in fullest.items()}


def _shifted_gpu(gpu: GpuBudget, more: int) -> GpuBudget:
    kept = max(more, gpu.load_allocated - gpu.required)  # loading stays as it is
    return replace(
        gpu, allocated=gpu.allocated + kept, reserved=gpu.reserved + kept, required=gpu.required + kept
    )  # fmt: skip
