"""Whole layers on different devices, by accelerate's planner: several GPUs, then the CPU, then disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job, StrategyName, Workload
from advisor.memory.runtime import runtime_bytes
from advisor.models.spec import ModelSpec
from advisor.strategies import launch, limits
from advisor.strategies.advice import advice
from advisor.strategies.base import PlanParts
from advisor.strategies.common import Common, cards_of_node, job_of, methods, powers_of_two, quantizations
from advisor.strategies.estimate import estimate
from advisor.strategies.outline import Outline, outline, states
from advisor.strategies.placement import Placed, place
from advisor.units import GIB, format_bytes

# Of a card, for what the outline does not see: the allocator's rounding and its own error.
MARGIN = 0.03
# A card filled to this share has room for a longer prompt or a larger batch (case B02).
COMFORT = 0.6
# Of the host's memory, for the process and the page cache, when layers spill to it.
HOST_SHARE = 0.9
# Bytes that 4-bit weights take beyond accelerate's half byte: scales a block of 64, and scales of those.
NF4_SCALES = 1.04


class DeviceMap(Common):
    """accelerate's ``infer_auto_device_map`` and ``dispatch_model``."""

    name: StrategyName = "device_map"
    title = "layers over devices (device_map)"

    def refuses(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> str | None:
        """No GPU, or training with one: nothing may spill then, which is the single strategy."""
        reason = limits.no_cards(machine)
        if reason:
            return reason
        if cards_of_node(machine) > 1:
            return limits.mig(machine)
        if workload.task == "finetune":
            return "there is one GPU a node, and layers on the CPU or disk cannot be trained"
        if any(card.unified_memory for card in machine.gpus):
            return "GPU and host share one pool of memory here, so moving layers to the CPU frees nothing"
        if workload.quantization in ("nf4", "int8"):
            return f"there is one GPU a node, and {workload.quantization} layers cannot lie on the CPU or disk"
        return None

    def jobs(self, model: ModelSpec, machine: HardwareProfile, workload: Workload) -> Iterator[Job]:
        """Each method or storage over the fewest cards that hold it, then 16 bits with what spills on the CPU."""
        counts = powers_of_two(2, cards_of_node(machine))
        if workload.task == "finetune":
            for method in methods(workload):
                yield from self._fewest(
                    model, machine, [job_of(model, machine, workload, self.name, method, gpus=n) for n in counts]
                )
            return
        whole = False
        for quantization in quantizations(workload):
            kinds = [
                job_of(model, machine, workload, self.name, None, gpus=n, quantization=quantization) for n in counts
            ]
            for job in self._fewest(model, machine, kinds):
                whole = whole or (quantization is None and job.device_map is not None)
                yield job
        if not whole and None in quantizations(workload):
            spilled = job_of(model, machine, workload, self.name, None, gpus=cards_of_node(machine))
            settled = self._spill(model, machine, spilled, outline(model, spilled))
            if isinstance(settled, Job):
                yield settled

    def _fewest(self, model: ModelSpec, machine: HardwareProfile, kinds: list[Job]) -> Iterator[Job]:
        """The job over the fewest cards that hold it with ease: cards work in turn, so more of them bring room alone."""
        held: Job | None = None
        for job in kinds:
            settled = self._balance(model, machine, job, outline(model, job))
            if not isinstance(settled, Job):
                continue
            held = settled
            used = zip(estimate(model, machine, settled).gpus, machine.capacities, strict=False)
            if max(gpu.needed / room for gpu, room in used) <= COMFORT:
                break
        if held is not None:
            yield held
        elif kinds:
            yield kinds[-1]  # no number of cards holds it: the search says what is missing

    def settle(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> Job | str:
        """The job with its map: balanced over its cards, or spilled where it spilled before."""
        found = outline(model, job)
        if limits.reaches_host(job.device_map):
            return self._spill(model, machine, job, found)
        return self._balance(model, machine, job, found)

    def plan(self, model: ModelSpec, machine: HardwareProfile, job: Job) -> PlanParts:
        """One process that sees its cards; the map is fixed here and not made anew at load (case B08)."""
        placed = dict(job.device_map) if isinstance(job.device_map, Mapping) else None
        return PlanParts(
            launch=launch.one_process(machine, job),
            device_map=placed,
            max_memory={name: f"{size / GIB:.3f}GiB" for name, size in (job.max_memory or {}).items()},
            offload_folder=placed is not None and "disk" in placed.values(),
            steps=advice(model, machine, job),
        )

    def _balance(self, model: ModelSpec, machine: HardwareProfile, job: Job, found: Outline) -> Job | str:
        rooms = rooms_of(machine, job, found)
        held = _stored(job, found)
        if sum(rooms.values()) < held:
            what = "weights, gradients and states" if job.trains else "weights"
            amount = format_bytes(int(held * _weight_factor(job, found)))
            return f"{what} take {amount}, more than {job.gpus} cards have beside cache and activations"
        placed = place(model, job, rooms, balance=True)
        if placed is None:
            return f"no split between layers puts {format_bytes(held)} of weights on {job.gpus} cards"
        return _with(job, placed)

    def _spill(self, model: ModelSpec, machine: HardwareProfile, job: Job, found: Outline) -> Job | str:
        if any(card.unified_memory for card in machine.gpus):
            return "GPU and host share one pool of memory here, so moving layers to the CPU frees nothing"
        rooms = rooms_of(machine, job, found)
        host = machine.host.memory_available or machine.host.memory_total
        if host is not None:
            rooms["cpu"] = int(host * HOST_SHARE)
        placed = place(model, job, rooms, balance=False)
        return _with(job, placed) if placed is not None else "accelerate found no map"


def _with(job: Job, placed: Placed) -> Job:
    return replace(job, device_map=dict(placed.device_map), max_memory=dict(placed.max_memory), gpus=placed.cards)


def _stored(job: Job, found: Outline) -> int:
    """Bytes of the weights as accelerate counts them."""
    return int(found.weights / NF4_SCALES) if job.quantization == "nf4" else found.weights


def _weight_factor(job: Job, found: Outline) -> float:
    """Bytes on a card for each byte of weights there: gradients and states lie with their weights."""
    if not job.trains:
        return 1.0
    held, temporary = states(job, found)
    return (found.weights + found.gradients + held + temporary) / found.weights


def rooms_of(machine: HardwareProfile, job: Job, found: Outline) -> dict[str, int]:
    """Bytes of weights that each card may take: what its share of cache and activations, and the logits, leave.

    The logits lie with the output head, on the last card, or on the first where the head is the embedding.
    """
    cards = machine.capacities[: job.gpus]
    spread = found.live - found.inside - found.logits  # grows with the layers that a card has
    rooms: dict[str, int] = {}
    for index, capacity in enumerate(cards):
        free = capacity * (1 - MARGIN) - runtime_bytes(machine, job) - found.inside
        free -= max(0, spread) * capacity / sum(cards)
        if index in (0, len(cards) - 1):
            free -= found.logits
        scales = NF4_SCALES if job.quantization == "nf4" else 1.0
        rooms[str(index)] = max(0, int(free / _weight_factor(job, found) / scales))
    return rooms
