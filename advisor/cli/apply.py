"""``advisor apply``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from advisor.execute.options import Hooks, Options
    from advisor.plan import Plan


def apply(
    plan: Annotated[Path, typer.Argument(help="A plan that `advisor recommend` wrote.")],
    script: Annotated[list[str] | None, typer.Argument(help="Your own script and its arguments, after --.")] = None,
    rehearse: Annotated[bool, typer.Option("--rehearse", help="A few steps with random weights; no download.")] = False,
    find_batch: Annotated[
        bool, typer.Option("--find-batch", help="Rehearse larger and larger micro batches, up to the edge.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and run nothing.")] = False,
    data: Annotated[Path | None, typer.Option("--data", help="Training samples, jsonl.")] = None,
    packed: Annotated[bool, typer.Option("--packed", help="Join samples into full rows instead of padding.")] = False,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Optimizer steps; default: --epochs.")] = None,
    epochs: Annotated[float, typer.Option("--epochs", min=0.0, help="Passes over the data.")] = 1.0,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate")] = None,
    save_every: Annotated[int | None, typer.Option("--save-every", min=1, help="Steps between checkpoints.")] = None,
    output: Annotated[Path, typer.Option("--output", help="Where trained weights go.")] = Path("advisor-output"),
    resume: Annotated[Path | None, typer.Option("--resume", help="A checkpoint to go on from.")] = None,
    prompt: Annotated[list[str] | None, typer.Option("--prompt", help="Generate from this; may be repeated.")] = None,
    prompts: Annotated[Path | None, typer.Option("--prompts", help="A file of prompts: lines, or jsonl.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Read prompts from the terminal.")] = False,
    launcher: Annotated[
        str | None, typer.Option("--launcher", help="python, torchrun, accelerate or deepspeed; default: the plan's.")
    ] = None,
    hostfile: Annotated[Path | None, typer.Option("--hostfile", help="Nodes, as DeepSpeed reads them.")] = None,
    node_rank: Annotated[
        int | None, typer.Option("--node-rank", min=0, help="Of this node, where each is started.")
    ] = None,
    master_addr: Annotated[str | None, typer.Option("--master-addr", help="The first node's address.")] = None,
    slurm: Annotated[
        Path | None, typer.Option("--slurm", help="Write a batch script for this run; run nothing.")
    ] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Hand the --slurm script to sbatch, too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run although the machine is not as planned.")] = False,
    fallback: Annotated[bool, typer.Option("--fallback", help="Out of GPU memory: take the plan's next way.")] = False,
    time_limit: Annotated[float | None, typer.Option("--time-limit", help="Seconds.")] = None,
    stall_limit: Annotated[
        float, typer.Option("--stall-limit", help="Seconds without any sign of life: a hung collective.")
    ] = 1800.0,
    log: Annotated[Path | None, typer.Option("--log", help="Write what happens as JSON lines.")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a plan with the real engine, and show the prediction beside what happened.

    Exit code 0 when the run ended well, 1 when it did not or the machine does not hold the plan, 2 for bad input.
    """
    from advisor.errors import InputError
    from advisor.execute.options import Options
    from advisor.execute.prompts import read_prompts
    from advisor.plan import read_plan

    read = read_plan(plan)
    if submit and slurm is None:
        raise InputError("--submit", "hands a batch script to Slurm", expected="--slurm FILE beside it")
    options = Options(
        rehearse=rehearse,
        script=tuple(script or ()),
        launcher=launcher,
        data=data,
        packed=packed,
        steps=steps,
        epochs=epochs,
        learning_rate=learning_rate,
        save_every=save_every,
        output=output,
        resume=resume,
        prompts=(*(prompt or ()), *(read_prompts(prompts) if prompts else ())),
        interactive=interactive,
        force=force,
        fallback=fallback,
        time_limit=time_limit,
        stall_limit=stall_limit,
        log=log,
        trust_remote_code=trust_remote_code,
        hostfile=hostfile,
        node_rank=node_rank,
        master_addr=master_addr,
    )
    if slurm is not None:
        _slurm(read, plan, options, slurm, submit)
    elif dry_run:
        from advisor.execute.apply import dry_run as commands

        for command in commands(read, plan, options):
            typer.echo(command.shown())
    elif find_batch:
        _find_batch(read, plan, options, json_output)
    else:
        _run(read, plan, options, json_output)


def _run(plan: Plan, path: Path, options: Options, as_json: bool) -> None:
    from advisor.execute.apply import Result
    from advisor.execute.phases import apply_plan, check_output, offer
    from advisor.hardware.load import this_machine
    from advisor.report.run import show_conversion, show_result

    check_output(plan, options)
    result: Result | None = None
    for end in apply_plan(plan, path, options, this_machine(), _hooks(options)):
        if not isinstance(end, Result):
            show_conversion(end, as_json)
            continue
        result = end
        show_result(result, as_json, offer(plan, result, options))
    assert result is not None
    if result.outcome.ending == "interrupted":
        raise typer.Exit(130)
    if not result.outcome.ok:
        raise typer.Exit(1)


def _find_batch(plan: Plan, path: Path, options: Options, as_json: bool) -> None:
    from advisor.execute.find_batch import Tried, find_batch
    from advisor.hardware.load import this_machine
    from advisor.report.run import show_batches

    tried: list[Tried] = []
    for one in find_batch(plan, path, options, this_machine(), _hooks(options)):
        tried.append(one)
        typer.echo(f"micro batch {one.micro_batch_size}: {one.result.outcome.sentence}", err=True)
    show_batches(tried, as_json)
    if tried[-1].result.outcome.ending == "interrupted":
        raise typer.Exit(130)
    if not any(one.ok for one in tried):
        raise typer.Exit(1)


def _slurm(plan: Plan, path: Path, options: Options, slurm: Path, submit: bool) -> None:
    from advisor.execute import slurm as room
    from advisor.execute.arguments import as_arguments

    room.write_batch_script(room.batch_script(plan, path, as_arguments(options), options.script), slurm)
    typer.echo(f"Wrote {slurm}" + ("" if submit else f"; `sbatch {slurm}` submits it"))
    if submit:
        typer.echo(room.submit(slurm))


def _hooks(options: Options) -> Hooks:
    from advisor.execute.options import Hooks
    from advisor.report.run import Live

    live = Live(asks=options.interactive)
    return Hooks(
        on_event=live.event, on_tick=live.tick, on_output=live.output, say=lambda text: typer.echo(text, err=True)
    )  # fmt: skip
