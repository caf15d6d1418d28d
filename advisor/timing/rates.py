"""What a machine reaches, as against what its data sheet says, and what the software around the kernels costs.

Every constant names where it comes from. "Measured runs" are those in ``measurements/`` (one or two H200s, torch 2.11,
transformers 5.17, DeepSpeed 0.19); the constants that describe host and libraries were taken from them, and
``tests/timing/test_measured.py`` holds that predictions of a model do not depend on that model's own runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.hardware.profile import Gpu, HardwareProfile

# --- the device -------------------------------------------------------------------------------------------------------
# Share of the dense data-sheet rate that matrix products and fused attention reach in eager models. A product of
# 8192 x 8192 reaches 788 of 989 TFLOP/s on an H200 (0.80); shapes of real layers, clocks under load and attention bring
# the 20 prefills and 21 steps of the measured runs to 0.64 (least squares; 0.80 / 1.25).
MATRIX_EFFICIENCY = 0.64
MATRIX_PEAK_EFFICIENCY = 0.80  # what a benchmark of one large product reaches: the base of a measured rate
# fp32 products run on kernels without tensor cores, in tiles of at least this many rows and columns (cuBLAS, CUTLASS
# SIMT): a thinner side, such as an fp32 LoRA rank, is computed as if it were as wide.
FP32_TILE = 64
# Share of the data-sheet bandwidth. A device copy reaches 4.3 of 4.8 TB/s (0.90); element-wise and reduction kernels of
# eager models 0.70 in the same fit; multi-tensor optimizer kernels, which stream long buffers, 0.82.
MEMORY_EFFICIENCY = 0.70
OPTIMIZER_EFFICIENCY = 0.82
COPY_EFFICIENCY = 0.90  # the base of a measured bandwidth
# int8 runs at twice the 16-bit rate on NVIDIA cards since Turing (data sheets).
INT8_SPEEDUP = 2.0

# --- the host ---------------------------------------------------------------------------------------------------------
# Seconds to launch one small kernel from Python when nobody measured it: what ``advisor probe --measure`` found on the
# H200 machines of the measured runs (9.1 and 8.3 us). The two factors below are in its terms, so that a measured rate of
# such a machine changes nothing.
LAUNCH_SECONDS = 8.7e-6
# Launches that one operator of a Hugging Face model costs in Python: module calls, views and checks around each kernel.
# Decoding in the measured runs where nothing else counts (fp32, eager attention, T5) takes 21 to 25 us an operator.
PYTHON_LAUNCHES = 2.53
# Autograd runs the backward in C++: about half of that.
AUTOGRAD_LAUNCHES = 1.265
# The Trainer around a micro-step (collate, move, hooks) and around a step (callbacks, scheduler, clipping): the
# constant of the fit over measured steps (27 ms), split by the run with four accumulation steps.
MICRO_STEP_SECONDS = 0.010
STEP_SECONDS = 0.017
# cuDNN builds an attention plan for every new length of keys: each decoded token has one. torch 2.11 asks cuDNN first
# on compute capability 9.x and 10.x (pytorch PR 155958 names the rebuild). Residual of 16-bit decoding in the measured
# runs over the same models' operators: 25 to 47 ms a token and device.
# Medians: 36 ms with one card, 28 ms more with a second.
CUDNN_PLAN_SECONDS = 0.036
CUDNN_NEXT_PLAN_SECONDS = 0.028

# generate() around the model: configuration, cache, stopping criteria. Residual of the eight shortest prefills.
GENERATE_SECONDS = 0.008
# PEFT's Python around one adapted layer (active adapters, casts, dropout): from the two QLoRA steps of 1024 tokens,
# which wait for the host.
PEFT_LAYER_SECONDS = 0.15e-3
# bitsandbytes' Python around one layer, by quantization: checks of the state in 4 bits; in 8 bits a search for outlier
# columns that waits for the answer. What a 7B model's token took longer than its operators, over 224 layers.
QUANTIZED_LAYER_SECONDS = {"nf4": 0.06e-3, "int8": 0.28e-3}

# --- links ------------------------------------------------------------------------------------------------------------
# NCCL's bus bandwidth over the link's data-sheet rate (nccl-tests on NVLink and PCIe machines reach 0.7 to 0.85).
LINK_EFFICIENCY = 0.75
COLLECTIVE_SECONDS = 30e-6  # latency of one collective inside a node (nccl-tests, small messages)
NETWORK_COLLECTIVE_SECONDS = 100e-6  # over several nodes
# Copies from pageable memory go through a staging buffer that one CPU thread fills. Loading 13.5 GB from the page cache
# took 1.8 s, and a forward with 7.55 GB of weights on the CPU 0.94 s, in the measured runs.
PAGEABLE_RATE = 8.0e9
# Page-locking fresh memory for DeepSpeed's offload: a 13.5 GB model took 7.6 s longer to load than without.
PINNING_RATE = 1.8e9
LOAD_SECONDS = 0.1  # reading config and index, building the model on meta
RANK_START_SECONDS = 0.25  # process group and the first collective (tensor-parallel load of the measured runs)
ZERO3_LOAD_SECONDS = 1.5e-3  # zero.Init and the gathered copy, a module
# transformers quantizes to int8 row by row: a 7B model took 11 s longer to load than in nf4.
INT8_QUANTIZE_RATE = 0.6e9
# CPU optimizers stream host memory at about this share of the profile's bandwidth.
HOST_EFFICIENCY = 0.9

# --- DeepSpeed --------------------------------------------------------------------------------------------------------
# ZeRO-3's Python around one module that owns parameters, each time it runs, and more when its parameters are gathered
# (fetch, all-gather, wait, release). From the measured full fine-tunings; the LoRA runs, with three times the modules,
# then come out within 12%.
ZERO3_MODULE_SECONDS = 0.25e-3
ZERO3_GATHER_SECONDS = 1.0e-3
# Hook of one gradient: into the bucket, reduce when full (stages 2 and 3).
ZERO_GRADIENT_SECONDS = 0.2e-3

# --- tensor parallelism -----------------------------------------------------------------------------------------------
# transformers' tp_plan wraps each sharded pair of linears in DTensor hooks: what one prefill and its tokens took longer
# than on one card, over 64 reductions.
TENSOR_PARALLEL_SECONDS = 0.3e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one card and its host reach. Bytes and FLOPs a second; None where the profile does not know."""

    matrix: dict[str, float | None]  # by dtype
    memory: float | None
    optimizer: float | None
    launch: float  # seconds of Python a forward operator
    backward_launch: float
    host: float | None
    to_gpu: float | None  # pinned
    to_host: float | None
    pageable: float | None
    link: float | None  # bus bandwidth over the cards of the job
    collective: float  # seconds of latency
    disk: float | None


