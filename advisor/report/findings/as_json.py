"""The stable JSON form of a check. Fields are added, never renamed or removed, while ``version`` is 1."""

from __future__ import annotations

import json
from typing import Any

from advisor import __version__
from advisor.check.checked import SEVERITIES, Checked
from advisor.report.findings.words import clean, shown_path


def value(checked: Checked) -> dict[str, Any]:
    """The object: ``findings``, ``summary`` and, with --strict, ``doubts``.

    ``path`` is null for a finding of the fit half without a file; ``line`` and ``column`` count from 1 and are null
    where there is no place; ``fix`` is null where there is no advice; ``fixable`` says that ``--fix`` can do it.
    """
    result: dict[str, Any] = {
        "format": "advisor-check",
        "version": 1,
        "advisor_version": __version__,
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity,
                "path": shown_path(finding.path) or None,
                "line": finding.line or None,
                "column": finding.column or None,
                "message": clean(finding.message),
                "fix": clean(finding.fix) if finding.fix else None,
                "fixable": bool(finding.edits),
            }
            for finding in checked.findings
        ],
        "summary": {
            "files": checked.files,
            **{f"{name}s" if name != "info" else name: checked.count(name) for name in SEVERITIES},
            "fixable": sum(bool(finding.edits) for finding in checked.findings),
            "failed": checked.failed,
            "fit": list(checked.fits),
        },
    }
    if checked.strict:
        result["doubts"] = [
            {
                "code": doubt.code,
                "path": shown_path(doubt.path) or None,
                "line": doubt.line or None,
                "message": clean(doubt.message),
            }
            for doubt in checked.doubts
        ]
    return result


def render(checked: Checked) -> str:
    """The object as text."""
    return json.dumps(value(checked), indent=2) + "\n"
