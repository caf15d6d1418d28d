"""What cannot be done at all, whatever the memory: one sentence each, with its numbers.

``no_cards`` and its like look at machine and workload, :func:`objection` at one whole job. Where a library is the
reason, its name stands in the sentence; the cases are public reports of what happened to people who tried.
"""

from __future__ import annotations

from collections.abc import Mapping

from advisor.hardware.profile import HardwareProfile
from advisor.hardware.software import ASYNC_IO, CPU_ADAM, missing_for_op
from advisor.job import Job, Workload
from advisor.models.spec import ModelSpec
from advisor.strategies.common import accumulation, parameter_count
from advisor.units import format_bytes, format_count

# A sharded job uses of every card what the smallest has; beyond this difference the rest is worth a device map.
MIXED_TOLERANCE = 0.1
# Bytes a parameter on disk under NVMe offload: fp32 weights, both moments and the gradient (full), the weight alone.
NVME_FULL, NVME_FROZEN = 16, 2


def no_cards(machine: HardwareProfile) -> str | None:
    """No GPU."""
    return None if machine.gpus else f"{machine.name} has no GPU, and every strategy here places a model on GPUs"


def one_card(machine: HardwareProfile, what: str) -> str | None:
    """A strategy that needs several GPUs meets one."""
    if machine.gpu_count > 1:
        return None
    return f"there is one GPU, and {what}"


def mig(machine: HardwareProfile) -> str | None:
    """MIG instances cannot be joined (case E03)."""
    if any(card.mig for card in machine.gpus):
        return "the GPUs are MIG instances: a process sees one of them, and NCCL does not join several"
    return None


def mixed_cards(machine: HardwareProfile) -> str | None:
    """Even shards on cards of different memory."""
    sizes = machine.capacities
    if not sizes or min(sizes) >= (1 - MIXED_TOLERANCE) * max(sizes):
        return None
    return (
        f"the cards differ ({format_bytes(min(sizes))} to {format_bytes(max(sizes))}) and shards are even, so all "
        f"would be used as the smallest"
    )


def no_network(machine: HardwareProfile, job: Job) -> str | None:
    """A job over nodes without a network that is known."""
    if job.nodes == 1:
        return None
    if machine.links.network_kind == "none" or machine.links.network is None:
        return f"the job spans {job.nodes} nodes and no network between them is known"
    return None


def objection(model: ModelSpec, machine: HardwareProfile, workload: Workload, job: Job) -> str | None:
    """One sentence why this very job cannot run, or None."""
    return (
        no_network(machine, job)
        or _batch(workload, job)
        or _precision(machine, job)
        or _attention(machine, job)
        or _stored_quantized(model, job)
        or _bitsandbytes(machine, job)
        or _offload(model, machine, job)
    )


def _batch(workload: Workload, job: Job) -> str | None:
    if not job.trains or workload.global_batch_size is None:
        return None
    replicas = job.data_parallel_size
    if accumulation(workload, job.micro_batch_size, replicas) is not None:
        return None
    return (
        f"a global batch of {workload.global_batch_size} cannot be made of {replicas} x micro batch "
        f"{job.micro_batch_size}"
    )


def _precision(machine: HardwareProfile, job: Job) -> str | None:
    if not job.precision.startswith("bf16"):
        return None
    lacking = [card for card in machine.gpus if not card.has_bf16]
    if not lacking:
        return None
    card = lacking[0]
    return (
        f"{card.name} (compute capability {card.compute_capability or 'unknown'}) has no bf16, which needs 8.0; "
        f"use fp16"
    )


def _attention(machine: HardwareProfile, job: Job) -> str | None:
    if job.attention != "flash_attention_2":
        return None
    if job.precision == "fp32":
        return "flash_attention_2 computes in 16 bits, and fp32 was asked for; use sdpa"
    for card in machine.gpus:
        if card.vendor not in ("nvidia", "amd") or (card.capability is not None and card.capability < (8, 0)):
            has = card.compute_capability or "none"
            return f"flash_attention_2 needs compute capability 8.0, {card.name} has {has}; use sdpa"
    return None


def _stored_quantized(model: ModelSpec, job: Job) -> str | None:
    """A checkpoint that is stored quantized keeps its own form."""
    stored = model.quantization_config
    if not stored:
        return None
    kind = str(stored.get("quant_method", "a quantized form"))
    if job.trains and job.method == "full":
        return f"the checkpoint is stored as {kind}, whose weights take no gradients; fine-tune a 16-bit copy, or LoRA"
    if job.quantization and kind not in ("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit"):
        return f"the checkpoint is stored as {kind}, which bitsandbytes does not quantize again"
    return None


