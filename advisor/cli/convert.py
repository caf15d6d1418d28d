"""``advisor convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    checkpoint: Annotated[Path, typer.Argument(help="A ZeRO checkpoint, an adapter, or a trained model's folder.")],
    out: Annotated[Path, typer.Argument(help="The model folder to make; must not exist, or be empty.")],
    base: Annotated[
        str | None,
        typer.Option("--base", help="The model trained from: config, tokenizer, and what adapters merge into."),
    ] = None,
    keep_adapters: Annotated[
        bool, typer.Option("--keep-adapters", help="Write adapters as adapters instead of merging them.")
    ] = False,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="bf16, fp16 or fp32; default: as the config says.")
    ] = None,
    max_shard_size: Annotated[
        str, typer.Option("--max-shard-size", metavar="SIZE", help="Of one file; RAM grows with it.")
    ] = "2GiB",
    force: Annotated[bool, typer.Option("--force", help="Try it although RAM or disk look short.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Turn a training checkpoint into a plain safetensors model folder, ready to be loaded anywhere.

    Tensors are read, written and dropped file by file; what is written is read back and compared with the model that the
    config describes. Exit code 1 when that fails or RAM or disk are short, 2 for bad input.
    """
    from advisor.errors import InputError
    from advisor.execute.convert.run import Options
    from advisor.execute.convert.run import convert as run
    from advisor.report.run import show_conversion
    from advisor.units import parse_size

    if dtype not in (None, "bf16", "fp16", "fp32"):
        raise InputError("--dtype", "is not known", found=dtype, expected="bf16, fp16 or fp32")
    try:
        shard = parse_size(max_shard_size)
    except ValueError as error:
        raise InputError("--max-shard-size", str(error)) from error
    options = Options(base=base, keep_adapters=keep_adapters, dtype=dtype, shard=shard, force=force)
    show_conversion(run(checkpoint, out, options, lambda text: typer.echo(text, err=True)), json_output)
