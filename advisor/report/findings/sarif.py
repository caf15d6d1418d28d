"""SARIF 2.1.0 (OASIS), with what GitHub's code scanning reads: rules with help, levels, places and fingerprints.

Paths are relative to the folder that the check ran in, which a repository's workflow makes its root; one that lies
outside is an absolute file URI.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from advisor import __version__
from advisor.check.checked import Checked
from advisor.check.fit.codes import FitRule
from advisor.check.types import Finding, Rule
from advisor.report.findings.words import clean, from_here

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render(checked: Checked) -> str:
    """The log: one run, every rule that was asked, one result a finding. Doubts are notifications of the tool."""
    rules = sorted(checked.rules.values(), key=lambda rule: rule.code)
    index = {rule.code: number for number, rule in enumerate(rules)}
    seen: Counter[str] = Counter()
    invocation: dict[str, Any] = {"executionSuccessful": True}
    if checked.doubts:
        invocation["toolExecutionNotifications"] = [
            {
                "level": "note",
                "message": {"text": f"{doubt.code} cannot tell: {clean(doubt.message)}"},
                "locations": [_location(doubt.path, doubt.line, 0)],
            }
            for doubt in checked.doubts
        ]
    run = {
        "tool": {
            "driver": {
                "name": "advisor",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, index, seen) for finding in checked.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: Rule | FitRule) -> dict[str, Any]:
    help_text = f"{rule.why}\n\nFix: {rule.fix}\n\nSince: {rule.since}"
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.replace("-", " ").split()),
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, index: Mapping[str, int], seen: Counter[str]) -> dict[str, Any]:
    text = finding.message + (f"\nfix: {finding.fix}" if finding.fix else "")
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": clean(text)},
    }
    if finding.code in index:
        result["ruleIndex"] = index[finding.code]
    if finding.path:
        result["locations"] = [_location(finding.path, finding.line, finding.column)]
    # The line is left out on purpose: a finding stays the same one when lines above it come and go.
    same = f"{finding.code}\n{clean(finding.path)}\n{clean(finding.message)}"
    seen[same] += 1
    digest = hashlib.sha256(f"{same}\n{seen[same]}".encode()).hexdigest()[:32]
    result["partialFingerprints"] = {"advisorFinding/v1": digest}
    return result


def _location(path: str, line: int, column: int) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(path)}
    if line:
        place["region"] = {"startLine": line, **({"startColumn": column} if column else {})}
    return {"physicalLocation": place}


def _artifact(path: str) -> dict[str, str]:
    relative = from_here(path)
    if relative is None:
        return {"uri": f"file://{quote(Path(path).resolve().as_posix(), errors='surrogateescape')}"}
    return {"uri": quote(relative, errors="surrogateescape"), "uriBaseId": "%SRCROOT%"}
