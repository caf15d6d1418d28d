"""Progress on stderr, for people alone: a pipe, a dumb terminal and ``--quiet`` get none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A turning mark with ``what`` on stderr while the block runs; what is yielded changes its words."""
    if not shown():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield status.update


def shown() -> bool:
    """Whether stderr is a terminal that can move its cursor, and nobody asked for quiet."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "ADVISOR_QUIET" not in os.environ