def rates(machine: HardwareProfile, nodes: int = 1) -> Rates:
    """The rates of a machine's slowest card (work that is spread evenly waits for it), over ``nodes`` nodes."""
    cards = machine.gpus
    measured = machine.measured
    launch = (measured.launch_seconds if measured else None) or LAUNCH_SECONDS
    to_gpu = (measured.host_to_gpu if measured else None) or machine.links.host_to_gpu
    to_host = (measured.gpu_to_host if measured else None) or machine.links.gpu_to_host
    bandwidth = _slowest(card.memory_bandwidth for card in cards)
    if cards and all(card.unified_memory for card in cards):  # one pool: a copy runs at its bandwidth
        to_gpu, to_host = to_gpu or bandwidth, to_host or bandwidth
    if measured and measured.gpu_memory_bandwidth:
        bandwidth = measured.gpu_memory_bandwidth / COPY_EFFICIENCY
    return Rates(
        matrix={dtype: _matrix(machine, dtype) for dtype in ("bf16", "fp16", "fp32", "int8")},
        memory=_times(bandwidth, MEMORY_EFFICIENCY),
        optimizer=_times(bandwidth, OPTIMIZER_EFFICIENCY),
        launch=launch * PYTHON_LAUNCHES,
        backward_launch=launch * AUTOGRAD_LAUNCHES,
        host=_times(machine.host.memory_bandwidth, HOST_EFFICIENCY),
        to_gpu=to_gpu,
        to_host=to_host,
        pageable=None if to_gpu is None else min(PAGEABLE_RATE, to_gpu),
        link=_link(machine, nodes),
        collective=COLLECTIVE_SECONDS if nodes == 1 else NETWORK_COLLECTIVE_SECONDS,
        disk=(measured.disk_read if measured else None) or machine.disk.read,
    )


def cudnn_attention(card: Gpu) -> bool:
    """Whether torch asks cuDNN first for attention on this card (data-centre Hopper and Blackwell)."""
    return card.vendor == "nvidia" and card.capability is not None and card.capability[0] in (9, 10)


def _matrix(machine: HardwareProfile, dtype: str) -> float | None:
    measured = machine.measured
    half = {"bf16": "bf16_flops", "int8": "fp16_flops"}.get(dtype, f"{dtype}_flops")
    nominal = _slowest(getattr(card, half) for card in machine.gpus)
    if dtype in ("bf16", "fp16") and measured and measured.bf16_flops:
        nominal = measured.bf16_flops / MATRIX_PEAK_EFFICIENCY
    if dtype == "bf16" and nominal is None:
        # No bf16 units: kernels up-cast and run at the fp32 rate.
        nominal = _slowest(card.fp32_flops for card in machine.gpus)
    return _times(nominal, MATRIX_EFFICIENCY * (INT8_SPEEDUP if dtype == "int8" else 1.0))


def _link(machine: HardwareProfile, nodes: int) -> float | None:
    measured = machine.measured
    inside = (measured.all_reduce if measured else None) or _times(
        (measured.gpu_to_gpu if measured else None) or machine.links.gpu_to_gpu, LINK_EFFICIENCY
    )
    if nodes == 1:
        return inside
    # A ring over all cards crosses each node's network card once each way.
    network = _times(machine.links.network, LINK_EFFICIENCY)
    return None if network is None else min(network, inside or network)


def _slowest(values: Iterable[float | None]) -> float | None:
    known = list(values)
    certain = [value for value in known if value is not None]
    return min(certain) if certain and len(certain) == len(known) else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
