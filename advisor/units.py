"""Bytes, sizes and times: the only place that turns them into text and back.

Inside the program every amount of memory is an ``int`` of bytes; "22.1 GiB" exists only at the edges.
"""

from __future__ import annotations

import re

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_FACTORS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": 1 << 40,
}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*$")


def parse_size(text: str) -> int:
    """Bytes of a size such as ``"24GiB"``, ``"24 GB"`` or ``"512MiB"``.

    GB is decimal, GiB binary. Raises ``ValueError`` for a number without a unit and for lower-case "gb", which other
    tools read as bits: both are guesses we refuse to make.
    """
    match = _SIZE.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a size with a unit, such as 24GiB or 80GB")
    number, unit = match.groups()
    factor = _FACTORS.get(unit.upper())
    if factor is None or (unit[-1] == "b"):
        raise ValueError(f"{text!r} has the unit {unit!r}; use one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB")
    return int(float(number) * factor)


def format_bytes(amount: int | None) -> str:
    """``"22.1 GiB"``; smaller amounts in MiB or KiB; ``"unknown"`` for None."""
    if amount is None:
        return "unknown"
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    if amount >= GIB / 10:
        return f"{sign}{amount / GIB:.1f} GiB"
    if amount >= MIB:
        return f"{sign}{amount / MIB:.0f} MiB"
    return f"{sign}{amount / KIB:.0f} KiB" if amount >= KIB else f"{sign}{amount} B"


def format_rate(rate: float | None) -> str:
    """Bytes a second as ``"4.8 TB/s"``, ``"900 GB/s"``, ``"125 MB/s"`` (decimal, as vendors state bandwidth)."""
    if rate is None:
        return "unknown"
    factor, unit = next(((size, name) for size, name in ((1e12, "TB"), (1e9, "GB")) if rate >= size), (1e6, "MB"))
    return f"{rate / factor:.3g} {unit}/s"


def format_seconds(seconds: float | None) -> str:
    """``"0.19 s"``, ``"42 s"``, ``"8.2 min"``, ``"3.1 h"``."""
    if seconds is None:
        return "unknown"
    if seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 90:
        return f"{seconds:.3g} s"
    if seconds < 5400:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def format_count(number: int | float | None) -> str:
    """``"69.0B"``, ``"1.24B"``, ``"345M"``: parameters, tokens."""
    if number is None:
        return "unknown"
    for factor, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g}{suffix}"
    return f"{number:.0f}"
