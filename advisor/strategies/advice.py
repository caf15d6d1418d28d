"""What to do or know beside the settings: sentences that go into the plan, each only where it helps this job."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.cache import version_of
from advisor.hardware.profile import HardwareProfile
from advisor.hardware.software import CPU_ADAM
from advisor.job import Job
from advisor.models.spec import ModelSpec
from advisor.software.known_bad import find, table
from advisor.strategies import limits
from advisor.strategies.attention import kernels_of
from advisor.strategies.common import parameter_count
from advisor.strategies.launch import old_driver
from advisor.units import GIB, format_bytes, format_rate

# Bytes a token and vocabulary entry that the plain loss holds at the backward's start: 16-bit logits and three fp32
# buffers of their size (12 to 14 measured, case C10).
LOGIT_BYTES = 14
# Share of a card from which the loss's logits are worth another kernel.
LARGE_LOGITS = 0.1
SHARED_MEMORY = 1 << 30  # below this NCCL's shared-memory transport fails or hangs (case E05)

_LOW_MEMORY = {
    "adamw_8bit": "8-bit moments: a quarter of the memory, blockwise rounding of the states",
    "adamw_bnb_8bit": "8-bit moments: a quarter of the memory, blockwise rounding of the states",
    "paged_adamw_8bit": "8-bit moments that page to host RAM under pressure: a step slows down when they do",
    "paged_adamw_32bit": "moments that page to host RAM under pressure: a step slows down when they do",
    "adafactor": "factored second moments: almost no state, but it converges differently from AdamW",
    "sgd": "no moments: it wants another learning rate and rarely reaches AdamW on transformers",
}


def advice(model: ModelSpec, machine: HardwareProfile, job: Job) -> tuple[str, ...]:
    """All sentences for this job, in the order of a run: before it, at load, in the step."""
    return (
        *_software(machine, job), *_links(machine, job), *_loading(model, machine, job), *_kernels(model, machine, job),
        *_optimizer(machine, job), *_loss(model, machine, job), *_placement(job),
    )  # fmt: skip


def _software(machine: HardwareProfile, job: Job) -> Iterator[str]:
    # The machine's own versions where it was probed: a plan may be made elsewhere.
    names = {name for row in table() for name in row.packages}
    here = {name: version for name in names if (version := version_of(name)) is not None}
    installed = machine.software.packages or here
    tags = {"trainer"} if job.trains else set()
    if job.method in ("lora", "qlora"):
        tags |= {"lora", job.method}
    if job.strategy in ("zero2", "zero3"):
        tags.add("deepspeed")
    if job.offload_optimizer:
        tags.add("offload_optimizer")
    if job.world_size > 1:
        tags.add("several_gpus")
    for row in find(installed, tags, [card.name for card in machine.gpus]):
        yield f"with the installed versions {row.happens}; {row.fix}"


def _links(machine: HardwareProfile, job: Job) -> Iterator[str]:
    if job.world_size == 1:
        return
    if any("RTX 40" in card.name for card in machine.gpus):
        if old_driver(machine):
            yield f"driver {machine.software.driver} hangs in copies between RTX 40 cards: the plan turns them off"
        elif machine.software.driver is None:
            yield "RTX 40 cards: with a driver before 550.40.07 set NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1"
    links = machine.links
    if job.strategy == "tensor_parallel" and links.gpu_to_gpu_kind not in ("nvlink", "infinity_fabric"):
        rate = format_rate(links.gpu_to_gpu)
        kind = links.gpu_to_gpu_kind or "an unknown link"
        yield f"the GPUs talk over {kind} ({rate}): two reductions a layer wait for it"
    shared = machine.host.shared_memory
    if shared is not None and shared < SHARED_MEMORY:
        yield f"/dev/shm has {format_bytes(shared)}: NCCL needs 1 GiB; give the container --shm-size=1g or --ipc=host"
    if job.nodes > 1:
        if links.network_kind == "ethernet":
            yield "the nodes talk over Ethernet: NCCL_SOCKET_IFNAME must name its interface where there are several"
        else:
            yield "check InfiniBand with a two-node all_reduce first; NCCL_IB_HCA names the adapters to use"
            if (limit := machine.host.pinned_limit) is not None:
                yield f"{format_bytes(limit)} may be locked (ulimit -l): InfiniBand locks NCCL's buffers; set it unlimited"
    if job.strategy == "zero3":
        yield "run one all_reduce before the model is made: the communicator takes its memory then"


def _loading(model: ModelSpec, machine: HardwareProfile, job: Job) -> Iterator[str]:
    size = model.checkpoint_bytes or 2 * parameter_count(model)
    host = machine.host.memory_available or machine.host.memory_total
    if job.strategy == "device_map" and host is not None and host > size + GIB:
        yield f"read the checkpoint once before ({format_bytes(size)} fit the page cache): later loads skip the disk"
    if job.strategy == "zero3" and job.zero_init:
        yield "create TrainingArguments(deepspeed=…) before from_pretrained, or every rank loads the whole model"
    saves = job.strategy == "zero3" and job.trains and job.method == "full"
    if saves and host is not None and 2 * parameter_count(model) >= host:
        yield "the whole 16-bit model does not fit rank 0's host: keep the shards and run zero_to_fp32.py elsewhere"


def _kernels(model: ModelSpec, machine: HardwareProfile, job: Job) -> Iterator[str]:
    new = bool(machine.gpus) and all(
        card.vendor == "nvidia" and (card.capability or (0, 0)) >= (8, 0) for card in machine.gpus
    )
    if job.attention == "eager" and not kernels_of(model)["sdpa"] and not model.config.get("attn_logit_softcapping"):
        yield f"attention runs the plain kernel: {kernels_of(model)['class']} has no SDPA path"
    elif job.attention == "eager" and new and model.config.get("attn_logit_softcapping"):
        yield "attention runs the plain kernel (scores are capped); flash-attn 2.6 or newer can cap, if installed"
    elif job.attention == "sdpa" and not new and any(card.vendor == "nvidia" for card in machine.gpus):
        yield "SDPA takes the memory-efficient kernel here: FlashAttention needs compute capability 8.0"
    elif job.attention == "sdpa" and job.precision == "fp32":
        yield "fp32 attention takes the memory-efficient kernel: FlashAttention computes in 16 bits"
    elif job.attention == "sdpa" and new:
        yield "SDPA runs FlashAttention's kernels on these cards: flash_attention_2 gains with padded or packed batches only"


def _optimizer(machine: HardwareProfile, job: Job) -> Iterator[str]:
    if not job.trains:
        return
    if job.optimizer == "adamw_torch":
        yield "adamw_torch holds one more copy of the trained parameters at its step; adamw_torch_fused does not"
    if (trade := _LOW_MEMORY.get(job.optimizer)) is not None:
        yield f"{job.optimizer}: {trade}"
    if job.method == "full" and job.precision in ("bf16", "fp16"):
        yield f"weights are trained in pure {job.precision}: updates below a 256th of a weight are lost to rounding"
    if job.offload_optimizer and job.zero_optimizer == "deepspeed" and not machine.software.tools.get(CPU_ADAM):
        yield "the CPU optimizer is compiled at first use: ninja, a C++ compiler and nvcc of torch's CUDA are needed"
    if (job.offload_optimizer or job.offload_param) and machine.host.wsl:
        yield "WSL: Windows limits pinned memory, so the plan leaves the host's buffers unpinned; copies take longer"


def _loss(model: ModelSpec, machine: HardwareProfile, job: Job) -> Iterator[str]:
    if not job.trains or job.loss_kernel != "plain" or not machine.gpus:
        return
    logits = LOGIT_BYTES * job.micro_batch_size * job.sequence_length * model.vocab_size
    if logits > LARGE_LOGITS * min(machine.capacities):
        yield (
            f"the loss holds about {format_bytes(logits)} for {model.vocab_size} words at each of "
            f"{job.micro_batch_size * job.sequence_length} tokens; use_liger_kernel=True computes it in pieces"
        )


def _placement(job: Job) -> Iterator[str]:
    if job.strategy != "device_map":
        return
    if job.trains and job.gpus > 1:
        yield (
            f"training over a device map is a naive pipeline: of {job.gpus} GPUs one works at a time; "
            "start it as one process, never by a launcher"
        )
    if limits.reaches_host(job.device_map):
        yield "modules on the CPU or disk are copied to the GPU at every forward, token by token"
