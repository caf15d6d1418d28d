"""``advisor validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="RUNS.jsonl...", help="Files of run records.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print runs and summary as JSON.")] = False,
    readme: Annotated[
        Path | None, typer.Option("--readme", help="Write the summary between the markers of this file, too.")
    ] = None,
) -> None:
    """Predict runs that were measured and show both, worst first, with a summary.

    Exit code 0 when every bar is met, 1 when one is missed or a run could not be predicted, 2 for bad input.
    """
    import json

    from rich.console import Console
    from rich.progress import track

    from advisor.record import read_records
    from advisor.report import progress
    from advisor.report import validation as report
    from advisor.validate.runs import Predictor
    from advisor.validate.validation import read_reasons, score_runs

    records = [record for path in files for record in read_records(path)]
    messages = Console(stderr=True)
    for name in sorted({field for record in records for field in record.unknown_fields}):
        messages.print(f"unknown field ignored: {name}", markup=False)
    predictor = Predictor.ours()
    shown = track(records, "predicting", console=messages, disable=not progress.shown())
    result = score_runs([predictor.run(record) for record in shown], read_reasons(files))
    if readme is not None:
        report.write_readme(result, readme)
    if json_output:
        typer.echo(json.dumps(result.as_json(), indent=2))
    else:
        report.show(result, Console(width=None if Console().is_terminal else 160))
    raise typer.Exit(0 if result.met else 1)
