"""One run record with its prediction and the errors between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.errors import AdvisorError
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.budget import Budget
from advisor.models.spec import ModelSpec
from advisor.record import RunRecord
from advisor.timing.estimate import TimeEstimate

# Figures that have an error, in the order of the tables. Names are those of the run record.
FIGURES = (
    "gpu_allocated", "gpu_reserved", "gpu_used", "gpu_load_allocated", "host_ram",
    "load_seconds", "step_seconds", "prefill_seconds", "decode_tokens_per_second",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """The models under test, as four functions: a test puts its own in their place."""

    resolve: Callable[[str], ModelSpec]
    profile: Callable[[str], HardwareProfile]
    memory: Callable[[ModelSpec, HardwareProfile, Job], Budget]
    time: Callable[[ModelSpec, HardwareProfile, Job], TimeEstimate]

    @classmethod
    def ours(cls) -> Predictor:
        """What every other command predicts with. Nothing is downloaded."""
        from advisor.hardware.load import load_profile
        from advisor.memory.predict import predict_memory
        from advisor.models.resolve import resolve
        from advisor.timing.predict import predict_time

        return cls(resolve=resolve, profile=load_profile, memory=predict_memory, time=predict_time)

    def run(self, record: RunRecord) -> Run:
        """Predict one record. One that cannot be predicted comes back with the reason, whatever went wrong."""
        try:
            model, machine = self.resolve(record.model), self.profile(record.hardware)
            job = as_trained(record, machine)
            budget = self.memory(model, machine, job)
            times = self.time(model, machine, job)
        except AdvisorError as error:
            return Run(record=record, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a library failing on one row must not hide the rest; it is listed
            return Run(record=record, reason=f"{type(error).__name__}: {error}".splitlines()[0])
        return Run(record=record, job=job, predicted=_figures(record, job, machine, budget, times))


def as_trained(record: RunRecord, machine: HardwareProfile) -> Job:
    """The job of a record as it ran.

    The Trainer takes ``per_device_train_batch_size`` for every card that a lone process sees. A plain model is then spread
    over them (nn.DataParallel); a quantized one is not, and its one card gets all of the samples (transformers 5.17:
    TrainingArguments.train_batch_size, Trainer._wrap_model).
    """
    job, seen = record.job(), record.strategy.visible_gpus
    cards = len(machine.capacities) if seen is None else seen
    alone = job.strategy in ("single", "device_map") and job.gpus == 1
    if job.trains and job.quantization and alone and cards > 1:
        return replace(job, micro_batch_size=job.micro_batch_size * cards)
    return job


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A record with what was predicted for it, by the record's names; ``reason`` says why nothing was."""

    record: RunRecord
    job: Job | None = None
    predicted: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None

    @property
    def capped(self) -> bool:
        """Whether the allocator was limited."""
        return self.record.gpu_memory_cap is not None

    @property
    def survived(self) -> bool:
        """Whether the run ended well."""
        return self.record.measured.outcome == "ok"

    @property
    def errors(self) -> dict[str, float]:
        """Signed fractions (predicted / measured - 1) by figure; of lists, the fullest GPU's."""
        found: dict[str, float] = {}
        for name in FIGURES:
            if name == "load_seconds" and self.record.load_from is None:
                continue  # weights made in place: there was no checkpoint to load
            predicted = top(self.predicted.get(name))
            measured = top(getattr(self.record.measured, name))
            if predicted is not None and measured:
                found[name] = predicted / measured - 1
        return found

    def as_json(self) -> dict[str, Any]:
        """The run as validate's JSON output holds it."""
        value: dict[str, Any] = {
            "id": self.record.id,
            "model": self.record.model,
            "hardware": self.record.hardware,
            "predicted": dict(self.predicted),
            "measured": self.record.measured.model_dump(mode="json", exclude_none=True),
            "error": {name: round(error, 6) for name, error in self.errors.items()},
        }
        if self.capped:
            value["gpu_memory_cap"] = self.record.gpu_memory_cap
        if self.reason is not None:
            value["reason"] = self.reason
        return value


def top(value: Any) -> float | None:
    """The largest of a list over GPUs, a plain number as it is, None for nothing."""
    if isinstance(value, (list, tuple)):
        return max(value) if value else None
    return value if value is None else float(value)


def _figures(
    record: RunRecord, job: Job, machine: HardwareProfile, budget: Budget, times: TimeEstimate
) -> dict[str, Any]:
    cap = record.gpu_memory_cap
    # A generation of no token is a run that loads the model and stops.
    load_only = job.task == "inference" and job.max_new_tokens == 0
    kept = [gpu.load_reserved if load_only else gpu.reserved for gpu in budget.gpus]
    reserved = [size if cap is None else min(size, cap) for size in kept]
    host = budget.host_ram_load if load_only else budget.host_ram
    if record.load_from is not None:
        host -= budget.host_mapped
    if cap is None:
        fits = all(gpu.needed <= room for gpu, room in zip(budget.gpus, machine.capacities, strict=False))
    else:
        fits = all(gpu.required <= cap for gpu in budget.gpus)
    figures: dict[str, Any] = {
        "fits": fits,
        "gpu_allocated": [gpu.load_allocated if load_only else gpu.allocated for gpu in budget.gpus],
        "gpu_reserved": reserved,
        "gpu_used": [size + gpu.runtime + gpu.managed for size, gpu in zip(reserved, budget.gpus, strict=True)],
        "gpu_required": [gpu.required for gpu in budget.gpus],
        "gpu_load_allocated": [gpu.load_allocated for gpu in budget.gpus],
        "runtime_overhead": max((gpu.runtime for gpu in budget.gpus), default=0),
        "host_ram": host,
        "load_seconds": times.load_seconds,
        "step_seconds": times.step_seconds,
        "prefill_seconds": times.prefill_seconds,
        "decode_tokens_per_second": times.decode_tokens_per_second,
        "peak_phase": budget.peak_phase,
        "phases": dict(budget.phases),
    }
    return {name: value for name, value in figures.items() if value is not None}
