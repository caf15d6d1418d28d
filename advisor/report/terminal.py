"""The answer on a terminal: the decision, a memory bar a candidate, the path, and why the others lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from advisor.report.result import parts_of, taken
from advisor.report.words import describe_job, describe_machine, describe_time
from advisor.units import format_bytes, format_count

if TYPE_CHECKING:
    from advisor.advise import Advice

# One colour and one letter a part: the letter carries the meaning where there is no colour.
PART_STYLES: dict[str, tuple[str, str]] = {
    "weights": ("blue", "W"),
    "gradients": ("magenta", "G"),
    "optimizer": ("yellow", "O"),
    "activations": ("green", "A"),
    "logits": ("cyan", "L"),
    "kv_cache": ("bright_blue", "K"),
    "buffers": ("bright_magenta", "B"),
    "temporary": ("bright_yellow", "T"),
    "allocator": ("bright_black", "a"),
    "runtime": ("white", "R"),
}
_WIDE = 100  # columns from which candidates stand in a table
_VERDICTS = {
    "fits": ("green", "fits"),
    "tight": ("yellow", "tight"),
    "does_not_fit": ("red", "no"),
    "refused": ("red", "-"),
}


def memory_bar(parts: dict[str, int], limit: int, scale: int, width: int) -> Text:
    """A bar of ``width`` cells for ``scale`` bytes: the parts in order, and ``|`` where the card ends."""
    bar = Text()
    cells: list[tuple[str, str]] = []
    filled = 0.0
    for name, amount in parts.items():
        style, letter = PART_STYLES.get(name, ("white", "?"))
        before = min(width, round(filled / scale * width))
        filled += amount
        cells += [(letter, style)] * (min(width, round(filled / scale * width)) - before)
    cells += [("·", "bright_black")] * (width - len(cells))
    mark = min(width - 1, round(limit / scale * width))
    for index, (letter, style) in enumerate(cells):
        if index == mark:
            bar.append("|", style="bold red")
        else:
            bar.append(letter, style=style)
    return bar


def _limit(advice: Advice) -> int:
    return max(advice.machine.capacities, default=0)


def _scale(advice: Advice) -> int:
    """Bytes that a whole bar stands for. A hopeless candidate must not squeeze the others: bars end at 1.5 cards."""
    limit = _limit(advice)
    budgets = [candidate.budget for candidate in advice.decision.candidates]
    needs = [budget.fullest.needed for budget in budgets if budget is not None and budget.gpus]
    return max(int(limit * 1.1), min(max(needs, default=1), int(limit * 1.5)), 1)


def _candidate_lines(advice: Advice, width: int) -> list[RenderableType]:
    """Candidates where there is no room for a table: name and verdict, figures, bar."""
    limit, scale = _limit(advice), _scale(advice)
    lines: list[RenderableType] = []
    for candidate in advice.decision.candidates:
        style, word = _VERDICTS[candidate.verdict]
        chosen = candidate is advice.decision.chosen
        name = Text(("> " if chosen else "  ") + candidate.label, style="bold" if chosen else "")
        lines.append(Text.assemble(name, "  ", (word, style)))
        if candidate.budget is None or not candidate.budget.gpus:
            continue
        figures = (
            format_bytes(candidate.budget.fullest.needed), f"host {format_bytes(candidate.budget.host_ram)}",
            describe_time(candidate.time),
        )  # fmt: skip
        lines.append(Text("    " + ", ".join(figure for figure in figures if figure)))
        lines.append(Text.assemble("    ", memory_bar(parts_of(candidate), limit, scale, max(8, min(48, width - 5)))))
    return lines


def _candidate_rows(advice: Advice, width: int) -> Table:
    limit, scale = _limit(advice), _scale(advice)
    table = Table(box=None, padding=(0, 1), show_edge=False, expand=False)
    table.add_column("candidate", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in ("GPU", "host", "speed"):
        table.add_column(name, justify="right", no_wrap=True)
    # What is left beside the other columns, each at its longest: "1174.1 GiB", "0.891 tok/s ±35%".
    longest = max(len(candidate.label) for candidate in advice.decision.candidates)
    bar_width = max(8, min(48, width - longest - 58))
    for candidate in advice.decision.candidates:
        style, word = _VERDICTS[candidate.verdict]
        chosen = candidate is advice.decision.chosen
        bar, gpu, host = Text(""), "", ""
        if candidate.budget is not None:
            host = format_bytes(candidate.budget.host_ram)
            if candidate.budget.gpus:
                bar = memory_bar(parts_of(candidate), limit, scale, bar_width)
                gpu = format_bytes(candidate.budget.fullest.needed)
        label = Text(("> " if chosen else "  ") + candidate.label, style="bold" if chosen else "")
        table.add_row(label, Text(word, style=style), bar, gpu, host, describe_time(candidate.time))
    return table


def _legend(advice: Advice) -> Text:
    seen: dict[str, None] = {}
    for candidate in advice.decision.candidates:
        seen.update(dict.fromkeys(parts_of(candidate)))
    text = Text("  ")
    for name in PART_STYLES:
        if name in seen:
            style, letter = PART_STYLES[name]
            text.append(letter, style=style)
            text.append(f" {name}  ", style="dim")
    return text


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _bullets(items: tuple[str, ...] | list[str]) -> list[Text]:
    return [Text.assemble("  - ", item) for item in items]


def _defaults(advice: Advice) -> list[Text]:
    """What was not asked for: its values in a line, under --verbose one by one with their reasons."""
    from advisor.report.progress import Level, level

    found = taken(advice)
    if level() is not Level.VERBOSE:
        line = "; ".join(f"{default.name} {default.value}" for default in found)
        return [Text(f"  not asked, so taken: {line} (--verbose says why)", style="dim")] if found else []
    return [
        Text("  not asked, so taken:", style="dim"),
        *(Text(f"    {default.name}: {default.value} ({default.why})", style="dim") for default in found),
    ]


def _engine(said: Mapping[str, Any]) -> list[Text]:
    """DeepSpeed's own figures beside ours, and what lies between them."""
    theirs = f"{format_bytes(said['deepspeed_gpu'])} a GPU, {format_bytes(said['deepspeed_host'])} of host RAM"
    ours = f"{format_bytes(said['ours_gpu'])} a GPU, {format_bytes(said['ours_host'])} of host RAM"
    return [
        Text(f"  DeepSpeed {said['deepspeed']}: {theirs}; here: {ours}", style="dim"),
        Text(f"  {said['difference']}", style="dim"),
    ]


