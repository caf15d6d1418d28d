"""What a user should know about a machine before a plan relies on it, each in one sentence with its way out."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from advisor.hardware.links import NO_PEER
from advisor.hardware.profile import HardwareProfile
from advisor.hardware.software import can_build_ops
from advisor.software.known_bad import find
from advisor.units import GIB, format_bytes

SHM_LEAST = 1 * GIB  # NCCL's buffers for several ranks; Docker gives 64 MiB
# From this driver on, CUDA itself says that RTX 40 cards have no peer access; before, NCCL had to be told.
PEER_HONEST_DRIVER = "550.40.07"


def troubles(machine: HardwareProfile) -> Iterator[str]:
    """Warnings about the machine alone; known-bad pairs name the jobs they concern."""
    yield from _cards(machine)
    yield from _host(machine)
    yield from _software(machine)


def _cards(machine: HardwareProfile) -> Iterator[str]:
    cards, links, driver = machine.cards, machine.links, machine.software.driver
    if machine.mixed:
        yield "cards differ: work that is spread evenly waits for the slowest and fits only the smallest"
    if any(not card.has_bf16 for card in cards):
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
        held = [process for process in card.processes if process.memory]
        if held:
            who = ", ".join(f"{item.name or 'process'} ({item.pid}) {format_bytes(item.memory)}" for item in held)
            yield f"GPU {index} is used by others: {who}"


def _host(machine: HardwareProfile) -> Iterator[str]:
    host = machine.host
    if len(machine.cards) > 1 and host.shared_memory is not None and host.shared_memory < SHM_LEAST:
        yield (
            f"/dev/shm has {format_bytes(host.shared_memory)}: NCCL and data loaders of several ranks need 1 GiB "
            "(docker run --shm-size=8g or --ipc=host)"
        )
    if host.pinned_limit is not None and machine.cards:
        yield f"at most {format_bytes(host.pinned_limit)} may be locked (ulimit -l): RDMA needs it unlimited"
    if host.wsl:
        yield "WSL: Windows limits pinned memory, so offload to the CPU may fail to pin its buffers"


def _software(machine: HardwareProfile) -> Iterator[str]:
    software = machine.software
    if machine.cards and can_build_ops(software) is False and "deepspeed" in software.packages:
        found = f"nvcc {software.nvcc}" if software.nvcc else "no nvcc"
        yield (
            f"DeepSpeed cannot build its operators ({found}, torch has CUDA {software.cuda}, "
            f"ninja {'found' if software.tools.get('ninja') else 'missing'}): optimizer offload needs them"
        )
    if machine.disk.async_io is False and machine.cards:
        yield "no async I/O here (libaio and a disk that opens with O_DIRECT): no NVMe offload"
    for row in find(software.packages):
        versions = ", ".join(f"{name} {software.packages[name]}" for name in row.packages)
        yield f"known not to work ({' + '.join(row.when) or 'any job'}; {versions}): {row.happens}; fix: {row.fix}"


def _older(driver: str | None, than: str) -> bool:
    """Whether the driver is older, or of an unknown version."""
    try:
        return driver is None or Version(driver) < Version(than)
    except InvalidVersion:
        return True
