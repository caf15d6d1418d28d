"""Machines, jobs and speeds in a line each: the same words on a terminal and on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.units import format_bytes, format_rate

if TYPE_CHECKING:
    from advisor.hardware.profile import HardwareProfile
    from advisor.job import Job
    from advisor.timing.estimate import TimeEstimate


def describe_machine(machine: HardwareProfile) -> str:
    """One line: cards, memory, host."""
    if not machine.gpus:
        cards = "no GPU"
    else:
        cards = " + ".join(f"{gpu.count} x {gpu.name} ({format_bytes(machine.capacity(gpu))})" for gpu in machine.gpus)
    nodes = f"{machine.nodes} nodes of " if machine.nodes > 1 else ""
    host = machine.host.memory_available or machine.host.memory_total
    link = (
        f", {machine.links.gpu_to_gpu_kind} {format_rate(machine.links.gpu_to_gpu)}" if machine.links.gpu_to_gpu else ""
    )
    # Where speeds come from: what was measured on the machine goes before what its maker states.
    rates = f", rates measured on {machine.measured.date}" if machine.measured else ""
    return f"{machine.name}: {nodes}{cards}{link}, host RAM {format_bytes(host)}{rates}"


def describe_job(job: Job) -> str:
    """One line with every setting that a reader would ask for."""
    items = [f"micro batch {job.micro_batch_size}", f"sequence {job.sequence_length}"]
    if job.trains:
        items.append(f"accumulation {job.gradient_accumulation_steps} (global batch {job.global_batch_size})")
        items.append("gradient checkpointing" if job.gradient_checkpointing else "no gradient checkpointing")
        items.append(job.optimizer)
        if job.lora:
            targets = job.lora.target_modules
            names = targets if isinstance(targets, str) else ",".join(targets)
            items.append(f"LoRA rank {job.lora.rank} on {names}")
    else:
        items.append(f"{job.max_new_tokens} new tokens")
    items += [job.precision, job.attention, f"{job.gpus} GPU{'s' if job.gpus != 1 else ''}"]
    if job.nodes > 1:
        items.append(f"{job.nodes} nodes")
    if job.quantization:
        items.append(job.quantization)
    if job.offload_optimizer:
        items.append(f"optimizer on {job.offload_optimizer}")
    if job.offload_param:
        items.append(f"parameters on {job.offload_param}")
    if job.expandable_segments:
        items.append("expandable segments")
    return ", ".join(items)


def describe_time(time: TimeEstimate | None) -> str:
    """The speed in a few words; "unknown" where the machine's rates are not known."""
    return time.words if time is not None else ""
