"""A run as it happens, and predicted beside measured at its end."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from advisor.report.progress import Level, level, shown
from advisor.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from advisor.execute.apply import Result
    from advisor.execute.compare import Line
    from advisor.execute.convert.run import Report
    from advisor.execute.find_batch import Tried
    from advisor.execute.watch import Peaks


class Live:
    """One line on a terminal's stderr that says how far a run is; elsewhere each step has a line of its own."""

    def __init__(self, *, asks: bool = False) -> None:
        """``asks``: prompts come from the terminal, so a mark says when the next may be typed."""
        self._shown = shown()
        self._asks = asks and sys.stdin.isatty()
        self._step = ""
        self._last = 0.0

    def event(self, event: dict[str, Any]) -> None:
        """Take an event of a rank: text goes to stdout, rank 0's progress into the line."""
        if event["event"] == "step" and event["rank"] == 0:
            took = f", {format_seconds(event['seconds'])}" if event["seconds"] is not None else ""
            self._step = f"step {event['step']} of {event['total']}{took}"
        ready = event["event"] == "loaded" and event["rank"] == 0
        if event["event"] == "text" or (ready and self._asks):
            # From here on the line would be drawn over what is said.
            self.clear()
            self._shown = False
        if event["event"] != "step" or not self._shown:
            show_event(event)
        if self._asks and (ready or (event["event"] == "text" and event["end"])):
            sys.stderr.write("> ")
            sys.stderr.flush()

    def tick(self, peaks: Peaks, seconds: float) -> None:
        """Draw the line anew, twice a second."""
        if not self._shown or seconds - self._last < 0.5:
            return
        self._last = seconds
        cards = " ".join(format_bytes(used) for used in peaks.gpu_used)
        parts = [format_seconds(seconds), self._step, f"GPU {cards}" if cards else "",
                 f"host {format_bytes(peaks.process_ram)}"]  # fmt: skip
        sys.stderr.write("\r\x1b[K" + " · ".join(part for part in parts if part))
        sys.stderr.flush()

    def output(self, text: str) -> None:
        """What a user's script prints: handed through to stderr, where progress belongs."""
        self.clear()
        sys.stderr.write(text)
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._shown and self._last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def show_event(event: dict[str, Any]) -> None:
    """Generated text goes to stdout; rank 0's progress is a line on stderr, but under --quiet."""
    if event["event"] == "text":
        sys.stdout.write(event["text"] + ("\n" if event["end"] else ""))
        sys.stdout.flush()
    elif level() is Level.QUIET:
        return
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


def show_result(result: Result, as_json: bool, offered: str | None = None) -> None:
    """Print the end of a run on stdout; ``offered`` is what could be done next."""
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
            "next": offered,
            "last_lines": list(result.outcome.last_lines),
            "record": str(result.kept_in) if result.kept_in else None,
        }
        print(json.dumps(value, indent=2))
        return
    for warning in result.warnings:
        print(f"warning: {warning}")
    print(result.outcome.sentence)
    for text in result.outcome.last_lines:
        print(f"  | {text}")
    if offered:
        print(offered)
    print(f"{'':26}{'predicted':>12} {'measured':>12}")
    for line in lines:
        error = f" ({line.error:+.1%})" if line.error is not None else ""
        print(f"{line.name:26}{_amount(line, line.predicted):>12} {_amount(line, line.measured):>12}{error}")
    if result.kept_in:
        print(f"Kept in {result.kept_in}")


def show_batches(tried: list[Tried], as_json: bool) -> None:
    """Print what each micro batch size took, and the largest and the fastest that ran, on stdout."""
    rows = [_batch(one) for one in tried]
    ran = [one for one in tried if one.ok]
    largest = max((one.micro_batch_size for one in ran), default=None)
    fastest = max(ran, key=lambda one: one.samples_per_second or 0.0, default=None)
    if as_json:
        value = {
            "format": "advisor-batches", "version": 1, "tried": rows, "largest": largest,
            "fastest": fastest.micro_batch_size if fastest else None,
        }  # fmt: skip
        print(json.dumps(value, indent=2))
        return
    print(f"{'micro batch':>11} {'predicted':>10} {'measured':>10} {'samples/s':>10}  end")
    for row in rows:
        rate = "-" if row["samples_per_second"] is None else f"{row['samples_per_second']:.3g}"
        sizes = [format_bytes(row[key]) if row[key] else "-" for key in ("predicted", "measured")]
        print(f"{row['micro_batch_size']:>11} {sizes[0]:>10} {sizes[1]:>10} {rate:>10}  {row['ending']}")
    if fastest is None:
        print("No size ran.")
    else:
        print(f"The largest that ran is {largest}, the fastest {fastest.micro_batch_size}.")


def _batch(one: Tried) -> dict[str, Any]:
    figures = {line.name: line for line in one.result.comparison.lines}
    allocated = figures.get("gpu_allocated")
    return {
        "micro_batch_size": one.micro_batch_size,
        "ending": one.result.outcome.ending,
        "predicted": allocated.predicted if allocated else None,
        "measured": allocated.measured if allocated else None,
        "samples_per_second": one.samples_per_second,
    }


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
