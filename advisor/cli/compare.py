"""``advisor compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def compare(
    model: Annotated[str, typer.Option("--model", "-m", help="One or more models, with commas between.")],
    task: Annotated[str, typer.Option("--task", "-t", help="inference or finetune.")],
    hardware: Annotated[str, typer.Option("--hardware", help="all, or profiles with commas between.")] = "all",
    method: Annotated[str, typer.Option("--method", help="auto, full, lora or qlora.")] = "auto",
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Micro batch size, a GPU.")] = None,
    global_batch_size: Annotated[int | None, typer.Option("--global-batch-size")] = None,
    seq_len: Annotated[int | None, typer.Option("--seq-len", help="Tokens a sample (prompt, for inference).")] = None,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", help="Tokens to generate.")] = None,
    precision: Annotated[str | None, typer.Option("--precision")] = None,
    quantization: Annotated[str | None, typer.Option("--quantization", help="none, nf4 or int8.")] = None,
    strategy: Annotated[str | None, typer.Option("--strategy", help="Force one strategy.")] = None,
    rules: Annotated[Path | None, typer.Option("--rules", help="A folder of rules laid over ours.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Allow config.json to be fetched from the Hub.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the grid as JSON.")] = False,
    csv_output: Annotated[bool, typer.Option("--csv", help="Print the grid as CSV.")] = False,
) -> None:
    """Compare models and machines: what fits, by which strategy, how fast, with how much to spare.

    Exit code 0 when something fits, 1 when nothing does, 2 for bad input.
    """
    import json

    from advisor import ask
    from advisor import compare as room
    from advisor.errors import InputError
    from advisor.models.resolve import resolve

    if json_output and csv_output:
        raise InputError("--csv", "cannot go with --json", expected="one of them")
    workload = ask.workload(
        task=task,
        method=method,
        batch_size=batch_size,
        global_batch_size=global_batch_size,
        seq_len=seq_len,
        max_new_tokens=max_new_tokens,
        precision=precision,
        quantization=quantization,
        strategy=strategy,
    )
    names = [name.strip() for name in model.split(",") if name.strip()]
    models = [resolve(name, allow_download=download, trust_remote_code=False) for name in names]
    if not models:
        raise InputError("--model", "names no model", found=model, expected="a name, or several with commas between")
    rows = room.compare(models, room.machines(hardware), workload, rules, _say)
    if json_output:
        typer.echo(json.dumps(room.as_json(rows), indent=2))
    elif csv_output:
        typer.echo(room.as_csv(rows), nl=False)
    else:
        from advisor.report.grid import show_grid

        show_grid(rows)
    if not any(row.fits for row in rows):
        raise typer.Exit(1)


def _say(text: str) -> None:
    """Progress, for people alone: a pipe gets none."""
    from advisor.report.progress import shown

    if shown():
        sys.stderr.write(f"{text}\n")
