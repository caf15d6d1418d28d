"""Before a run: is the machine as the plan thinks, now?"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from advisor.cache import version_of
from advisor.hardware.profile import HardwareProfile
from advisor.plan import Plan, PlanStep
from advisor.units import format_bytes


@dataclass(frozen=True, slots=True)
class Preflight:
    """``problems`` stop a run (unless forced), ``warnings`` do not."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def preflight(plan: Plan, step: PlanStep, machine: HardwareProfile, output: Path, *, rehearse: bool) -> Preflight:
    """Hold the plan against ``machine`` as it is now: cards, free memory, host RAM, disk, packages, files."""
    problems: list[str] = []
    warnings: list[str] = []
    _cards(plan, step, machine, problems)
    _host(step, machine, problems, warnings)
    _software(plan, step, problems, warnings)
    _disk(plan, step, output, rehearse, problems)
    return Preflight(tuple(problems), tuple(warnings))


def _cards(plan: Plan, step: PlanStep, machine: HardwareProfile, problems: list[str]) -> None:
    wanted = step.job.gpus // max(1, step.job.nodes)
    if not step.promise.gpus:
        return  # a plan for the CPU
    cards = machine.cards
    if len(cards) < wanted:
        problems.append(f"the plan uses {wanted} GPUs of a node, this machine shows {len(cards)}")
        return
    planned = plan.hardware.cards
    for index, gpu in enumerate(step.promise.gpus):
        card = cards[index]
        need, free = gpu.required + gpu.runtime, machine.capacity(card)
        if free < need:
            problems.append(
                f"GPU {index} ({card.name}) has {format_bytes(free)} free, the plan needs {format_bytes(need)}"
            )
        elif index < len(planned) and planned[index].name != card.name:
            problems.append(f"the plan was made for {planned[index].name}, GPU {index} here is {card.name}")
    if step.job.precision.startswith("bf16") and not all(card.has_bf16 for card in cards[:wanted]):
        problems.append("the plan computes in bf16, which a GPU here does not have")


def _host(step: PlanStep, machine: HardwareProfile, problems: list[str], warnings: list[str]) -> None:
    available = machine.host.memory_available
    need = max(step.promise.host_ram, step.promise.host_ram_load)
    if available is not None and need > available:
        text = f"the plan needs {format_bytes(need)} of host RAM, {format_bytes(available)} are available"
        reason = machine.host.memory_limit_reason
        problems.append(f"{text} ({reason})" if reason else text)
    # The lock limit (ulimit -l) does not bind the CUDA driver's own pinning; Windows does, under WSL.
    if machine.host.wsl and step.promise.host_pinned:
        warnings.append(
            f"the plan pins {format_bytes(step.promise.host_pinned)} of host RAM, which Windows limits under WSL: "
            "plan again here, so that nothing is pinned"
        )


def _software(plan: Plan, step: PlanStep, problems: list[str], warnings: list[str]) -> None:
    job = step.job
    needed = ["torch", "transformers", "accelerate"]
    if job.strategy in ("zero2", "zero3"):
        needed.append("deepspeed")
    if job.quantization or "8bit" in job.optimizer or "paged" in job.optimizer:
        needed.append("bitsandbytes")
    if job.method in ("lora", "qlora"):
        needed.append("peft")
    for package in needed:
        here, then = version_of(package), plan.software.get(package)
        if here is None:
            problems.append(f"{package} is not installed")
        elif then and here.split("+")[0] != then.split("+")[0]:
            warnings.append(f"{package} is {here}, the plan was made with {then}")


def _disk(plan: Plan, step: PlanStep, output: Path, rehearse: bool, problems: list[str]) -> None:
    need = step.promise.disk
    if step.job.trains and not rehearse and plan.model.parameters:
        need += 2 * plan.model.parameters if step.job.method == "full" else 0  # the saved 16-bit model
    folder = output.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if need > free:
        problems.append(f"the plan writes {format_bytes(need)} to {folder}, {format_bytes(free)} are free")
    if plan.model.path and not rehearse and not Path(plan.model.path).exists():
        problems.append(f"the model's folder {plan.model.path} is not there")
