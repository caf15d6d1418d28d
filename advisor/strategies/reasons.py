"""What is added to "does not fit": the arithmetic that a reader can check, and what would go lower."""

from __future__ import annotations

from advisor.decide.types import Candidate
from advisor.hardware.profile import HardwareProfile
from advisor.job import DTYPE_BYTES, Job
from advisor.models.spec import ModelSpec
from advisor.strategies.common import parameter_count
from advisor.strategies.outline import outline, states
from advisor.units import format_bytes, format_count


def formula(model: ModelSpec, job: Job) -> str:
    """The states of full fine-tuning by their rule of thumb, as a clause; empty for other jobs.

    ZeRO keeps 2 bytes of weights and gradients each, 4 of fp32 weights, 8 of moments, and 4 while stepping: 18 at once.
    """
    if job.method != "full" or job.offload_optimizer or job.offload_param:
        return ""
    count = parameter_count(model)
    if job.strategy == "zero3":
        return (
            f"; DeepSpeed counts 18 bytes x {format_count(count)} / {job.gpus} = "
            f"{format_bytes(18 * count // job.gpus)} of states"
        )
    if job.strategy == "zero2":
        total = 2 * count + 16 * count // job.gpus
        return f"; states alone are (2 + 16 / {job.gpus}) bytes x {format_count(count)} = {format_bytes(total)}"
    each = 16 if job.load_dtype == "fp32" else 8
    if job.strategy in ("single", "ddp") and job.optimizer.startswith("adamw_torch"):
        return f"; states alone are {each} bytes x {format_count(count)} = {format_bytes(each * count)}"
    return ""


def hint(model: ModelSpec, machine: HardwareProfile, candidate: Candidate) -> str:
    """What outside this tool's plans would go lower, as a clause; empty where nothing is known to."""
    job, budget = candidate.job, candidate.budget
    if job is None or budget is None or candidate.verdict != "does_not_fit":
        return ""
    if job.strategy == "single" and job.method == "full" and job.load_dtype == "bf16":
        without = budget.fullest.needed - budget.fullest.parts.get("gradients", 0)
        if without <= max(machine.capacities):
            return (
                f"; an optimizer that steps inside the backward (torchtune's recipes) keeps no gradients and would "
                f"need about {format_bytes(without)}"
            )
    if job.strategy == "zero3" and job.method == "qlora":
        return (
            "; FSDP with CPU offload, not planned here, goes lower (published: 70B on 2 x 24 GB with 107 GB host RAM)"
        )
    return ""


def total_shortfall(model: ModelSpec, machine: HardwareProfile, job: Job) -> int:
    """Bytes that all cards of the job together lack for weights, states and what is live once; at least 1."""
    found = outline(model, job)
    need = found.weights + found.buffers + found.inside + found.logits
    if job.trains:
        need += found.gradients + sum(states(job, found))
    return max(1, need - sum(machine.capacities[: job.gpus]))


def hopeless(model: ModelSpec, machine: HardwareProfile, job: Job) -> bool:
    """Whether what lies on a card at all times is more than the card, by bytes a parameter: no batch is small enough."""
    world, count = job.world_size, parameter_count(model)
    width = 0.5 if job.quantization == "nf4" else 1.0 if job.quantization == "int8" else DTYPE_BYTES[job.load_dtype]
    spread = job.gpus if job.strategy == "device_map" else world if job.strategy in ("zero3", "tensor_parallel") else 1
    held = 0.0 if job.offload_param else width * count / spread
    if job.method == "full" and job.strategy in ("zero2", "zero3"):
        held += 0 if job.offload_optimizer else 12 * count / world
    elif job.method == "full":
        states_too = 2 * width if job.optimizer.startswith("adamw_torch") else 0
        held += (width + states_too) * count / spread
    return held > max(machine.capacities)
