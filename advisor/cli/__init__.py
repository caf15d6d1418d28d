"""The command line: typer only. Each command sits in its own module: it parses, calls one function, renders.

Command modules import nothing but typer at the top, so that ``advisor --help`` answers in a blink.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

app = typer.Typer(
    name="advisor",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Decide how to load, fine-tune or serve a model on the GPUs you have; then run it and check the prediction.",
)


def _show_version(value: bool) -> None:
    if value:
        from advisor import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


_COMMANDS = (
    "recommend", "explain", "compare", "apply", "convert", "report", "ui", "check", "probe", "validate", "models", "schema",
)  # fmt: skip


def _register() -> None:
    import importlib

    from advisor.cli.output import with_level

    for name in _COMMANDS:
        module = importlib.import_module(f"advisor.cli.{name}")
        app.command(name)(with_level(getattr(module, name)))


_register()


def main() -> None:
    """Entry point: an AdvisorError becomes one line on stderr and its exit code; Ctrl-C exits with 130."""
    from advisor.cli.output import prepare_streams
    from advisor.errors import AdvisorError

    prepare_streams()
    # No model is fetched unless the user allowed it; libraries that look at these must see them before their import.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        app()
    except AdvisorError as error:
        _show_origin(error)
        sys.stderr.write(f"advisor: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("advisor: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) went away: that is no error. Keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _show_origin(error: Exception) -> None:
    """Under ``--verbose``, where an error comes from."""
    from advisor.report.progress import Level, level

    if level() is Level.VERBOSE:
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
