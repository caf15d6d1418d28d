"""Predicted beside measured, on a terminal and as the README's block."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import InputError
from advisor.files import write_whole
from advisor.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from advisor.validate.bars import Group, Score, Verdicts
    from advisor.validate.runs import Run
    from advisor.validate.validation import Validation

BEGIN = "<!-- validation: written by `advisor validate --readme` -->"
END = "<!-- end of validation -->"
# Figures of the table of runs and how each is shown.
_COLUMNS = (
    ("allocated", "gpu_allocated", format_bytes),
    ("used", "gpu_used", format_bytes),
    ("host RAM", "host_ram", format_bytes),
)


def show(validation: Validation, console: Console) -> None:
    """Print the runs, worst first, then the summary."""
    from rich.table import Table

    console.print(_runs_table(validation))
    summary = Table(title="Summary", title_justify="left")
    for heading in ("figure", "runs", "median", "90% within", "worst under", "worst over", "bar", ""):
        summary.add_column(heading, justify="left" if heading in ("figure", "bar", "") else "right")
    for cells in _summary_rows(validation):
        summary.add_row(*cells)
    console.print(summary)
    console.print(_verdict_lines(validation.verdicts))
    for result in validation.scores:
        for name, _, error in result.errors:
            if name in result.outside:
                text = f"outside: {result.group.title}: {name} {error:+.1%}{_because(validation, name)}"
                console.print(text, markup=False)
    for run in validation.unpredicted:
        console.print(f"not predicted: {run.record.id}: {run.reason}", markup=False)
    for faster, slower in validation.pairs.wrong:
        console.print(f"wrong order: {faster} is faster than {slower}", markup=False)


def write_readme(validation: Validation, path: Path) -> None:
    """Put the summary between the markers of a README; raises InputError when it has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--readme", "cannot be read", found=str(path), expected="a text file") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(str(path), "has no place for the summary", expected=f"the lines {BEGIN} and {END}")
    write_whole(path, f"{before}{BEGIN}\n\n{markdown(validation)}\n{END}{after}")


def markdown(validation: Validation) -> str:
    """The summary as Markdown: bars, verdicts, what lies outside."""
    lines = [
        "| figure | runs | median | 90% within | worst under | worst over | bar | met |",
        "|---|---:|---:|---:|---:|---:|---|---|",
        *(f"| {' | '.join(cells)} |" for cells in _summary_rows(validation)),
        "",
        _verdict_lines(validation.verdicts).replace("\n", "  \n"),
    ]
    table = validation.verdicts
    if any(result.outside for result in validation.scores) or table.fits_but_died or table.refused_but_ran:
        lines += ["", "Outside the bar for a single run, and wrong verdicts:", ""]
        for result in validation.scores:
            lines += [
                f"- {result.group.title}: `{name}` {error:+.1%}{_because(validation, name)}"
                for name, _, error in result.errors
                if name in result.outside
            ]
    for title, names in (("false fit", table.fits_but_died), ("false refusal", table.refused_but_ran)):
        lines += [f"- {title}: `{name}`{_because(validation, name)}" for name in names]
    lines += [f"- not predicted: `{run.record.id}` ({run.reason})" for run in validation.unpredicted]
    return "\n".join(lines) + "\n"


def _because(validation: Validation, name: str) -> str:
    reason = validation.reasons.get(name)
    return f" ({reason})" if reason else ""


def _summary_rows(validation: Validation) -> list[tuple[str, ...]]:
    rows = [_score_cells(result) for result in validation.scores]
    order = validation.pairs
    share = "-" if order.share is None else f"{order.share:.0%}"
    rows.append(
        ("Faster of two ways predicted faster (pairs)", str(order.count), share, "", "", "", "95%", _met(order.met))
    )
    return rows


def _score_cells(result: Score) -> tuple[str, ...]:
    return (
        result.group.title,
        str(len(result.errors)),
        *("-" if value is None else f"{value:.1%}" for value in (result.median, result.p90, result.under, result.over)),
        _bar(result.group),
        _met(result.met),
    )


def _bar(group: Group) -> str:
    parts = (
        ("median ≤", group.median),
        ("90% ≤", group.p90),
        ("worst ≤", group.worst),
        ("never under by more than", group.under),
    )
    return ", ".join(f"{name} {value * 100:.3g}%" for name, value in parts if value is not None)


def _met(met: bool | None) -> str:
    return {True: "met", False: "missed", None: ""}[met]


def _verdict_lines(table: Verdicts) -> str:
    count = {name: len(getattr(table, name)) for name in table.__dataclass_fields__}
    lines = [
        f"Capped runs ({sum(count.values())}), verdict against outcome ({_met(table.met)}):",
        f'said "fits": {count["fits_and_ran"]} ran, {count["fits_but_died"]} ran out of memory;',
        f'said "does not fit": {count["refused_but_ran"]} ran, {count["refused_and_died"]} ran out of memory.',
    ]
    for title, names in (("False fits", table.fits_but_died), ("False refusals", table.refused_but_ran)):
        if names:
            lines.append(f"{title}: {', '.join(names)}.")
    return "\n".join(lines)


def _runs_table(validation: Validation) -> Table:
    from rich.table import Table

    table = Table(title="Runs, worst first: predicted / measured (error)", title_justify="left")
    table.add_column("run", no_wrap=True)
    for heading, _, _ in _COLUMNS:
        table.add_column(heading, justify="right")
    table.add_column("time", justify="right")
    table.add_column("verdict")
    for run in validation.worst_first:
        cells = [_cell(run, name, shown) for _, name, shown in _COLUMNS]
        table.add_row(run.record.id, *cells, _time_cell(run), _verdict_cell(run))
    return table


def _cell(run: Run, name: str, shown: Any) -> str:
    from advisor.validate.runs import top

    predicted, measured = top(run.predicted.get(name)), top(getattr(run.record.measured, name))
    if predicted is None and measured is None:
        return ""
    sides = " / ".join("?" if value is None else shown(value) for value in (predicted, measured))
    error = run.errors.get(name)
    return sides if error is None else f"{sides} ({error:+.1%})"


def _time_cell(run: Run) -> str:
    if run.record.workload.task == "finetune":
        return _cell(run, "step_seconds", format_seconds)
    return _cell(run, "decode_tokens_per_second", lambda rate: f"{rate:.3g} tok/s")


def _verdict_cell(run: Run) -> str:
    if run.reason is not None:
        return "not predicted"
    said: Mapping[bool, str] = {True: "fits", False: "does not fit"}
    happened = "ran" if run.survived else "out of memory"
    return f"{said[bool(run.predicted['fits'])]} / {happened}"
