"""A run as it happens, and predicted beside measured at its end."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from advisor.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from advisor.execute.apply import Result
    from advisor.execute.compare import Line
    from advisor.execute.convert.run import Report


def show_event(event: dict[str, Any]) -> None:
    """Generated text goes to stdout; rank 0's progress is a line on stderr."""
    if event["event"] == "text":
        sys.stdout.write(event["text"] + ("\n" if event["end"] else ""))
        sys.stdout.flush()
    elif event["event"] == "step" and event["rank"] == 0:
        took = f", {format_seconds(event['seconds'])}" if event["seconds"] is not None else ""
        sys.stderr.write(f"step {event['step']} of {event['total']}{took}\n")
    elif event["event"] == "loaded" and event["rank"] == 0:
        sys.stderr.write(f"loaded in {format_seconds(event['seconds'])}\n")


def _amount(line: Line, value: float | None) -> str:
    if value is None:
        return "-"
    if line.name.endswith("_seconds"):
        return format_seconds(value)
    return f"{value:.3g} tok/s" if line.name.endswith("_per_second") else format_bytes(int(value))


def show_result(result: Result, as_json: bool) -> None:
    """Print the end of a run on stdout."""
    lines = result.comparison.lines
    if as_json:
        value = {
            "format": "advisor-run",
            "version": 1,
            "ending": result.outcome.ending,
            "sentence": result.outcome.sentence,
            "strategy": result.step.job.strategy,
            "figures": {
                line.name: {"predicted": line.predicted, "measured": line.measured, "error": line.error}
                for line in lines
            },
            "warnings": list(result.warnings),
            "record": str(result.kept_in) if result.kept_in else None,
        }
        print(json.dumps(value, indent=2))
        return
    for warning in result.warnings:
        print(f"warning: {warning}")
    print(result.outcome.sentence)
    for text in result.outcome.last_lines:
        print(f"  | {text}")
    print(f"{'':26}{'predicted':>12} {'measured':>12}")
    for line in lines:
        error = f" ({line.error:+.1%})" if line.error is not None else ""
        print(f"{line.name:26}{_amount(line, line.predicted):>12} {_amount(line, line.measured):>12}{error}")
    if result.kept_in:
        print(f"Kept in {result.kept_in}")


def show_conversion(report: Report, as_json: bool) -> None:
    """Print what a conversion made, on stdout."""
    if as_json:
        value = {
            "format": "advisor-conversion",
            "version": 1,
            "from": report.kind,
            "folder": str(report.out),
            "tensors": report.tensors,
            "parameters": report.parameters,
            "bytes": report.bytes,
            "dtype": report.dtype,
            "files": report.files,
            "host_ram_needed": report.need.host_ram,
            "disk_needed": report.need.disk,
            "notes": list(report.notes),
        }
        print(json.dumps(value, indent=2))
        return
    print(
        f"{report.out}: {report.tensors} tensors, {format_count(report.parameters)} parameters in {report.dtype}, "
        f"{format_bytes(report.bytes)} in {report.files} file(s), read back and compared with the config."
    )
    for note in report.notes:
        print(f"note: {note}")
