"""``advisor report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    plan: Annotated[Path, typer.Argument(help="A plan that `advisor recommend` wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The HTML file; default: beside the plan.")
    ] = None,
    records: Annotated[
        list[Path] | None, typer.Option("--records", help="Run records to look among; default: your own runs.")
    ] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes/--no-sizes", help="Predict memory at other batch sizes and lengths, too.")
    ] = True,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write a plan as one self-contained HTML page: memory, layers, time, the path of the decision.

    Exit code 0 when it was written, 2 for bad input.
    """
    from advisor.archive import archive_path
    from advisor.curves import Curve, curves
    from advisor.errors import InputError
    from advisor.files import write_whole
    from advisor.plan import read_plan
    from advisor.record import read_records
    from advisor.report.page.answer import of_plan
    from advisor.report.page.page import render
    from advisor.report.progress import working

    read = read_plan(plan)
    target = output or plan.with_suffix(".html")
    if target.resolve() == plan.resolve():
        raise InputError("--output", "is the plan itself", found=str(target), expected="the name of an HTML file")
    if target.is_dir():
        raise InputError("--output", "is a folder", found=str(target), expected="the name of an HTML file")
    files = records or [path for path in (archive_path(),) if path.is_file()]
    known = [record for path in files for record in read_records(path)]
    found: tuple[Curve, ...] = ()
    if sizes:
        from advisor.planning import spec_of

        with working("predicting other sizes") as say:
            found = curves(spec_of(read), read.hardware, read.main.job, say)
    write_whole(target, render(of_plan(read, found), str(plan), known))
    typer.echo(str(target))
    if open_it:
        import webbrowser

        webbrowser.open(target.absolute().as_uri())
