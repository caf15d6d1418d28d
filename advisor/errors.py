"""The errors a user can meet. Each is one sentence; the command line prints it and exits with ``exit_code``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class AdvisorError(Exception):
    """Base of everything the command line turns into one line on stderr instead of a traceback."""

    exit_code = 2


class InputError(AdvisorError):
    """Something the user gave is wrong.

    ``where`` is the file or flag, ``field`` the place inside it, ``found`` what stood there and ``expected`` what would
    be right. The message is composed from them so that no caller forgets one.
    """

    def __init__(self, where: str, problem: str, *, field: str = "", found: object = None, expected: str = "") -> None:
        self.where, self.problem, self.field, self.found, self.expected = where, problem, field, found, expected
        text = f"{where}: "
        if field:
            text += f"{field}: "
        text += problem
        if found is not None:
            text += f", found {found!r}"
        if expected:
            text += f"; expected {expected}"
        super().__init__(text)


class RunError(AdvisorError):
    """A run started but did not end well (out of memory, dead rank, time limit)."""

    exit_code = 1


def explain_validation(where: str, error: ValidationError) -> InputError:
    """One clear sentence of pydantic's first complaint: file, field, what was found."""
    first = error.errors(include_url=False)[0]
    found = first.get("input")
    shown = found if isinstance(found, (str, int, float, bool)) or found is None else type(found).__name__
    message = first["msg"][:1].lower() + first["msg"][1:]
    missing = first["type"] == "missing"
    return InputError(
        where,
        "is missing" if missing else message,
        field=".".join(str(part) for part in first["loc"]),
        found=None if missing else shown,
    )
