"""``advisor schema``."""

from __future__ import annotations

from typing import Annotated

import typer

KINDS = ("plan", "result", "profile", "record")


def schema(
    kind: Annotated[str, typer.Argument(help=f"Which format: {', '.join(KINDS)}.")],
) -> None:
    """Print the JSON Schema of a format: plan.json, what --json prints, a hardware profile, or a run record."""
    import json

    typer.echo(json.dumps(schema_of(kind), indent=2))


def schema_of(kind: str) -> dict[str, object]:
    """The JSON Schema of one of :data:`KINDS`. Raises InputError for another."""
    from advisor.errors import InputError

    if kind not in KINDS:
        raise InputError("schema", "is not known", found=kind, expected=f"one of {', '.join(KINDS)}")
    from pydantic import BaseModel

    from advisor.hardware.profile import HardwareProfile
    from advisor.plan import Plan
    from advisor.record import RunRecord
    from advisor.report.result import Recommendation

    forms: dict[str, type[BaseModel]] = {
        "plan": Plan, "result": Recommendation, "profile": HardwareProfile, "record": RunRecord,
    }  # fmt: skip
    return forms[kind].model_json_schema()