def advice_view(advice: Advice, written: Path | None, width: int) -> Group:
    """The whole answer as one renderable."""
    decision, model = advice.decision, advice.model
    out: list[RenderableType] = []
    parameters = (
        f"{format_count(model.parameters)} parameters" if model.parameters else "parameters counted from config"
    )
    out.append(Text.assemble((model.name, "bold"), f"  {parameters}, {model.model_type}, from {model.source}"))
    out.append(Text(describe_machine(advice.machine), style="dim"))
    out.extend(Text(f"  note: {note}", style="dim") for note in (*model.notes, *advice.machine.notes))
    out.append(Text(f"\n{decision.sentence}", style="bold green" if decision.chosen else "bold red"))
    if decision.chosen and decision.chosen.job:
        out.append(Text(f"  {describe_job(decision.chosen.job)}"))
    out.extend(_defaults(advice))
    out.extend(Text(f"  given up: {text}", style="yellow") for text in decision.given_up)
    if decision.candidates and advice.machine.gpus:
        rows = [_candidate_rows(advice, width)] if width >= _WIDE else _candidate_lines(advice, width)
        caption = Text(f"  memory of the fullest GPU ( | = card, {format_bytes(_limit(advice))})", style="dim")
        out += [_heading("Candidates"), caption, *rows, _legend(advice)]
    if decision.path:
        out.append(_heading("Path through the rules"))
        for step in decision.path:
            answer = ("yes", "green") if step.answer else ("no", "red")
            out.append(Text.assemble(f"  {step.code}  {step.ask} ", answer, f" -> {step.to}"))
            failing = [condition for condition in step.conditions if not condition.holds] or list(step.conditions)
            for condition in failing[:2]:
                seen = ", ".join(f"{name} = {value}" for name, value in condition.values)
                out.append(Text(f"           {condition.text}" + (f"   ({seen})" if seen else ""), style="dim"))
    if decision.why_not and advice.machine.gpus:
        out.append(_heading("Why not the others"))
        out.extend(Text.assemble("  ", (label, "bold"), f": {reason}") for label, reason in decision.why_not)
    if decision.changes:
        out += [_heading("What would change the answer"), *_bullets(decision.changes)]
    if decision.ways_out:
        heading = "Nearest ways out" if advice.machine.gpus else "Machines that would do (advisor … --hardware NAME)"
        out += [_heading(heading), *_bullets(decision.ways_out)]
    if advice.plan is not None:
        for phase in advice.plan.steps:
            if phase.estimators:
                out.append(_heading("The engine's own estimate"))
                out.extend(_engine(phase.estimators))
            if phase.advice:
                out += [_heading(f"Advice for {phase.name}"), *_bullets(phase.advice)]
        if (over := advice.plan.handover) is not None:
            out += [_heading("Hand-over to serving"), *_bullets([over["how"], over["summary"], over["serving"]])]
    if written is not None:
        out.append(Text(f"\nWrote {written}. Run it with: advisor apply {written}", style="bold"))
    return Group(*out)


def show_advice(advice: Advice, written: Path | None) -> None:
    """Print the answer on stdout, as wide as the terminal (120 columns when piped); under --quiet, its sentence."""
    import sys

    from advisor.report.progress import Level, level

    if level() is Level.QUIET:
        print(advice.decision.sentence)
        return
    console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 120)
    console.print(advice_view(advice, written, console.width))
