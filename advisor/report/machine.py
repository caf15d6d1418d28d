"""A machine on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from advisor.hardware.profile import GpuProcess, HardwareProfile
from advisor.hardware.trouble import described
from advisor.units import format_bytes, format_rate

WIDTH = 120  # columns when the output is no terminal


def measured(machine: HardwareProfile) -> HardwareProfile:
    """The machine with measured rates, a bar on stderr meanwhile."""
    from rich.console import Console
    from rich.progress import Progress

    from advisor.hardware.measure import measure, with_measured

    messages = Console(stderr=True)
    with Progress(console=messages, disable=not messages.is_terminal) as bar:
        task = bar.add_task("measuring", total=None)
        found, notes = measure(
            machine,
            Path.cwd(),
            lambda label, done, total: bar.update(task, description=label, completed=done, total=total),
        )
    return with_measured(machine, found, notes)


def show(machine: HardwareProfile) -> None:
    """Tables of cards, of host, links and software, of rates nominal and measured, then the warnings."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)

    if machine.cards:
        cards = Table("GPU", "name", "total", "free", "capability", "PCIe", "ECC", "held by", title=machine.name)
        for index, card in enumerate(machine.cards):
            ecc = {True: "on", False: "off", None: "-"}[card.ecc]
            row = (
                str(index), card.name, format_bytes(card.memory_total), format_bytes(card.memory_free),
                card.compute_capability or "-", card.pcie or "-", ecc, _holders(card.processes, card.memory_held),
            )  # fmt: skip
            cards.add_row(*map(Text, row))
        console.print(cards)
    facts = Table(show_header=False, box=None)
    for name, value in _facts(machine):
        facts.add_row(Text(name, style="bold"), Text(value))
    console.print(facts)
    rates = Table("rate", "nominal", "measured", "of nominal", title="Rates", title_justify="left")
    for line in rate_rows(machine):
        rates.add_row(*map(Text, line))
    if rates.row_count:
        console.print(rates)
    if machine.measured:
        console.print(
            Text(f"Measured on {machine.measured.date}. Plans take measured rates before nominal ones.", style="dim")
        )
    for note in machine.notes:
        console.print(Text(f"! {note}", style="yellow"))


def _holders(processes: tuple[GpuProcess, ...], held: int | None) -> str:
    if processes:
        return ", ".join(map(described, processes))
    return "nobody" if held is not None and held == 0 else "-" if held is None else format_bytes(held)


def _facts(machine: HardwareProfile) -> Iterator[tuple[str, str]]:
    host, links, disk, software = machine.host, machine.links, machine.disk, machine.software
    if machine.nodes > 1:
        yield "nodes", f"{machine.nodes}, all planned as the weakest; the numbers are of one"
    yield (
        "host memory",
        f"{format_bytes(host.memory_available)} may be taken of {format_bytes(host.memory_total)}"
        f" ({host.memory_limit_reason or 'limit unknown'})",
    )
    numa = f" on {host.numa_nodes} NUMA nodes" if (host.numa_nodes or 1) > 1 else ""
    yield "cores", f"{host.cpus or 'unknown'}{numa}"
    pinned = "no limit" if host.pinned_limit is None else format_bytes(host.pinned_limit)
    yield "/dev/shm, locked memory", f"{format_bytes(host.shared_memory)} free, {pinned}"
    if len(machine.cards) > 1:
        count = f"{links.gpu_to_gpu_links} NVLinks a card" if links.gpu_to_gpu_links else links.gpu_to_gpu_kind
        access = {True: "with peer access", False: "without peer access", None: "peer access unknown"}
        yield "GPU to GPU", f"{count or 'unknown'}, {access[links.peer_to_peer]}"
    device = f" {links.network_device}" if links.network_device else ""
    yield "network", f"{links.network_kind or 'none found'}{device}"
    kind = "" if disk.kind in (None, "unknown") else f"{disk.kind} "
    usable = {True: "async I/O works", False: "no async I/O", None: "async I/O unknown"}[disk.async_io]
    yield "disk", f"{kind}{disk.device or 'of unknown kind'}, {format_bytes(disk.free)} free, {usable}"
    runs = f" (CUDA {software.driver_cuda} at most)" if software.driver_cuda else ""
    yield (
        "driver",
        f"{software.driver or '-'}{runs}; torch for CUDA {software.cuda or '-'}; nvcc {software.nvcc or '-'}",
    )
    modes = {card.persistence for card in machine.cards} - {None}
    if modes:
        yield (
            "persistence mode",
            "on" if modes == {True} else "off: an idle card's driver unloads, the next start waits",
        )
    tools = [f"{name} {'yes' if there else 'no'}" for name, there in software.tools.items()]
    yield "for DeepSpeed's operators", ", ".join(tools) or "unknown"
    yield "packages", ", ".join(f"{name} {version}" for name, version in software.packages.items()) or "-"


