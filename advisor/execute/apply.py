"""Apply: one function that reads top to bottom - check, start, watch, compare, keep the record."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError, InputError
from advisor.execute import archive, launch
from advisor.execute.compare import Comparison, compare
from advisor.execute.engine_files import write_engine_files
from advisor.execute.preflight import Preflight, preflight
from advisor.execute.supervise import Outcome, supervise
from advisor.execute.watch import Peaks
from advisor.hardware.profile import HardwareProfile
from advisor.plan import Plan, PlanStep
from advisor.record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

REHEARSAL_STEPS = 4


class RefusedError(AdvisorError):
    """The machine is not as the plan thinks; nothing was started."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the caller chose beside the plan. Times in seconds."""

    rehearse: bool = False
    script: tuple[str, ...] = ()  # the user's own script and its arguments
    data: Path | None = None
    packed: bool = False
    steps: int | None = None
    epochs: float = 1.0
    learning_rate: float | None = None
    save_every: int | None = None
    resume: Path | None = None
    output: Path = Path("advisor-output")
    prompts: tuple[str, ...] = ()
    interactive: bool = False
    force: bool = False
    time_limit: float | None = None
    stall_limit: float | None = 1800.0
    trust_remote_code: bool = False
    log: Path | None = None
    hostfile: Path | None = None
    seed: int = 0
    keep_record: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One applied step: how it ended, and predicted beside measured."""

    step: PlanStep
    outcome: Outcome
    comparison: Comparison
    record: RunRecord
    kept_in: Path | None
    warnings: tuple[str, ...] = ()


@dataclass
class Hooks:
    """Where progress goes: ``on_event`` gets each rank's events, ``on_tick`` the peaks so far."""

    on_event: Callable[[dict[str, Any]], None] = field(default=lambda event: None)
    on_tick: Callable[[Peaks, float], None] = field(default=lambda peaks, seconds: None)


def dry_run(plan: Plan, path: Path, options: Options) -> tuple[launch.Command, ...]:
    """The commands that :func:`apply_step` would run for each step, with their files written beside the plan."""
    commands = []
    for step in plan.steps:
        places = _places(step, path, options)
        commands.append(launch.command(step, _payload(options), places, str(path)))
    return tuple(commands)


def apply_step(
    plan: Plan,
    path: Path,
    step: PlanStep,
    options: Options,
    machine: HardwareProfile,
    hooks: Hooks | None = None,
    load_from: Path | None = None,
) -> Result:
    """Run one step of a plan (``path`` is where it was read from) and compare.

    Raises RefusedError when the machine does not hold what the plan needs (and not ``options.force``), InputError when
    the plan asks for what a plan may not do.
    """
    hooks = hooks or Hooks()
    places = _places(step, path, options)
    command = launch.command(step, _payload(options), places, str(path))
    if plan.model.trust_remote_code and not options.trust_remote_code and not options.script:
        raise InputError(str(path), "needs the model's own code", expected="--trust-remote-code, if you trust it")
    checked = preflight(plan, step, machine, options.output, rehearse=options.rehearse)
    if checked.problems and not options.force:
        raise RefusedError("the plan does not hold here: " + "; ".join(checked.problems) + " (--force runs it anyway)")
    folder = Path(tempfile.mkdtemp(prefix="advisor-run-"))
    try:
        with _log(options.log) as log:
            outcome = _run(plan, path, step, options, places, command, folder, _logged(hooks, log), load_from)
        comparison = compare(step, outcome)
        record = comparison.record(plan, step, machine, outcome)
        kept = archive.keep(record) if options.keep_record and not options.script else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Result(
        step=step, outcome=replace(outcome, log=None), comparison=comparison, record=record, kept_in=kept,
        warnings=_warnings(checked, options),
    )  # fmt: skip


def _warnings(checked: Preflight, options: Options) -> tuple[str, ...]:
    forced = tuple(f"forced although {problem}" for problem in checked.problems) if options.force else ()
    return (*forced, *checked.warnings)


def _places(step: PlanStep, path: Path, options: Options) -> dict[str, str]:
    places = write_engine_files(step, path.with_suffix(".files"), options.learning_rate)
    if options.hostfile is not None:
        if not options.hostfile.is_file():
            raise InputError(str(options.hostfile), "is not there", expected="a hostfile, `HOST slots=N` a line")
        places["hostfile"] = str(options.hostfile.absolute())
    return places