def _bitsandbytes(machine: HardwareProfile, job: Job) -> str | None:
    low_memory = "8bit" in job.optimizer or job.optimizer.startswith("paged_")
    if not job.quantization and not (job.trains and low_memory):
        return None
    what = job.quantization or job.optimizer
    for card in machine.gpus:
        if card.vendor != "nvidia":
            return f"{what} is bitsandbytes, whose released kernels are for CUDA; {card.name} is no CUDA card"
        if job.quantization == "int8" and card.capability is not None and card.capability < (7, 5):
            return f"int8 products need compute capability 7.5, {card.name} has {card.compute_capability}; use nf4"
    if job.quantization == "int8" and job.strategy == "zero3":
        return "ZeRO-3 shards floating-point storage only, so bitsandbytes int8 cannot be sharded; use nf4"
    if job.quantization and job.strategy == "tensor_parallel":
        return "bitsandbytes layers cannot be split by tp_plan"
    if job.quantization and (job.offload_param or reaches_host(job.device_map)):
        use = "training" if job.trains else "4-bit weights" if job.quantization == "nf4" else "8-bit products"
        return f"bitsandbytes layers cannot lie on the CPU or disk for {use}: their kernels run on the GPU alone"
    return None


def reaches_host(placed: str | Mapping[str, int | str] | None) -> bool:
    """Whether a device map puts anything on the CPU or disk."""
    return isinstance(placed, Mapping) and any(device in ("cpu", "disk") for device in placed.values())


def _offload(model: ModelSpec, machine: HardwareProfile, job: Job) -> str | None:
    spills = reaches_host(job.device_map)
    if job.trains and spills:
        return "modules on the CPU or disk are copied to the GPU for a forward only: their gradients have no home"
    if not (job.offload_optimizer or job.offload_param or spills):
        return None
    if any(card.unified_memory for card in machine.gpus):
        return "GPU and host share one pool of memory here, so moving weights to the CPU frees nothing"
    if job.offload_optimizer and job.zero_optimizer == "deepspeed":
        reason = _toolchain(machine)
        if reason:
            return reason
    if "nvme" in (job.offload_optimizer, job.offload_param):
        return _nvme(model, machine, job)
    return None


def _toolchain(machine: HardwareProfile) -> str | None:
    """DeepSpeedCPUAdam is compiled on first use (cases A11, E06), unless it lies there compiled already."""
    lacking = missing_for_op(machine.software, CPU_ADAM)
    return f"the CPU optimizer is compiled when first used, and {machine.name} has {lacking}" if lacking else None


def nvme_bytes(model: ModelSpec, job: Job) -> int:
    """Bytes that NVMe offload lays on the disk of one node."""
    each = NVME_FULL if job.trains and job.method == "full" and job.offload_optimizer == "nvme" else NVME_FROZEN
    return each * parameter_count(model) // max(1, job.nodes)


def _nvme(model: ModelSpec, machine: HardwareProfile, job: Job) -> str | None:
    disk = machine.disk
    if disk.path is None and machine.here:
        return "NVMe offload needs a folder on a local disk, and none is known"
    if disk.async_io is False:
        lacking = missing_for_op(machine.software, ASYNC_IO) or "the disk does not open with O_DIRECT, or has no libaio"
        return f"NVMe offload needs DeepSpeed's async_io, which does not work here ({lacking})"
    if disk.free is None or disk.async_io is None:
        # An unknown disk must not be what makes a job fit: it would be chosen wherever nothing else is left.
        return f"NVMe offload needs a disk whose free space and async I/O are known; {machine.name} does not say"
    need = nvme_bytes(model, job)
    if disk.free < need:
        count, free = format_count(parameter_count(model)), format_bytes(disk.free)
        return f"NVMe offload of {count} parameters takes {format_bytes(need)} of disk, {free} are free"
    return None


def heads_split(model: ModelSpec, world: int) -> str | None:
    """Tensor parallelism splits attention by heads."""
    heads = model.first("num_attention_heads", "n_head", "n_heads")
    groups = model.first("num_key_value_heads", "num_kv_heads", default=heads)
    for name, count in (("attention heads", heads), ("key and value heads", groups)):
        if count is not None and count % world:
            return f"{count} {name} cannot be split over {world} GPUs"
    return None
