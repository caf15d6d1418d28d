"""What every command shares on its way out: ``--quiet`` and ``--verbose``, and streams that cannot say every letter."""

from __future__ import annotations

import codecs
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

# What stands for letters that a code page lacks (Windows' cp1252 and cp437, or plain ASCII), so that nothing is lost
# that matters and nothing ever fails.
_PLAIN = {
    "≤": "<=", "≥": ">=", "→": "->", "…": "...", "·": ".", "±": "+/-", "–": "-", "—": "-", "×": "x", "»": ">>", "µ": "u",
    "“": '"', "”": '"', "‘": "'", "’": "'", "█": "#", "✓": "ok", "✗": "x", "•": "*",
}  # fmt: skip
_BOXES = {"─": "-", "━": "-", "│": "|", "┃": "|", "╭": "+", "╮": "+", "╯": "+", "╰": "+", "═": "="}
_HANDLER = "advisor-plain"


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter) or _BOXES.get(letter) or _other(letter) for letter in text), error.end


def _other(letter: str) -> str:
    return "+" if "─" <= letter <= "╿" else "?"


def prepare_streams() -> None:
    """Make stdout and stderr write plain letters for those that their encoding lacks."""
    codecs.register_error(_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and not encoding.startswith("utf"):
            reconfigure(errors=_HANDLER)


def with_level(command: Callable[..., None]) -> Callable[..., None]:
    """The command with ``--quiet`` and ``--verbose`` beside its own options."""
    own = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(*args: Any, quiet: bool, verbose: bool, **kwargs: Any) -> None:
        from advisor.report.progress import Level, set_level

        if quiet and verbose:
            from advisor.errors import InputError

            raise InputError("--quiet", "cannot go with --verbose", expected="one of them")
        set_level(Level.QUIET if quiet else Level.VERBOSE if verbose else Level.USUAL)
        command(*args, **kwargs)

    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])
        for name, option in (
            ("quiet", typer.Option("--quiet", help="The result alone, as short as it goes.")),
            ("verbose", typer.Option("--verbose", help="Say what takes time, and where errors come from.")),
        )
    ]
    signature = own.replace(parameters=[*own.parameters.values(), *added])
    run.__signature__ = signature  # type: ignore[attr-defined]  # what typer reads
    run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return run
