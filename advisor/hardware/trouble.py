"""What a user should know about a machine before a plan relies on it, each in one sentence with its way out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from advisor.hardware.links import NO_PEER
from advisor.hardware.profile import Gpu, GpuProcess, HardwareProfile
from advisor.hardware.software import CPU_ADAM, missing_for_op
from advisor.software.known_bad import find
from advisor.units import GIB, MIB, format_bytes, format_seconds

SHM_LEAST = 1 * GIB  # NCCL's buffers for several ranks; Docker gives 64 MiB
# From this driver on, CUDA itself says that RTX 40 cards have no peer access; before, NCCL had to be told.
PEER_HONEST_DRIVER = "550.40.07"
# Beyond what processes are seen to hold; contexts and page tables account for less.
UNSEEN_LEAST = 256 * MIB


def troubles(machine: HardwareProfile) -> Iterator[str]:
    """Warnings about the machine alone; known-bad pairs name the jobs they concern."""
    yield from _cards(machine)
    yield from _host(machine)
    yield from _software(machine)


def _cards(machine: HardwareProfile) -> Iterator[str]:
    cards, links, driver = machine.cards, machine.links, machine.software.driver
    if machine.mixed:
        yield "cards differ: work that is spread evenly waits for the slowest and fits only the smallest"
    if any(card.vendor == "nvidia" and not card.has_bf16 for card in cards):
        yield "bf16 needs compute capability 8.0: plans use fp16 here"
    if any(card.unified_memory for card in cards):
        yield "GPU and host share one pool of memory: there is no CPU tier to offload to"
    if any(card.vendor != "nvidia" for card in cards):
        yield "not an NVIDIA card: described here, but DeepSpeed and bitsandbytes plans are made for CUDA"
    if len(cards) > 1 and any(NO_PEER.search(card.name) for card in cards) and _older(driver, PEER_HONEST_DRIVER):
        yield (
            f"RTX 40 cards have no peer access and the driver is not known to be {PEER_HONEST_DRIVER} or later: "
            "set NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1"
        )
    elif len(cards) > 1 and links.peer_to_peer is False:
        yield "cards cannot read each other's memory: transfers between them go by way of host memory"
    for index, card in enumerate(cards):
        yield from _used(index, card)
        slot = re.match(r"gen \d+ x(\d+) \(at most gen \d+ x(\d+)\)", card.pcie or "")
        if slot and int(slot[1]) < int(slot[2]):
            yield f"GPU {index} has {slot[1]} of its {slot[2]} PCIe lanes: copies from and to the host take longer"
    nodes = {card.numa_node for card in cards} - {None}
    if len(nodes) > 1:
        near = ", ".join(f"GPU {index} node {card.numa_node}" for index, card in enumerate(cards))
        yield f"cards hang on several NUMA nodes ({near}): bind each rank to its own (numactl --cpunodebind --membind)"


def _used(index: int, card: Gpu) -> Iterator[str]:
    """Who holds the card's memory."""
    seen = [process for process in card.processes if process.memory]
    if seen:
        yield f"GPU {index} is used by others: {', '.join(map(described, seen))}"
    unseen = (card.memory_held or 0) - sum(process.memory or 0 for process in seen)
    if unseen >= UNSEEN_LEAST and not card.mig:
        yield f"GPU {index}: {format_bytes(unseen)} are held by processes that this one cannot see (another container?)"


def described(process: GpuProcess) -> str:
    """As "python (42) 65.0 GiB for 3.1 h"."""
    since = f" for {format_seconds(process.seconds)}" if process.seconds is not None else ""
    return f"{process.name or 'process'} ({process.pid}) {format_bytes(process.memory)}{since}"


def _host(machine: HardwareProfile) -> Iterator[str]:
    host = machine.host
    if len(machine.cards) > 1 and host.shared_memory is not None and host.shared_memory < SHM_LEAST:
        yield (
            f"/dev/shm has {format_bytes(host.shared_memory)}: NCCL and data loaders of several ranks need 1 GiB "
            "(docker run --shm-size=8g or --ipc=host)"
        )
    if host.pinned_limit is not None and machine.cards:
        yield (
            f"at most {format_bytes(host.pinned_limit)} may be locked (ulimit -l): RDMA between nodes and DeepSpeed's "
            "NVMe buffers need more"
        )
    if host.wsl:
        yield "WSL: Windows limits pinned memory, so plans that offload to the CPU do not pin their buffers"


def _software(machine: HardwareProfile) -> Iterator[str]:
    software = machine.software
    yield from _build(machine)
    lacking = missing_for_op(software, CPU_ADAM)
    if machine.cards and lacking and "deepspeed" in software.packages:
        yield f"DeepSpeed cannot build its operators ({lacking}): offload of the optimizer needs them"
    if machine.disk.async_io is False and machine.cards:
        yield (
            "no async I/O here (libaio with its headers, a compiler, and a disk that opens with O_DIRECT): "
            "no NVMe offload"
        )
    for row in find(software.packages, cards=[card.name for card in machine.cards]):
        versions = ", ".join(f"{name} {software.packages[name]}" for name in row.packages)
        yield f"known not to work ({' + '.join(row.when) or 'any job'}; {versions}): {row.happens}; fix: {row.fix}"


def _build(machine: HardwareProfile) -> Iterator[str]:
    """Does the installed torch run on these cards and this driver?"""
    software = machine.software
    cards = [card for card in machine.cards if card.vendor == "nvidia"]
    if not cards or "torch" not in software.packages or software.python is None:
        return
    if software.cuda is None:
        other = f"for ROCm {software.rocm}" if software.rocm else "without CUDA"
        yield f"torch {software.packages['torch']} is built {other}: it cannot use these cards; install a CUDA build"
        return
    built = _numbers(software.cuda)
    if software.driver_cuda is not None and _numbers(software.driver_cuda)[0] < built[0]:
        yield (
            f"torch is built for CUDA {software.cuda}, driver {software.driver} runs CUDA {software.driver_cuda} at most: "
            "update the driver, or install a torch for the older CUDA"
        )
    for card in cards:
        # CUDA 12.8 brought Blackwell, CUDA 13 dropped everything before Turing.
        too_new = (card.capability or (0, 0)) >= (10, 0) and built < (12, 8)
        too_old = (card.capability or (9, 0)) < (7, 5) and built >= (13, 0)
        if too_new or too_old:
            needs = "CUDA 12.8 or newer" if too_new else "a torch for CUDA 12"
            yield (
                f"{card.name} (compute capability {card.compute_capability}) has no kernels in a torch for CUDA "
                f"{software.cuda}: it needs {needs}"
            )
            return


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _older(driver: str | None, than: str) -> bool:
    """Whether the driver is older, or of an unknown version."""
    try:
        return driver is None or Version(driver) < Version(than)
    except InvalidVersion:
        return True
