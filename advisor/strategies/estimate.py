"""A budget in milliseconds: states by formula over the outline of the step. It steers the search, and stands for the
budget where a job is far from its card's limit; near it the memory model replays the job.

Phases are kept apart as they happen: gradients, activations and the optimizer's temporaries are not alive together.
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.hardware.profile import HardwareProfile
from advisor.job import DTYPE_BYTES, Job
from advisor.memory.budget import Budget, GpuBudget, Part
from advisor.memory.runtime import runtime_bytes
from advisor.models.spec import ModelSpec
from advisor.strategies.outline import Outline, Point, outline, states
from advisor.units import GIB

# The allocator's rounding and splitting with expandable segments: of 8 jobs 8 lived at 1.04 times their own peak.
ALLOCATOR = 1.02
# A process with torch loaded.
HOST_PROCESS = GIB
# DeepSpeed's own factor over the states that it keeps in host memory: pinned buffers round up to powers of two.
HOST_FACTOR = 1.5


def estimate(model: ModelSpec, machine: HardwareProfile, job: Job) -> Budget:
    """The budget of ``job`` by formula. Raises InputError for a config that transformers cannot read."""
    found = outline(model, job)
    if job.strategy == "device_map":
        return _device_map(machine, job, found)
    moments = list(_moments(job, found))
    phase, parts = max(moments, key=lambda moment: sum(moment[1].values()))
    gpu = _gpu(parts, _load(job, found), runtime_bytes(machine, job))
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
    world = job.world_size
    zero = job.strategy in ("zero2", "zero3")
    weights = _resident(job, found)
    buffers = _buffers(job, found)
    held, temporary = (0, 0)
    gradient_share = 1.0
    if job.trains:
        if zero:
            held = 0 if job.offload_optimizer else 12 * found.trained // world
            # The step makes fp32 gradients of one sub-group; torch's foreach form one more copy.
            group = min(found.trained // world, job.zero.sub_group_size)
            copies = 2 if job.steps_by_foreach else 1
            temporary = 0 if job.offload_optimizer else 4 * group * copies
            gradient_share = 0.0 if job.offload_optimizer and job.strategy == "zero3" else 1 / world
        else:
            held, temporary = states(job, found)
    gradients = found.gradients
    if zero and job.trains:
        gradients = min(gradients, 2 * found.trained)
    share = world if job.strategy == "tensor_parallel" else 1
    moments: list[tuple[str, dict[Part, int]]] = []
    for point in found.points:
        grown = min(point.gradients, gradients)
        moments.append((point.phase, {
            "weights": weights, "optimizer": held, "buffers": buffers,
            "gradients": int(grown * gradient_share), "logits": point.logits,
            "activations": max(0, _live(point, share) - point.logits), "kv_cache": point.cache // share,
        }))  # fmt: skip
    if job.trains:
        # ZeRO's gather and DDP's buckets wait for the next step, what the step itself makes does not.
        waiting = buffers if job.strategy == "ddp" else 0
        moments.append(("step", {
            "weights": weights, "optimizer": held, "gradients": int(gradients * gradient_share),
            "temporary": temporary, "buffers": waiting,
        }))  # fmt: skip
    return moments


def _live(point: Point, share: int) -> int:
    """Activations; tensor parallelism splits what a layer makes inside, not what passes between layers."""
    return point.live if share == 1 else point.live - point.inside + point.inside // share


def _resident(job: Job, found: Outline) -> int:
    """Bytes of weights that stay on one GPU."""
    world = job.world_size
    if job.strategy == "zero3":
        return found.buffers + (0 if job.offload_param else found.weights // world)
    if job.strategy == "tensor_parallel":
        layers = sum(p.storage_bytes for p in found.parameters if p.layer is not None)
        return found.weights - layers + layers // world + found.buffers
    return found.weights + found.buffers


def _buffers(job: Job, found: Outline) -> int:
    """Bucket and gather buffers of one GPU."""
    if job.strategy == "ddp":
        return found.gradients
    if job.strategy == "zero2":
        return 2 * 2 * min(job.zero.reduce_bucket_size, found.trained)
    if job.strategy == "zero3":
        width = DTYPE_BYTES[job.load_dtype]
        gathered = found.largest_layer + width * job.zero.prefetch_bucket_size
        gathered = max(gathered, min(found.weights, width * min(job.zero.max_live_parameters, found.numel)))
        reduced = 2 * 2 * min(job.zero.reduce_bucket_size, found.trained) if job.trains else 0
        return gathered + reduced
    return 0


def _load(job: Job, found: Outline) -> int:
    return _resident(job, found)


def _host(job: Job, found: Outline) -> int:
    """Host bytes of one node: processes, and what DeepSpeed keeps there (18 bytes a parameter, half more)."""
    ranks = max(1, job.world_size // job.nodes)
    host = HOST_PROCESS * ranks
    each = 16 * found.trained if job.offload_optimizer == "cpu" else 0
    if job.offload_param == "cpu":
        each += found.weights if not job.offload_optimizer else 2 * found.numel
    return host + int(HOST_FACTOR * each / job.nodes)


def _disk(job: Job, found: Outline) -> int:
    each = 16 * found.trained if job.offload_optimizer == "nvme" else 0
    if job.offload_param == "nvme":
        each += 0 if each else found.weights
    return each // job.nodes


def _device_map(machine: HardwareProfile, job: Job, found: Outline) -> Budget:
    """Each card by the share of the layers that it holds."""
    from advisor.memory.device_map import device_of

    assert isinstance(job.device_map, Mapping)
    placed = {name: str(device) for name, device in job.device_map.items()}
    homes = {p.name: device_of(p.name.removeprefix("base_model.model."), placed) for p in found.parameters}
    held = states(job, found)[0] if job.trains else 0
    layers = max(1, len({p.layer for p in found.parameters if p.layer is not None}))
    outside = [p for p in found.parameters if p.layer is None]
    head = homes[outside[-1].name] if outside else "0"
    spread = max(0, found.live - found.inside - found.logits - found.cache)
    runtime = runtime_bytes(machine, job)
    gpus = []
    for card in sorted({home for home in homes.values() if home.isdigit()}, key=int):
        mine = [p for p in found.parameters if homes[p.name] == card]
        weights = sum(p.storage_bytes for p in mine)
        gradients = sum(p.numel * p.dtype_bytes for p in mine if p.trainable) if job.trains else 0
        share = len({p.layer for p in mine if p.layer is not None}) / layers
        parts: dict[Part, int] = {
            "weights": weights + found.buffers,
            "gradients": gradients,
            "optimizer": held * gradients // max(1, found.gradients),
            "activations": int(spread * share) + found.inside,
            "logits": found.logits if card == head else 0,
            "kv_cache": int(found.cache * share),
        }
        gpus.append(_gpu(parts, weights, runtime))
    spilled = {place: sum(p.storage_bytes for p in found.parameters if homes[p.name] == place)
               for place in ("cpu", "disk")}  # fmt: skip
    host = HOST_PROCESS + spilled["cpu"]
    return Budget(
        gpus=tuple(gpus), host_ram=host, host_ram_load=host, disk=spilled["disk"],
        peak_phase="backward" if job.trains else "prefill", notes=("by formula: far from the card's limit",),
    )  # fmt: skip