def rate_rows(machine: HardwareProfile) -> list[tuple[str, str, str, str]]:
    """(what, nominal, measured, share) for every rate of which one is known; the slowest card counts."""
    cards, links, disk, found = machine.cards, machine.links, machine.disk, machine.measured

    def card(name: str) -> float | None:
        values = [getattr(each, name) for each in cards]
        return min(values) if values and None not in values else None

    def of(name: str) -> float | None:
        return getattr(found, name) if found else None

    # Held beside what the slot signals: that is the number on the box.
    slot = card("pcie_rate") or links.host_to_gpu
    rows: list[tuple[str, float | None, float | None, Callable[[float], str]]] = [
        ("GPU memory, one card", card("memory_bandwidth"), of("gpu_memory_bandwidth"), format_rate),
        ("bf16 products, one card", card("bf16_flops"), of("bf16_flops"), _flops),
        ("host to GPU, pinned", slot, of("host_to_gpu"), format_rate),
        ("GPU to host, pinned", slot, of("gpu_to_host"), format_rate),
        ("GPU to GPU, a card", links.gpu_to_gpu, of("gpu_to_gpu"), format_rate),
        (
            "all-reduce over all cards (bus)",
            links.gpu_to_gpu if of("all_reduce") else None,
            of("all_reduce"),
            format_rate,
        ),
        ("network, a node", links.network, None, format_rate),
        ("host memory, all cores", _nominal_host(machine), of("host_memory_bandwidth"), format_rate),
        ("disk, read", disk.read, of("disk_read"), format_rate),
        ("disk, write", _nominal_write(machine), of("disk_write"), format_rate),
        ("launch of a kernel", None, of("launch_seconds"), _microseconds),
        ("CUDA context alone, a process", None, of("context_only_bytes"), _bytes),
        ("context and kernel modules, a process", None, of("context_bytes"), _bytes),
        ("NCCL over all cards, more", None, of("nccl_bytes"), _bytes),
    ]
    return [
        (
            what, shown(stated) if stated else "-", shown(real) if real else "-",
            f"{real / stated:.0%}" if real and stated else "",
        )
        for what, stated, real, shown in rows
        if stated or real
    ]  # fmt: skip


def _nominal_host(machine: HardwareProfile) -> float | None:
    return None if _filled(machine, "host.memory_bandwidth") else machine.host.memory_bandwidth


def _nominal_write(machine: HardwareProfile) -> float | None:
    return None if _filled(machine, "disk.write") else machine.disk.write


def _filled(machine: HardwareProfile, path: str) -> bool:
    """Whether the profile had no number of its own and took the measured one."""
    return machine.sources.get(path, "").startswith("measured")


def _flops(rate: float) -> str:
    return f"{rate / 1e12:.0f} TFLOP/s" if rate >= 1e13 else f"{rate / 1e12:.1f} TFLOP/s"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"


def _bytes(amount: float) -> str:
    return f"{amount / 2**20:.0f} MiB"
