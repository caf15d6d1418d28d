"""The time of a job: load, then steps, or prefill and tokens."""

from __future__ import annotations

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.assemble import trace_of
from advisor.memory.stretch import parameters
from advisor.models.spec import ModelSpec
from advisor.timing.case import Case, Placement, Weights
from advisor.timing.corrected import corrected
from advisor.timing.estimate import TimeEstimate
from advisor.timing.infer import phase_parts, plans_attention
from advisor.timing.load import load_seconds
from advisor.timing.rates import rates
from advisor.timing.train import step_parts
from advisor.timing.work import phases

# Stated relative error: nine of ten measured runs stay within (``advisor validate``; README).
STEP_ERROR = 0.25
DECODE_ERROR = 0.35
_UNKNOWN = "the time needs a rate that the profile does not know"


def predict_time(model: ModelSpec, machine: HardwareProfile, job: Job) -> TimeEstimate:
    """The speed of ``job`` on ``machine``. What depends on a rate that the profile does not know is None."""
    trace = trace_of(model, job)
    weights = Weights.of(parameters(trace), job.zero.param_persistence_threshold)
    case = Case(
        model=model,
        machine=machine,
        job=job,
        work=phases(trace),
        weights=weights,
        placement=_placement(machine, job, weights.bytes_all),
        rates=rates(machine, job.nodes),
    )
    return corrected(_training(case) if job.trains else _generation(case), machine, job)


def _training(case: Case) -> TimeEstimate:
    load, parts = load_seconds(case), step_parts(case)
    if parts is None:
        return TimeEstimate(load_seconds=load, notes=(_UNKNOWN,))
    step = sum(parts.values())
    return TimeEstimate(
        load_seconds=load,
        step_seconds=step,
        tokens_per_second=case.job.global_batch_size * case.job.sequence_length / step,
        error=STEP_ERROR,
        parts=parts,
    )


def _generation(case: Case) -> TimeEstimate:
    load, job = load_seconds(case), case.job
    before = phase_parts("prefill", case)
    if before is None:
        return TimeEstimate(load_seconds=load, notes=(_UNKNOWN,))
    prefill = sum(before.values())
    parts = phase_parts("decode", case) if job.max_new_tokens > 1 else None
    if parts is None:
        return TimeEstimate(load_seconds=load, prefill_seconds=prefill, error=STEP_ERROR, parts=before)
    token = sum(parts.values())
    total = prefill + (job.max_new_tokens - 1) * token
    notes = ["decoding waits for the host: repeats of one generation differ by up to 30% in the measured runs"]
    if plans_attention(case):
        notes.append(
            "cuDNN plans attention anew for every token on this card; TORCH_CUDNN_SDPA_DEPRIORITIZED=1 avoids that"
        )
    return TimeEstimate(
        load_seconds=load,
        prefill_seconds=prefill,
        decode_tokens_per_second=job.micro_batch_size / token,
        # Ranks of ZeRO-3 serve a batch each.
        tokens_per_second=job.micro_batch_size * job.data_parallel_size * job.max_new_tokens / total,
        error=DECODE_ERROR,
        parts=parts,
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
