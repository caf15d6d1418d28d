"""A machine as data: the format of ``hardware_profiles/*.toml`` and of ``advisor probe --json``.

Every number is optional unless the field says otherwise: an unknown number is ``None``, never a guess. ``sources`` says
where each number comes from, keyed by its dotted path ("gpu.memory_total", "links.gpu_to_gpu").
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Vendor = Literal["nvidia", "amd", "apple", "intel"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GpuProcess(_Frozen):
    """A process that holds memory of a card; ``memory`` in bytes, None where the driver does not say."""

    pid: int
    name: str | None = None
    memory: int | None = None
    seconds: float | None = None  # since it began: what has held memory for hours will hold it on


class Gpu(_Frozen):
    """One kind of card, ``count`` times. Memory in bytes as NVML (or the vendor's tool) reports it; rates a second."""

    name: str
    count: int = Field(default=1, ge=1)
    vendor: Vendor = "nvidia"
    memory_total: int = Field(ge=1 << 28)  # bytes: "24" was meant as GiB
    memory_free: int | None = None  # bytes free now; None in a profile of a machine that is not here
    compute_capability: str | None = None  # "9.0"
    memory_bandwidth: float | None = None  # bytes/s
    bf16_flops: float | None = None  # dense, FLOP/s; None when the card has no bf16
    fp16_flops: float | None = None
    fp32_flops: float | None = None
    unified_memory: bool = False  # GPU and host share one pool (GB10, Jetson, Apple)
    uuids: tuple[str, ...] = ()
    mig: bool = False
    ecc: bool | None = None
    pcie: str | None = None  # "gen 5 x16 (at most gen 5 x16)": a card at rest lowers the generation
    pcie_rate: float | None = None  # bytes/s that the slot signals, one direction; copies get about 80% of it
    numa_node: int | None = None  # whose memory and cores are near
    persistence: bool | None = None  # the driver stays loaded while nothing runs; else the first start takes seconds
    processes: tuple[GpuProcess, ...] = ()  # who holds its memory now
    memory_held: int | None = None  # bytes that processes hold, those of other containers included

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability as (major, minor)."""
        if self.compute_capability is None:
            return None
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)

    @property
    def has_bf16(self) -> bool:
        """Whether bf16 runs on the tensor cores (compute capability 8.0 up; CDNA2/3 and Apple do)."""
        capability = self.capability
        return capability >= (8, 0) if self.vendor == "nvidia" and capability else self.bf16_flops is not None


class Host(_Frozen):
    """One node's host side. ``memory_available`` is what a program may still take (cgroup and batch limits applied)."""

    name: str | None = None  # the node's own name; tells nodes apart when probes are joined
    memory_total: int | None = None
    memory_available: int | None = None
    memory_limit_reason: str | None = None  # which limit made memory_available what it is
    memory_bandwidth: float | None = None  # bytes/s
    cpus: int | None = None  # cores that this process may use
    pinned_limit: int | None = None  # bytes that may be locked (ulimit -l), None for unlimited
    shared_memory: int | None = None  # bytes free in /dev/shm
    wsl: bool = False  # Linux under Windows: pinned memory is limited by Windows
    numa_nodes: int | None = None


class Links(_Frozen):
    """Rates in bytes/s, one direction, a GPU."""

    gpu_to_gpu: float | None = None
    gpu_to_gpu_kind: Literal["nvlink", "pcie", "infinity_fabric", "none"] | None = None
    gpu_to_gpu_links: int | None = None  # NVLinks of one card that are up
    host_to_gpu: float | None = None
    gpu_to_host: float | None = None
    peer_to_peer: bool | None = None  # cards can read each other's memory directly
    network: float | None = None  # between nodes, a node: the sum of its equal ports
    network_kind: Literal["infiniband", "ethernet", "none"] | None = None
    network_device: str | None = None  # "eth0", "mlx5_0 and 7 more"


class Disk(_Frozen):
    """Where checkpoints and NVMe offload would lie."""

    path: str | None = None
    device: str | None = None  # "nvme0n1", "vda (virtual)", "tmpfs"
    kind: Literal["nvme", "ssd", "hdd", "network", "unknown"] | None = None
    free: int | None = None
    read: float | None = None  # bytes/s
    write: float | None = None
    async_io: bool | None = None  # DeepSpeed's async_io can work (libaio there, O_DIRECT allowed)


class Measured(_Frozen):
    """What ``advisor probe --measure`` found on the machine itself. Used in place of nominal values."""

    date: str  # ISO date
    method: str
    host_to_gpu: float | None = None
    gpu_to_host: float | None = None
    gpu_to_gpu: float | None = None
    all_reduce: float | None = None  # bus bandwidth over all GPUs, bytes/s
    disk_read: float | None = None
    gpu_memory_bandwidth: float | None = None
    bf16_flops: float | None = None
    context_bytes: int | None = None  # outside torch's allocator, one process
    nccl_bytes: int | None = None  # more with a NCCL communicator over all GPUs
    launch_seconds: float | None = None  # CPU time to launch one small kernel from Python
    disk_write: float | None = None
    host_memory_bandwidth: float | None = None  # a copy by all cores, read and write counted
    context_only_bytes: int | None = None  # of context_bytes, before any cuBLAS or kernel module was loaded


class Correction(_Frozen):
    """What own runs on this machine took over what was said, for jobs of one kind (``offload``: with the host's help)."""

    task: Literal["inference", "finetune"]
    strategy: str
    offload: bool
    runs: int = Field(ge=1)
    time: float = Field(gt=0)


class Software(_Frozen):
    """Versions on the machine; None when missing or unknown."""

    python: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None  # the newest CUDA that the driver runs
    cuda: str | None = None  # that torch was built for
    rocm: str | None = None  # that torch was built for
    nvcc: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    # ninja, C++ compiler, libaio and its headers; cpu_adam and async_io where DeepSpeed has them compiled already.
    tools: dict[str, bool] = Field(default_factory=dict)


class HardwareProfile(_Frozen):
    """A machine, or several alike nodes of one. ``gpus`` lists kinds of card; most machines have one kind."""

    name: str
    description: str = ""
    nodes: int = Field(default=1, ge=1)
    gpus: tuple[Gpu, ...] = ()  # of ONE node
    host: Host = Host()
    links: Links = Links()
    disk: Disk = Disk()
    software: Software = Software()
    measured: Measured | None = None
    corrections: tuple[Correction, ...] = ()
    price_per_hour: float | None = None  # of the whole machine, in price_currency
    price_currency: str = "USD"
    sources: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    here: bool = False  # read from this very machine
    # Set by --gpu-memory: at most this much of each card, runtime bytes included.
    gpu_memory_limit: int | None = None

    @property
    def cards(self) -> tuple[Gpu, ...]:
        """One entry a card of one node, in device order."""
        return tuple(gpu.model_copy(update={"count": 1}) for gpu in self.gpus for _ in range(gpu.count))

    @property
    def gpu_count(self) -> int:
        """Cards over all nodes."""
        return self.nodes * sum(gpu.count for gpu in self.gpus)

    @property
    def mixed(self) -> bool:
        """Whether the cards of a node differ in kind or memory."""
        return len({(gpu.name, gpu.memory_total) for gpu in self.gpus}) > 1

    def capacity(self, card: Gpu) -> int:
        """Bytes of ``card`` that a run may use, runtime bytes included: what is free now (or all), under the limit."""
        amount = card.memory_total if card.memory_free is None else card.memory_free
        return amount if self.gpu_memory_limit is None else min(amount, self.gpu_memory_limit)

    @property
    def capacities(self) -> tuple[int, ...]:
        """``capacity`` of each card of one node, in device order."""
        return tuple(self.capacity(card) for card in self.cards)
