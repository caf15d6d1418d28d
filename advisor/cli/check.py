"""``advisor check``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from advisor.check.checked import Checked
    from advisor.check.checking import Request

_FIT = "Fit: the plan or the job, on the target machine"
_CI = "Output"


def check(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATHS", help="Files and folders; default: this folder.")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="CODES", help="Only these codes or beginnings of codes.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODES", help="Not these codes or beginnings of codes.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Leave these files or folders out, too.")
    ] = None,
    strict: Annotated[
        bool | None, typer.Option("--strict/--no-strict", help="Say also what cannot be told without running it.")
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Show safe fixes as a diff, ask, and write them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --fix: write without asking.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print safe fixes as a diff and write nothing.")] = False,
    form: Annotated[
        str, typer.Option("--format", help="text, json, sarif, junit or github.", rich_help_panel=_CI)
    ] = "text",
    json_output: Annotated[bool, typer.Option("--json", help="As --format json.", rich_help_panel=_CI)] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the report here, not to stdout.", rich_help_panel=_CI)
    ] = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with 0 whatever is found.", rich_help_panel=_CI)
    ] = False,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Check this plan.json, too.", rich_help_panel=_FIT)
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Check that this model fits.", rich_help_panel=_FIT)
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", "-t", help="inference or finetune.", rich_help_panel=_FIT)
    ] = None,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="The target: a profile's name or file.", rich_help_panel=_FIT)
    ] = None,
    min_headroom: Annotated[
        str | None,
        typer.Option("--min-headroom", metavar="SHARE", help="Memory to keep free: 10%.", rich_help_panel=_FIT),
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", rich_help_panel=_FIT)] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", rich_help_panel=_FIT)] = None,
    gpu_memory: Annotated[str | None, typer.Option("--gpu-memory", metavar="SIZE", rich_help_panel=_FIT)] = None,
    host_memory: Annotated[str | None, typer.Option("--host-memory", metavar="SIZE", rich_help_panel=_FIT)] = None,
    strategy: Annotated[str | None, typer.Option("--strategy", rich_help_panel=_FIT)] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="auto, full, lora or qlora.", rich_help_panel=_FIT)
    ] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", rich_help_panel=_FIT)] = None,
    global_batch_size: Annotated[int | None, typer.Option("--global-batch-size", rich_help_panel=_FIT)] = None,
    seq_len: Annotated[int | None, typer.Option("--seq-len", rich_help_panel=_FIT)] = None,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", rich_help_panel=_FIT)] = None,
    precision: Annotated[str | None, typer.Option("--precision", rich_help_panel=_FIT)] = None,
    quantization: Annotated[str | None, typer.Option("--quantization", rich_help_panel=_FIT)] = None,
) -> None:
    """Find what will crash or not fit before it runs: scripts, configs, launch lines and plans, never run or imported.

    Exit code 0 when nothing is found (information fails nothing), 1 for errors and warnings, 2 for bad input.
    """
    from advisor.check.checking import Request
    from advisor.check.configured import share
    from advisor.errors import InputError
    from advisor.report.findings import FORMATS

    form = "json" if json_output else form
    if form not in FORMATS:
        raise InputError("--format", "is not known", found=form, expected=f"one of {', '.join(FORMATS)}")
    if yes and not fix:
        raise InputError("--yes", "answers what --fix asks", expected="--fix --yes")
    if fix and diff:
        raise InputError("--diff", "writes nothing and --fix writes", expected="one of the two")
    if fix and not yes and not sys.stdin.isatty():
        raise InputError(
            "--fix", "asks before it writes, and nobody is there to answer", expected="--fix --yes, or --diff"
        )
    job = {
        "strategy": strategy,
        "method": method,
        "batch_size": batch_size,
        "global_batch_size": global_batch_size,
        "seq_len": seq_len,
        "max_new_tokens": max_new_tokens,
        "precision": precision,
        "quantization": quantization,
    }
    job = {name: value for name, value in job.items() if value is not None}
    if model is None and (task is not None or job):
        raise InputError("--model", "is missing", expected="the model that the other flags are about")
    if model is not None and task is None:
        raise InputError("--task", "is missing", expected="--task inference or --task finetune")
    request = Request(
        paths=tuple(paths or ()),
        select=select,
        ignore=tuple(ignore or ()),
        exclude=tuple(exclude or ()),
        strict=strict,
        plan=plan,
        hardware=hardware,
        min_headroom=None if min_headroom is None else share("--min-headroom", min_headroom),
        question={"model": model, "task": task, **job} if model is not None else {},
        machine={"gpus": gpus, "nodes": nodes, "gpu_memory": gpu_memory, "host_memory": host_memory},
    )
    failed = _diff(request) if diff else _report(request, form, output, fix=fix, yes=yes)
    raise typer.Exit(1 if failed and not exit_zero else 0)


def _report(request: Request, form: str, output: Path | None, *, fix: bool, yes: bool) -> bool:
    """Check, mend if asked to, and report what is left. Whether the check fails."""
    from advisor.check.checking import check
    from advisor.report.findings import render

    checked = check(request)
    if fix and _fix(checked, ask=not yes):
        checked = check(request)
    if output is not None:
        from advisor.files import write_whole
        from advisor.report.findings.words import counted

        write_whole(output, render(checked, form))
        typer.echo(f"{counted(checked)}; written to {output}", err=True)
    elif form == "text" and sys.stdout.isatty():
        from rich.console import Console

        from advisor.report.findings.terminal import show

        show(checked, Console())
    else:
        _print(render(checked, form))
    return checked.failed


def _print(text: str) -> None:
    """Write a report to stdout. Raises InputError for a full disk behind it; a reader that went away is main's matter."""
    from advisor.errors import InputError

    try:
        typer.echo(text, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError("stdout", f"cannot be written ({error.strerror})", expected="room for the report") from error


def _fix(checked: Checked, *, ask: bool) -> bool:
    """Show the diff, ask, write. Whether anything was written. All on stderr: the report has stdout to itself."""
    from advisor.check import fixing

    files = fixing.fixed(checked.findings)
    if not files:
        typer.echo("Nothing that can be fixed safely.", err=True)
        return False
    typer.echo(fixing.diff(files), err=True, nl=False)
    many = f"{len(files)} file{'s' if len(files) != 1 else ''}"
    if ask and not typer.confirm(f"Write {many}?", err=True):
        return False
    for file in files:
        fixing.write(file)
    typer.echo(f"{many} written.", err=True)
    return True


def _diff(request: Request) -> bool:
    """The safe fixes as a patch on stdout, the count of findings on stderr. Whether the check fails."""
    from advisor.check import fixing
    from advisor.check.checking import check
    from advisor.report.findings.words import counted

    checked = check(request)
    files = fixing.fixed(checked.findings)
    _print(fixing.diff(files))
    mended = len({id(finding) for file in files for finding in file.findings})
    typer.echo(f"{counted(checked)}, {mended} of them fixed by this diff", err=True)
    return checked.failed
