"""A budget in milliseconds: states by formula over the outline of the step. It steers the search, and stands for the
budget where a job is far from its card's limit; near it the memory model replays the job.

Phases are kept apart as they happen: gradients, activations and the optimizer's temporaries are not alive together.
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.assemble import CUBLAS_WORKSPACE, CUBLAS_WORKSPACE_HOPPER
from advisor.memory.budget import Budget, GpuBudget, Part
from advisor.memory.engines.host import process_host_ram, zero_host_ram
from advisor.memory.optimizer import is_embedding
from advisor.memory.runtime import runtime_bytes
from advisor.memory.single import HOST_PROCESS, is_hopper
from advisor.models.spec import ModelSpec
from advisor.strategies.outline import Outline, Point, outline, states

# The allocator's rounding and splitting with expandable segments: in replays 0.3 to 2% above the live bytes.
ALLOCATOR = 1.01


def estimate(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The budget of ``job`` by formula. Raises InputError for a config that transformers cannot read."""
    found = outline(model, job)
    if job.strategy == "device_map":
        return _device_map(machine, job, found)
    moments = list(_moments(job, found))
    phase, parts = max(moments, key=lambda moment: sum(moment[1].values()))
    parts["temporary"] = parts.get("temporary", 0) + _workspace(machine, job)
    gpu = _gpu(parts, parts["weights"], runtime_bytes(machine, job))
    phases: dict[str, int] = {}
    for name, alive in moments:
        phases[name] = max(phases.get(name, 0), sum(alive.values()))
    host = _host(job, found)
    return Budget(
        gpus=(gpu,) * max(1, job.gpus // job.nodes) if job.strategy != "single" else (gpu,),
        host_ram=host,
        host_ram_load=host,
        disk=_disk(job, found),
        peak_phase=phase,
        phases=phases,
        notes=("by formula: far from the card's limit",),
    )


def _workspace(machine: HardwareProfile, job: Job) -> int:
    """cuBLAS takes its workspace at the first product of a thread; autograd has its own."""
    return (CUBLAS_WORKSPACE_HOPPER if is_hopper(machine) else CUBLAS_WORKSPACE) * (2 if job.trains else 1)


def _gpu(parts: Mapping[Part, int], load: int, runtime: int) -> GpuBudget:
    allocated = sum(parts.values())
    return GpuBudget(
        parts={name: size for name, size in parts.items() if size},
        allocated=allocated,
        reserved=int(allocated * ALLOCATOR),
        required=int(allocated * ALLOCATOR),
        runtime=runtime,
        load_allocated=load,
    )


def _moments(job: Job, found: Outline) -> list[tuple[str, dict[Part, int]]]:
    """(phase, live bytes by part) of every turn of the step, on one of the job's GPUs."""
    if job.strategy in ("zero2", "zero3"):
        return _zero(job, found)
    world = job.world_size
    weights = found.buffers + (_split_weights(found, world) if job.strategy == "tensor_parallel" else found.weights)
    held, temporary = states(job, found) if job.trains else (0, 0)
    buckets = found.gradients if job.strategy == "ddp" else 0
    fixed: dict[Part, int] = {"weights": weights, "optimizer": held, "buffers": buckets}
    moments: list[tuple[str, dict[Part, int]]] = [
        (point.phase, fixed | {"gradients": point.gradients} | _passing(point, world)) for point in found.points
    ]
    if job.trains:
        moments.append(("step", fixed | {"gradients": found.gradients, "temporary": temporary}))
    return moments


def _passing(point: Point, world: int) -> dict[Part, int]:
    """What a turn holds for a while; tensor parallelism (the only one to split it) keeps a share of the cache."""
    return {
        "logits": point.logits,
        "activations": max(0, point.live - point.logits),
        "kv_cache": point.cache // world if point.cache else 0,
    }


def _split_weights(found: Outline, world: int) -> int:
    whole = sum(p.storage_bytes for p in found.parameters if is_embedding(p.name))
    return whole + (found.weights - whole) // world


def _zero(job: Job, found: Outline) -> list[tuple[str, dict[Part, int]]]:
    """DeepSpeed's states and buffers as the memory model lays them (:mod:`advisor.memory.engines.zero`)."""
    share = -(-found.trained // job.world_size)
    sharded, moved = job.strategy == "zero3", job.offload_optimizer is not None
    fixed: dict[Part, int] = {"weights": found.weights if not sharded else 0}
    if sharded and job.offload_param is None:
        fixed["weights"] = -(-found.weights // job.world_size)
    buffers = gathered = gradients = 0
    if job.trains:
        fixed["optimizer"] = 0 if moved else 12 * share
        gradients = 2 * share if sharded and not moved else 0
        buffers = 2 * job.zero.reduce_bucket_size
        if moved and not sharded:
            buffers += 2 * _largest_trained(found)
    if sharded and (job.world_size > 1 or job.offload_param):
        gathered = 2 * min(found.numel, job.zero.max_live_parameters)
    turns: list[tuple[str, dict[Part, int]]] = [
        (point.phase, fixed | {"buffers": buffers + gathered, "gradients": gradients} | _passing(point, 1))
        for point in found.points
    ]
    if not job.trains:
        return turns
    foreach = 2 if job.zero_optimizer == "torch_adam" else 1
    if sharded:
        temporary = 0 if moved else 4 * min(share, job.zero.sub_group_size) * foreach
    else:
        # Averaged gradients, flat and in fp32; with the optimizer on the host, the largest one's norm in fp64.
        temporary = 8 * (_largest_trained(found) if moved else share)
    return [*turns, ("step", fixed | {"buffers": buffers, "gradients": gradients, "temporary": temporary})]


def _largest_trained(found: Outline) -> int:
    return max((p.numel for p in found.parameters if p.trainable), default=0)


def _host(job: Job, found: Outline) -> int:
    """Host bytes of one node: its processes and what DeepSpeed keeps there."""
    if job.strategy in ("zero2", "zero3"):
        return zero_host_ram(job, found.numel, found.trained).peak
    return HOST_PROCESS if job.strategy == "single" else process_host_ram(job)


def _disk(job: Job, found: Outline) -> int:
    each = 16 * found.trained if job.offload_optimizer == "nvme" else 0
    each += 2 * found.numel if job.offload_param == "nvme" else 0
    return each // job.nodes


def _device_map(machine: HardwareProfile, job: Job, found: Outline) -> Budget:
    """Each card by the share of the layers that it holds."""
    from advisor.memory.device_map import device_of, head_device

    assert isinstance(job.device_map, Mapping)
    placed = {name: str(device) for name, device in job.device_map.items()}
    homes = {p.name: device_of(p.name.removeprefix("base_model.model."), placed) for p in found.parameters}
    held, temporary = states(job, found) if job.trains else (0, 0)
    layers = max(1, len({p.layer for p in found.parameters if p.layer is not None}))
    first, head = next(iter(homes.values())), head_device(placed, homes)
    workspace = _workspace(machine, job)
    gpus = []
    for card in sorted({home for home in homes.values() if home.isdigit()}, key=int):
        mine = [p for p in found.parameters if homes[p.name] == card]
        weights = sum(p.storage_bytes for p in mine)
        gradients = sum(p.numel * p.dtype_bytes for p in mine if p.trainable) if job.trains else 0
        of_gradients = gradients / max(1, found.gradients)
        share = len({p.layer for p in mine if p.layer is not None}) / layers
        fixed: dict[Part, int] = {"weights": weights + found.buffers, "optimizer": int(held * of_gradients)}
        turns = [_on_card(point, share, of_gradients, card == first, card == head) for point in found.points]
        if job.trains:
            turns.append({"gradients": gradients, "temporary": int(temporary * of_gradients)})
        parts = fixed | max(turns, key=lambda turn: sum(turn.values()))
        parts["temporary"] = parts.get("temporary", 0) + workspace
        gpus.append(_gpu(parts, weights, runtime_bytes(machine, job)))
    spilled = {place: sum(p.storage_bytes for p in found.parameters if homes[p.name] == place)
               for place in ("cpu", "disk")}  # fmt: skip
    host = HOST_PROCESS + spilled["cpu"]
    return Budget(
        gpus=tuple(gpus), host_ram=host, host_ram_load=host, disk=spilled["disk"],
        peak_phase="backward" if job.trains else "prefill", notes=("by formula: far from the card's limit",),
    )  # fmt: skip


def _on_card(point: Point, share: float, of_gradients: float, first: bool, head: bool) -> dict[Part, int]:
    """A turn as one card sees it that holds ``share`` of the layers: what earlier turns left, by share, and what the
    turn adds where it runs. Logits stay with the head; which end of the model a turn outside the layers belongs to is
    told by them."""
    here = share > 0 if point.inner else head if point.logits else first or head
    left = max(0, point.live - point.inside - point.logits)
    return {
        "activations": int(left * share) + (max(0, point.inside - (0 if point.inner else point.logits)) if here else 0),
        "logits": point.logits if head else 0,
        "kv_cache": int(point.cache * share),
        "gradients": int(point.gradients * of_gradients),
    }
