"""``advisor models``."""

from __future__ import annotations

from typing import Annotated

import typer


def models(
    filter_text: Annotated[
        str | None, typer.Argument(metavar="[FILTER]", help="Only names or families that contain this, in any case.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the list as JSON, configs included.")] = False,
) -> None:
    """List the models that are known without a download.

    Exit code 2 when none matches.
    """
    import json

    from advisor.errors import InputError
    from advisor.models.known import nearest, search
    from advisor.report import models as report

    entries = search(filter_text or "")
    if not entries:
        near = ", ".join(nearest(filter_text or ""))
        raise InputError("FILTER", "matches no model", found=filter_text, expected=near or "a part of a model's name")
    if json_output:
        typer.echo(json.dumps([report.as_json(entry) for entry in entries], indent=2))
    else:
        report.show(entries)
