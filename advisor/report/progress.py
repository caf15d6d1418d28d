"""How much is said beside the result: ``--quiet``, the usual, ``--verbose``. All of it goes to stderr.

Progress is for people alone: a pipe, a dumb terminal and ``--quiet`` get none. What takes time says so through the
logger "advisor"; here its words become a line that turns, or under ``--verbose`` lines that stay.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

_LOG = logging.getLogger("advisor")


class Level(IntEnum):
    """What the user asked for."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2


_level = Level.USUAL


def set_level(level: Level) -> None:
    """For this process, until set again."""
    global _level
    _level = level
    for handler in [handler for handler in _LOG.handlers if isinstance(handler, _Lines)]:
        _LOG.removeHandler(handler)
    _LOG.setLevel(logging.DEBUG if level is Level.VERBOSE else logging.INFO)
    if level is Level.VERBOSE:
        _LOG.addHandler(_Lines())


def level() -> Level:
    """What is set."""
    return _level


def shown() -> bool:
    """Whether progress may be drawn: stderr is a terminal that can move its cursor, and nobody asked for quiet."""
    return _level is not Level.QUIET and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A turning mark with ``what`` on stderr while the block runs; what is yielded, and the logger, change its words."""
    if not shown() or _level is Level.VERBOSE:
        yield _LOG.debug
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(what)) as status:
        handler = _Status(lambda text: status.update(escape(f"{what}: {text}")))
        _LOG.addHandler(handler)
        try:
            yield lambda text: status.update(escape(text))
        finally:
            _LOG.removeHandler(handler)


class _Lines(logging.Handler):
    """A line each on whatever stderr is now."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{record.getMessage()}\n")


class _Status(logging.Handler):
    """The last message, in the turning line."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())