def _payload(options: Options) -> Sequence[str]:
    return options.script or (str(launch.WORKER),)


def _run(
    plan: Plan, path: Path, step: PlanStep, options: Options, places: dict[str, str], command: launch.Command,
    folder: Path, hooks: Hooks, load_from: Path | None,
) -> Outcome:  # fmt: skip
    environment: dict[str, str] = {}
    speaker: threading.Thread | None = None
    if not options.script:
        prompts = folder / "prompts.jsonl" if (options.prompts or options.interactive) else None
        fallback = step not in plan.steps
        task = {
            "plan": str(path.absolute()),
            "step": (plan.fallbacks if fallback else plan.steps).index(step),
            "fallback": fallback,
            "status": str(folder),
            "rehearse": options.rehearse,
            "steps": options.steps or (REHEARSAL_STEPS if options.rehearse else None),
            "epochs": options.epochs,
            "learning_rate": options.learning_rate,
            "data": str(options.data.absolute()) if options.data else None,
            "packed": options.packed,
            "output": str(options.output.absolute()),
            "resume": str(options.resume.absolute()) if options.resume else None,
            "prompts": str(prompts) if prompts else None,
            "load_from": str(load_from.absolute()) if load_from else None,
            "deepspeed_config": places.get("deepspeed_config"),
            "trust_remote_code": options.trust_remote_code,
            "allocator_cap": allocator_cap(plan, step),
            "seed": options.seed,
            "save_every": options.save_every,
        }
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        environment["ADVISOR_TASK"] = str(folder / "task.json")
        if options.rehearse:
            environment["HF_HUB_OFFLINE"] = "1"  # a rehearsal downloads nothing
        if prompts is not None:
            speaker = _speak(prompts, options)
    outcome = supervise(
        command,
        folder,
        time_limit=options.time_limit,
        stall_limit=None if options.interactive else options.stall_limit,
        expects_status=not options.script,
        extra_environment=environment,
        on_event=hooks.on_event,
        on_tick=hooks.on_tick,
    )
    if speaker is not None and not options.interactive:
        speaker.join()
    return outcome


def allocator_cap(plan: Plan, step: PlanStep) -> int | None:
    """Bytes that torch's allocator may take on each card, when the plan limits the card (runtime bytes included)."""
    limit = plan.hardware.gpu_memory_limit
    if limit is None or not step.promise.gpus:
        return None
    return max(1, limit - max(gpu.runtime for gpu in step.promise.gpus))


def _speak(path: Path, options: Options) -> threading.Thread:
    """Append prompts for the worker: the given ones, then lines of the terminal until it ends."""

    def write(value: dict[str, Any]) -> None:
        with path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(value) + "\n")

    def speak() -> None:
        for prompt in options.prompts:
            write({"prompt": prompt})
        if options.interactive:
            import sys

            for line in sys.stdin:
                if line.strip():
                    write({"prompt": line.rstrip("\n")})
        write({"end": True})

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    return thread


@contextmanager
def _log(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A writer of JSON lines, or None. The log is a stream: lines are there as they happen."""
    if path is None:
        yield None
        return
    try:
        handle = path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror})", field="--log") from error
    with handle:

        def write(value: dict[str, Any]) -> None:
            handle.write(json.dumps(value) + "\n")
            handle.flush()

        yield write


def _logged(hooks: Hooks, log: Callable[[dict[str, Any]], None] | None) -> Hooks:
    if log is None:
        return hooks
    last = 0.0

    def event(value: dict[str, Any]) -> None:
        log(value)
        hooks.on_event(value)

    def tick(peaks: Peaks, seconds: float) -> None:
        nonlocal last
        if seconds - last >= 1.0:
            last = seconds
            log({
                "event": "watch", "time": time.time(), "seconds": round(seconds, 2), "gpu_used": peaks.gpu_used,
                "host_ram": peaks.host_ram, "process_ram": peaks.process_ram,
            })  # fmt: skip
        hooks.on_tick(peaks, seconds)

    return Hooks(event, tick)
