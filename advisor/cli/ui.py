"""``advisor ui``."""

from __future__ import annotations

from typing import Annotated

import typer


def ui(
    port: Annotated[int, typer.Option("--port", help="On 127.0.0.1; 0 takes any free one.")] = 0,
    open_it: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Ask by form in the browser: a local page that redraws the report. Ctrl-C ends it.

    Only this machine reaches it, and only with the token in the address that is printed.
    """
    from advisor.report.ui.serve import serve

    def ready(address: str) -> None:
        typer.echo(address)
        if open_it:
            import webbrowser

            webbrowser.open(address)

    serve(port, ready)
