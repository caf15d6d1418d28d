"""``advisor explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    what: Annotated[str | None, typer.Argument(help="A rule's or lint code, or the path of a plan.")] = None,
    why_not: Annotated[
        str | None, typer.Option("--why-not", metavar="STRATEGY", help="With a plan: why not this strategy or way.")
    ] = None,
    facts: Annotated[bool, typer.Option("--facts", help="List the facts that rules may ask about.")] = False,
    rules: Annotated[Path | None, typer.Option("--rules", help="A folder of rules laid over ours.")] = None,
) -> None:
    """Explain a rule or lint code, or the decision in a plan."""
    from advisor import explaining
    from advisor.errors import InputError

    if facts:
        typer.echo(explaining.facts_table())
        return
    if what is None:
        raise InputError("explain", "nothing to explain", expected="a code such as FIN030, a plan.json, or --facts")
    if what.endswith(".json") or Path(what).is_file():
        typer.echo(explaining.explain_plan(Path(what), why_not, rules))
        return
    if why_not is not None:
        raise InputError("--why-not", "belongs to a plan", found=what, expected="advisor explain plan.json --why-not …")
    typer.echo(explaining.explain_code(what, rules))
