"""``advisor apply``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def apply(
    plan: Annotated[Path, typer.Argument(help="A plan that `advisor recommend` wrote.")],
    script: Annotated[list[str] | None, typer.Argument(help="Your own script and its arguments, after --.")] = None,
    rehearse: Annotated[bool, typer.Option("--rehearse", help="A few steps with random weights; no download.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and run nothing.")] = False,
    data: Annotated[Path | None, typer.Option("--data", help="Training samples, jsonl.")] = None,
    packed: Annotated[bool, typer.Option("--packed", help="Join samples into full rows instead of padding.")] = False,
    steps: Annotated[int | None, typer.Option("--steps", help="Optimizer steps.")] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate")] = None,
    output: Annotated[Path, typer.Option("--output", help="Where trained weights go.")] = Path("advisor-output"),
    resume: Annotated[Path | None, typer.Option("--resume", help="A checkpoint to go on from.")] = None,
    prompt: Annotated[list[str] | None, typer.Option("--prompt", help="Generate from this; may be repeated.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Read prompts from the terminal.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run although the machine is not as planned.")] = False,
    fallback: Annotated[bool, typer.Option("--fallback", help="Out of memory: run the next plan.")] = False,
    time_limit: Annotated[float | None, typer.Option("--time-limit", help="Seconds.")] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Write what happens as JSON lines.")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a plan with the real engine, and show the prediction beside what happened.

    Exit code 0 when the run ended well, 1 when it did not or the machine does not hold the plan, 2 for bad input.
    """
    from advisor.execute import apply as room
    from advisor.hardware.load import this_machine
    from advisor.plan import read_plan
    from advisor.report.run import show_event, show_result

    read = read_plan(plan)
    options = room.Options(
        rehearse=rehearse,
        script=tuple(script or ()),
        data=data,
        packed=packed,
        steps=steps,
        learning_rate=learning_rate,
        output=output,
        resume=resume,
        prompts=tuple(prompt or ()),
        interactive=interactive,
        force=force,
        time_limit=time_limit,
        log=log,
        trust_remote_code=trust_remote_code,
    )
    if dry_run:
        for command in room.dry_run(read, plan, options):
            typer.echo(command.shown())
        return
    machine = this_machine()
    ways = [read.steps[0], *(read.fallbacks if fallback else ())]
    for step in ways:
        result = room.apply_step(read, plan, step, options, machine, room.Hooks(on_event=show_event))
        show_result(result, json_output)
        if result.outcome.ending != "oom":
            break
    if result.outcome.ending == "interrupted":
        raise typer.Exit(130)
    if not result.outcome.ok:
        raise typer.Exit(1)
