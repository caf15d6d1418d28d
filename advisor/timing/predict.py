"""The time of a job: load, then steps, or prefill and tokens."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.assemble import trace_of
from advisor.memory.stretch import parameters
from advisor.memory.trace.types import Trace
from advisor.models.spec import ModelSpec
from advisor.timing.estimate import TimeEstimate
from advisor.timing.infer import Placement, phase_parts, plans_attention
from advisor.timing.load import load_seconds
from advisor.timing.rates import Rates, rates
from advisor.timing.train import Weights, step_parts

# Stated relative error: nine of ten measured runs stay within (``advisor validate``; README).
TRAIN_ERROR = 0.25
DECODE_ERROR = 0.40


def predict_time(model: ModelSpec, machine: HardwareProfile, job: Job) -> TimeEstimate:
    """The speed of ``job`` on ``machine``. What depends on a rate that the profile does not know is None."""
    trace = trace_of(model, job)
    reached = rates(machine, job.nodes)
    weights = Weights.of(parameters(trace), job.zero.param_persistence_threshold)
    placement = _placement(machine, job, weights.bytes_all)
    load = load_seconds(job, model.parameters or weights.numel, weights.modules, placement, reached)
    if job.trains:
        return _training(job, trace, reached, load)
    return _generation(model, machine, job, trace, placement, reached, load)


def _training(job: Job, trace: Trace, reached: Rates, load: float | None) -> TimeEstimate:
    parts = step_parts(job, trace, reached)
    if parts is None:
        return TimeEstimate(load_seconds=load, notes=("the step's time needs a rate that the profile does not know",))
    step = sum(parts.values())
    return TimeEstimate(
        load_seconds=load,
        step_seconds=step,
        tokens_per_second=job.global_batch_size * job.sequence_length / step,
        error=TRAIN_ERROR,
        parts=parts,
    )


def _generation(
    model: ModelSpec, machine: HardwareProfile, job: Job, trace: Trace, placement: Placement, reached: Rates,
    load: float | None,
) -> TimeEstimate:  # fmt: skip
    prefill_parts = phase_parts("prefill", model, machine, job, trace, placement, reached)
    if prefill_parts is None:
        return TimeEstimate(load_seconds=load, notes=("the time of a token needs a rate the profile does not know",))
    prefill = sum(prefill_parts.values())
    if job.max_new_tokens < 2:
        return TimeEstimate(load_seconds=load, prefill_seconds=prefill, error=TRAIN_ERROR, parts=prefill_parts)
    token_parts: Mapping[str, float] | None = phase_parts("decode", model, machine, job, trace, placement, reached)
    if token_parts is None:
        return TimeEstimate(load_seconds=load, prefill_seconds=prefill, error=TRAIN_ERROR, parts=prefill_parts)
    token = sum(token_parts.values())
    total = prefill + (job.max_new_tokens - 1) * token
    notes = ["repeats of one generation differ by up to 30% in the measured runs: decoding waits for the host"]
    if plans_attention(model, machine, job):
        notes.append(
            "cuDNN plans attention anew for every token on this card; TORCH_CUDNN_SDPA_DEPRIORITIZED=1 avoids that"
        )
    return TimeEstimate(
        load_seconds=load,
        prefill_seconds=prefill,
        decode_tokens_per_second=job.micro_batch_size / token,
        tokens_per_second=job.micro_batch_size * job.max_new_tokens / total,
        error=DECODE_ERROR,
        parts=token_parts,
        notes=tuple(notes),
    )


def _placement(machine: HardwareProfile, job: Job, stored: int) -> Placement:
    """Bytes of weights that spill, by what the cards may take."""
    if job.strategy != "device_map" or job.gpus == 0:
        return Placement(cards=1, host_bytes=0)
    rooms = list(machine.capacities[: job.gpus])
    if job.max_memory is not None:
        rooms = [room for device, room in job.max_memory.items() if device.isdigit()]
    spilled = max(0, stored - sum(rooms))
    return Placement(host_bytes=spilled, cards=job.gpus)
