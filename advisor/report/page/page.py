"""The page: an answer laid into the template. Everything that comes from a plan is escaped; no script but our own runs."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from advisor import __version__
from advisor.plan import PlannedCandidate, Promise
from advisor.record import RunRecord
from advisor.report.page.answer import Answer
from advisor.report.page.bars import legend, rows
from advisor.report.page.charts import chart
from advisor.report.page.measured import runs
from advisor.report.page.strip import strip
from advisor.report.page.tree import drawing
from advisor.report.words import describe_job, describe_machine
from advisor.units import format_bytes, format_count, format_seconds

VERDICTS = {"fits": "fits", "tight": "tight", "does_not_fit": "does not fit", "refused": "not possible"}


@cache
def environment() -> Environment:
    """Templates with escaping always on; an unknown name is an error."""
    loader = PackageLoader("advisor.report.page")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters |= {
        "bytes": format_bytes,
        "count": format_count,
        "percent": lambda value: f"{value:.3f}%",
        "rate": lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}",
        "speed": _speed,
        "words": lambda name: name.replace("_", " "),
    }
    return found


def render(
    answer: Answer, plan_path: str = "plan.json", records: Iterable[RunRecord] = (), template: str = "page.html.j2",
    **more: Any,
) -> str:  # fmt: skip
    """The whole page as text. ``plan_path`` is where commands find the plan; ``records`` are runs to look among."""
    return environment().get_template(template).render({**_context(answer, plan_path, records), **more})


def assets(**more: str) -> dict[str, Any]:
    """Style, script and the policy that lets this script run and nothing else load."""
    style, script = _source("style.css"), _source("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = {
        "default-src": "'none'", "style-src": "'unsafe-inline'", "script-src": f"'sha256-{digest}'", "img-src": "data:",
        "base-uri": "'none'", "form-action": "'none'", **more,
    }  # fmt: skip
    policy = "; ".join(f"{name} {value}" for name, value in allowed.items())
    return {"style": Markup(style), "script": Markup(script), "policy": policy}  # our own files: safe as they are


@cache
def _source(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _context(answer: Answer, plan_path: str, records: Iterable[RunRecord]) -> dict[str, Any]:
    plan = answer.plan
    step = plan.main if plan else None
    shown = rows(answer)
    task = step.job.task if step else answer.workload.task if answer.workload else "inference"
    values: dict[str, Any] = {
        "a": answer,
        "version": __version__,
        "task": task,
        "verdicts": VERDICTS,
        "machine": describe_machine(answer.machine),
        "settings": describe_job(step.job) if step else "",
        "phases": [
            {"name": phase.name, "settings": describe_job(phase.job), "figures": _figures(answer, phase.promise)}
            for phase in (plan.steps if plan else ())
        ],
        "handover": (plan.handover or {}) if plan else {},
        "times": _times(step.promise) if step else (),
        "commands": _commands(answer, plan_path) if plan else (),
        "bars": shown,
        "legend": legend(shown),
        "strips": [(phase.name, strip(answer, phase)) for phase in plan.steps] if plan else [],
        "speeds": _speeds(answer.candidates),
        "charts": [chart(curve) for curve in answer.curves],
        "tree": drawing(task, answer.trace),
        "measured": runs(plan, records) if plan else (),
        **assets(),
    }
    values["sections"] = _sections(answer, values)
    return values


def _sections(answer: Answer, values: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    there = (
        ("ways-out", "Ways out", answer.ways_out), ("run", "Run it", values["commands"]),
        ("memory", "Memory", values["bars"]), ("layers", "Layers", values["strips"]), ("time", "Time", values["speeds"]),
        ("sizes", "Sizes", values["charts"]), ("path", "Decision", answer.trace), ("changes", "Changes", answer.changes),
        ("measured", "Measured", values["measured"]),
    )  # fmt: skip
    return tuple((name, title) for name, title, content in there if content)


def _figures(answer: Answer, promise: Promise) -> tuple[tuple[str, str, str], ...]:
    """The tiles: name, value, a word more."""
    tiles: list[tuple[str, str, str]] = []
    if promise.gpus:
        needs = [gpu.required + gpu.runtime for gpu in promise.gpus]
        fullest = needs.index(max(needs))
        capacities = answer.machine.capacities
        limit = capacities[fullest % len(capacities)] if capacities else 0
        tiles.append(("fullest GPU", format_bytes(needs[fullest]), f"of {format_bytes(limit)}"))
        tiles.append(("free on it", format_bytes(limit - needs[fullest]), f"peak in {promise.peak_phase}"))
    host = max(promise.host_ram, promise.host_ram_load)
    room = answer.machine.host.memory_available or answer.machine.host.memory_total
    tiles.append(("host RAM, a node", format_bytes(host), f"of {format_bytes(room)}" if room else "limit unknown"))
    margin = f"±{promise.time_error:.0%}" if promise.time_error else ""
    if promise.step_seconds is not None:
        tiles.append(("optimizer step", format_seconds(promise.step_seconds), margin))
    if promise.decode_tokens_per_second is not None:
        tiles.append(("decode", f"{promise.decode_tokens_per_second:.3g} tok/s", margin))
    if promise.step_seconds is None and promise.decode_tokens_per_second is None:
        tiles.append(("speed", "unknown", "a rate of the machine is not known"))
    if promise.disk:
        tiles.append(("disk", format_bytes(promise.disk), "offloaded"))
    return tuple(tiles)


def _times(promise: Promise) -> tuple[tuple[str, str], ...]:
    seconds = (
        ("load", promise.load_seconds), ("optimizer step", promise.step_seconds), ("prefill", promise.prefill_seconds),
    )  # fmt: skip
    shown = [(name, format_seconds(value)) for name, value in seconds if value is not None]
    if promise.decode_tokens_per_second is not None:
        shown.append(("decode", f"{promise.decode_tokens_per_second:.3g} tokens/s"))
    if promise.tokens_per_second is not None:
        shown.append(("over all GPUs", f"{promise.tokens_per_second:,.4g} tokens/s"))
    return tuple(shown)


def _speeds(candidates: tuple[PlannedCandidate, ...]) -> list[tuple[PlannedCandidate, float]]:
    """What fits with a known speed, fastest first, with its share of the fastest in percent."""
    known = [c for c in candidates if c.verdict in ("fits", "tight") and c.tokens_per_second]
    known.sort(key=lambda c: -(c.tokens_per_second or 0.0))
    return [(c, 100 * (c.tokens_per_second or 0.0) / (known[0].tokens_per_second or 1.0)) for c in known]


def _speed(candidate: PlannedCandidate) -> str:
    margin = f" ±{candidate.time_error:.0%}" if candidate.time_error else ""
    if candidate.step_seconds is not None:
        return f"{format_seconds(candidate.step_seconds)}/step{margin}"
    if candidate.decode_tokens_per_second is not None:
        return f"{candidate.decode_tokens_per_second:.3g} tok/s{margin}"
    return "speed unknown" if candidate.gpus else ""


def _commands(answer: Answer, plan_path: str) -> tuple[tuple[str, str], ...]:
    path = shlex.quote(plan_path)
    plan = answer.plan
    assert plan is not None
    given = "--prompt 'Hello'" if not plan.main.job.trains else "--data samples.jsonl"
    commands = [
        ("Try it with random weights, a few steps, nothing downloaded", f"advisor apply {path} --rehearse"),
        ("Run it", f"advisor apply {path} {given}"),
        ("See what would be started", f"advisor apply {path} --dry-run"),
    ]
    if plan.fallbacks:
        way = plan.fallbacks[0].job
        title = f"Should it run out of memory: take the plan's next way ({way.strategy})"
        commands.append((title, f"advisor apply {path} {given} --fallback"))
    other = next((label for label, _ in answer.why_not), None)
    if other is not None:
        commands.append((f"Why not {other}", f"advisor explain {path} --why-not {shlex.quote(other)}"))
    return tuple(commands)
