"""Findings for people: place, severity, code and sentence on one line, the fix below it."""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.text import Text

from advisor.check.checked import Checked
from advisor.check.types import Finding
from advisor.report.findings.words import clean, counted, shown_path

# A file's name or text may hold what steers a terminal; it is shown, not sent.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def render(checked: Checked) -> str:
    """Plain text, for a file or a pipe."""
    out = io.StringIO()
    show(checked, Console(file=out, color_system=None, force_terminal=False))
    return out.getvalue()


def show(checked: Checked, console: Console) -> None:
    """Print to a terminal. Lines are never cut or wrapped here, so that places stay clickable."""
    for finding in checked.findings:
        _say(console, _line(finding))
        if finding.fix:
            _say(console, Text.assemble("    fix: ", _plain(finding.fix)))
    for doubt in checked.doubts:
        place = _place(doubt.path, doubt.line, 0)
        _say(
            console,
            Text.assemble((f"{place} ", "bold"), ("cannot tell", "dim"), f" {doubt.code} {_plain(doubt.message)}"),
        )
    for sentence in checked.fits:
        _say(console, Text(_plain(sentence)))
    _say(console, Text(f"{counted(checked)}.", style="red" if checked.failed else "green"))
    fixable = sum(bool(finding.edits) for finding in checked.findings)
    if fixable:
        _say(console, Text(f"{fixable} can be fixed with --fix (--diff shows how)."))


def _plain(text: str) -> str:
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], clean(text))


def _say(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True, highlight=False)


def _line(finding: Finding) -> Text:
    place = _place(finding.path, finding.line, finding.column)
    return Text.assemble(
        (f"{place} ", "bold") if place else "",
        (finding.severity, _STYLES[finding.severity]),
        " ",
        finding.code,
        f" {_plain(finding.message)}",
    )


def _place(path: str, line: int, column: int) -> str:
    if not path:
        return ""
    return ":".join([_plain(shown_path(path)), *(str(number) for number in (line, column) if number)]) + ":"
