"""The grid of ``advisor compare`` on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from advisor.compare import Row

_STYLE = {"fits": "green", "tight": "yellow"}


def show_grid(rows: Sequence[Row]) -> None:
    """Print one table a model, what fits first."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for model in dict.fromkeys(row.model for row in rows):
        console.print(_table(model, [row for row in rows if row.model == model]))


def _table(model: str, rows: Sequence[Row]) -> Table:
    table = Table(title=model, title_justify="left", box=None, padding=(0, 1))
    priced = any(row.cost_per_million_tokens is not None for row in rows)
    columns = ["hardware", "", "way", "method", "GPUs", "a GPU", "free", "host RAM", "speed"]
    for name in columns + (["a million tokens"] if priced else []):
        table.add_column(name, justify="right" if name in ("GPUs", "a GPU", "free", "host RAM", "speed") else "left")
    for row in rows:
        if not row.fits:
            table.add_row(row.hardware, Text("no", style="red"))
            continue
        cells = [
            row.way or "", row.method or "", str(row.gpus), format_bytes(row.gpu_peak),
            "" if row.headroom is None else f"{row.headroom:.0%}", format_bytes(row.host_ram), _speed(row),
        ]  # fmt: skip
        if priced:
            cost = row.cost_per_million_tokens
            cells.append("" if cost is None else f"{cost:.3g} {row.currency}")
        table.add_row(row.hardware, Text(row.verdict, style=_STYLE.get(row.verdict, "")), *cells)
    return table


def _speed(row: Row) -> str:
    if row.step_seconds is not None:
        return f"{format_seconds(row.step_seconds)}/step, {row.tokens_per_second or 0:,.0f} tok/s"
    if row.decode_tokens_per_second is not None:
        return f"{row.decode_tokens_per_second:.3g} tok/s"
    return "unknown"
