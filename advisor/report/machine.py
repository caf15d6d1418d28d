"""A machine on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from advisor.hardware.profile import HardwareProfile
from advisor.units import format_bytes, format_rate

if TYPE_CHECKING:
    from rich.console import Console


def measured(machine: HardwareProfile, messages: Console) -> HardwareProfile:
    """The machine with measured rates, a bar on ``messages`` meanwhile."""
    from rich.progress import Progress

    from advisor.hardware.measure import measure, with_measured

    with Progress(console=messages, disable=not messages.is_terminal) as bar:
        task = bar.add_task("measuring", total=None)
        found, notes = measure(
            machine,
            Path.cwd(),
            lambda label, done, total: bar.update(task, description=label, completed=done, total=total),
        )
    return with_measured(machine, found, notes)


def show(machine: HardwareProfile, console: Console) -> None:
    """Tables of cards, host, links, software and measured rates, then the warnings."""
    from rich.table import Table
    from rich.text import Text

    if machine.cards:
        cards = Table("GPU", "name", "total", "free", "capability", "PCIe", "ECC", "held by", title=machine.name)
        for index, card in enumerate(machine.cards):
            held = ", ".join(f"{item.name or item.pid} {format_bytes(item.memory)}" for item in card.processes)
            ecc = {True: "on", False: "off", None: "-"}[card.ecc]
            row = (
                str(index), card.name, format_bytes(card.memory_total), format_bytes(card.memory_free),
                card.compute_capability or "-", card.pcie or "-", ecc, held or "-",
            )  # fmt: skip
            cards.add_row(*map(Text, row))
        console.print(cards)
    facts = Table(show_header=False, box=None)
    for name, value in _facts(machine):
        facts.add_row(Text(name, style="bold"), Text(value))
    console.print(facts)
    for note in machine.notes:
        console.print(Text(f"! {note}", style="yellow"))


def _facts(machine: HardwareProfile) -> list[tuple[str, str]]:
    host, links, disk, software = machine.host, machine.links, machine.disk, machine.software
    between = f"{links.gpu_to_gpu_kind} {format_rate(links.gpu_to_gpu)}" if links.gpu_to_gpu_kind else "-"
    lines = [
        (
            "host memory",
            f"{format_bytes(host.memory_available)} may be taken of {format_bytes(host.memory_total)}"
            f" ({host.memory_limit_reason or 'limit unknown'})",
        ),
        ("cores", str(host.cpus or "unknown")),
        ("/dev/shm", format_bytes(host.shared_memory)),
        ("GPU to GPU", between),
        ("host to GPU", format_rate(links.host_to_gpu)),
        ("network", f"{links.network_kind or 'unknown'} {format_rate(links.network) if links.network else ''}".strip()),
        ("disk", f"{disk.kind or 'unknown'}, {format_bytes(disk.free)} free at {disk.path or '?'}"),
        ("driver", f"{software.driver or '-'}; torch for CUDA {software.cuda or '-'}; nvcc {software.nvcc or '-'}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in software.packages.items()) or "-"),
    ]
    if machine.measured:
        found = machine.measured
        for name, value in found.model_dump(exclude={"date", "method"}, exclude_none=True).items():
            lines.append((f"measured {name}", _amount(name, value)))
    return lines


def _amount(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return format_bytes(int(value))
    if name.endswith("_flops"):
        return f"{value / 1e12:.3g} TFLOP/s"
    return f"{value * 1e6:.3g} µs" if name.endswith("_seconds") else format_rate(value)
