"""The catalogue on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from advisor.models.known import Entry
from advisor.units import format_count


def as_json(entry: Entry) -> dict[str, Any]:
    """All facts of an entry, with its architecture and context length beside them."""
    spec = entry.spec(entry.repo)
    return {
        "name": entry.repo,
        "architecture": spec.model_type,
        "context_length": spec.context_length,
        **{key: value for key, value in asdict(entry).items() if key != "repo"},
    }


def show(entries: Sequence[Entry]) -> None:
    """A table, a line each, on stdout; how to name any other model on stderr."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("model", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("active", justify="right", no_wrap=True)
    table.add_column("family", no_wrap=True)
    table.add_column("context", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for entry in entries:
        context = entry.spec(entry.repo).context_length
        table.add_row(
            entry.repo,
            format_count(entry.parameters),
            format_count(entry.active) if entry.active else "",
            entry.family,
            f"{context:,}" if context else "",
            "gated" if entry.gated else "",
        )
    Console(width=None if Console().is_terminal else 160).print(table)
    Console(stderr=True).print(
        f"{len(entries)} models; any other by its folder, its config.json, or its Hub id with --download", style="dim"
    )
