"""Apply: one step of a plan - check, start, watch, compare, keep the record. ``phases`` runs a whole plan."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from advisor import archive
from advisor.errors import AdvisorError, InputError
from advisor.execute import launch
from advisor.execute.compare import Comparison, compare
from advisor.execute.engine_files import write_engine_files
from advisor.execute.launchers import with_launcher
from advisor.execute.log import logged
from advisor.execute.options import Hooks, Options
from advisor.execute.preflight import Preflight, preflight
from advisor.execute.prompts import speak
from advisor.execute.supervise import Outcome, supervise
from advisor.execute.task import write_task
from advisor.execute.worker.data import read_samples
from advisor.hardware.profile import HardwareProfile
from advisor.plan import Plan, PlanStep
from advisor.record import RunRecord


class RefusedError(AdvisorError):
    """The machine is not as the plan thinks; nothing was started."""

    exit_code = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One applied step: how it ended, and predicted beside measured."""

    step: PlanStep
    outcome: Outcome
    comparison: Comparison
    record: RunRecord
    kept_in: Path | None
    warnings: tuple[str, ...] = ()


def dry_run(plan: Plan, path: Path, options: Options) -> tuple[launch.Command, ...]:
    """The commands that :func:`apply_step` would run for each step, with their files written beside the plan."""
    commands = []
    for planned in plan.steps:
        step = with_launcher(planned, options)
        commands.append(launch.command(step, _payload(options, Path("RUN")), _places(step, path, options), str(path)))
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

    ``load_from`` replaces the plan's model by a folder. Raises RefusedError when the machine does not hold what the plan
    needs (and not ``options.force``), InputError when the plan asks for what a plan may not do.
    """
    step = with_launcher(step, options)
    places = _places(step, path, options)
    if plan.model.trust_remote_code and not options.trust_remote_code and not options.script:
        raise InputError(str(path), "needs the model's own code", expected="--trust-remote-code, if you trust it")
    launch.check(step.launch, str(path))
    _check_files(step, options)
    checked = preflight(plan, step, machine, options.output, rehearse=options.rehearse)
    if checked.problems and not options.force:
        raise RefusedError("the plan does not hold here: " + "; ".join(checked.problems) + " (--force runs it anyway)")
    with _run_folder(step, path) as folder, logged(hooks or Hooks(), options.log) as watching:
        command = launch.command(step, _payload(options, folder), places, str(path))
        outcome = _run(plan, path, step, options, places, command, folder, watching, load_from)
        comparison = compare(step, outcome, rehearsed=options.rehearse)
        record = comparison.record(plan, step, machine, load_from)
        keeps = options.keep_record and not options.script and not options.node_rank
        kept = archive.keep(record) if keeps else None
    return Result(
        step=step, outcome=replace(outcome, log=None), comparison=comparison, record=record, kept_in=kept,
        warnings=_warnings(checked, options),
    )  # fmt: skip


def _check_files(step: PlanStep, options: Options) -> None:
    """Raise InputError for samples or a checkpoint that a training would miss after minutes of loading."""
    if options.script or not step.job.trains:
        return
    if options.data is not None:
        read_samples(options.data)
    elif not options.rehearse:
        raise InputError("--data", "is needed to train", expected="a jsonl file; or --rehearse, or a script after --")
    if options.resume is not None and not options.resume.is_dir():
        raise InputError(
            "--resume", "is no folder", found=str(options.resume), expected="a checkpoint of this training"
        )


def _warnings(checked: Preflight, options: Options) -> tuple[str, ...]:
    forced = tuple(f"forced although {problem}" for problem in checked.problems) if options.force else ()
    return (*forced, *checked.warnings)


@contextmanager
def _run_folder(step: PlanStep, path: Path) -> Iterator[Path]:
    """Where ranks report: a temporary folder, or one beside the plan that other nodes see, too."""
    beside = path.absolute().parent if step.launch.launcher == "deepspeed" and step.job.nodes > 1 else None
    folder = Path(tempfile.mkdtemp(prefix=".advisor-run-" if beside else "advisor-run-", dir=beside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _places(step: PlanStep, path: Path, options: Options) -> dict[str, str]:
    """What fills "{hostfile}" and its like."""
    places: dict[str, str] = {}
    if options.hostfile is not None:
        if not options.hostfile.is_file():
            raise InputError(str(options.hostfile), "is not there", expected="a hostfile, `HOST slots=N` a line")
        places["hostfile"] = str(options.hostfile.absolute())
    if options.node_rank is not None:
        places["node_rank"] = str(options.node_rank)
    if options.master_addr is not None:
        places["master_addr"] = options.master_addr
    return places | write_engine_files(step, path.with_suffix(".files"), options.learning_rate, places)


def _payload(options: Options, folder: Path) -> Sequence[str]:
    return options.script or (str(launch.WORKER), str(folder / "task.json"))


def _run(
    plan: Plan, path: Path, step: PlanStep, options: Options, places: dict[str, str], command: launch.Command,
    folder: Path, hooks: Hooks, load_from: Path | None,
) -> Outcome:  # fmt: skip
    environment: dict[str, str] = {}
    speaker = None
    if not options.script:
        prompts = write_task(plan, path, step, options, folder, places.get("deepspeed_config"), load_from)
        if options.rehearse:
            environment["HF_HUB_OFFLINE"] = "1"  # a rehearsal downloads nothing
        if prompts is not None:
            speaker = speak(prompts, options)
    outcome = supervise(
        command,
        folder,
        time_limit=options.time_limit,
        stall_limit=None if options.interactive else options.stall_limit,
        expects_status=not options.script,
        extra_environment=environment,
        on_event=hooks.on_event,
        on_tick=hooks.on_tick,
        on_output=hooks.on_output if options.script else None,
    )
    if speaker is not None and not options.interactive:
        speaker.join()
    return outcome
