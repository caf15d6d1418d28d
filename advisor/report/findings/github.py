"""GitHub Actions: one workflow command a finding, which the runner turns into an annotation on the changed lines.

Properties escape %, CR, LF, ":" and ","; the message only %, CR and LF
(docs.github.com/actions/reference/workflow-commands-for-github-actions).
"""

from __future__ import annotations

from advisor.check.checked import SEVERITIES, Checked
from advisor.check.types import Finding
from advisor.report.findings.words import clean, from_here, shown_path

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(checked: Checked) -> str:
    """The commands, errors first: GitHub shows no more than ten of a kind a step."""
    ordered = sorted(checked.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    lines = [_command(finding, checked) for finding in ordered]
    lines += [
        f"::notice file={_property(_file(doubt.path))},line={max(1, doubt.line)},"
        f"title={doubt.code} cannot tell::{_data(clean(doubt.message))}"
        for doubt in checked.doubts
    ]
    return "".join(f"{line}\n" for line in lines)


def _command(finding: Finding, checked: Checked) -> str:
    rule = checked.rules.get(finding.code)
    properties = {}
    if finding.path:
        properties["file"] = _file(finding.path)
    if finding.path and finding.line:
        properties["line"] = str(finding.line)
    if finding.path and finding.line and finding.column:
        properties["col"] = str(finding.column)
    properties["title"] = f"{finding.code} {rule.name}" if rule else finding.code
    text = clean(finding.message) + (f"\nfix: {clean(finding.fix)}" if finding.fix else "")
    settings = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{_COMMANDS[finding.severity]} {settings}::{_data(text)}"


def _file(path: str) -> str:
    """Relative to the workspace, or GitHub shows the annotation beside no line."""
    return clean(from_here(path) or shown_path(path))


def _data(text: str) -> str:
    # The percent sign first, or the escapes would be escaped.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
