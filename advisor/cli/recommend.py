"""``advisor recommend``."""

from __future__ import annotations

from typing import Annotated

import typer


def recommend(model: Annotated[str, typer.Option("--model")]) -> None:
    """Decide how to run a model on a machine and write plan.json."""
    raise NotImplementedError(model)
