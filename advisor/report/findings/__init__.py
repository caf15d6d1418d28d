"""Findings of ``advisor check`` as text, JSON, SARIF, JUnit or GitHub annotations: one module a format."""

from __future__ import annotations

import importlib

from advisor.check.checked import Checked

# Each module has ``render(checked) -> str``; only the one that is asked for is imported.
FORMATS = {"text": "terminal", "json": "as_json", "sarif": "sarif", "junit": "junit", "github": "github"}


def render(checked: Checked, form: str) -> str:
    """The report as text in one of ``FORMATS``."""
    module = importlib.import_module(f"advisor.report.findings.{FORMATS[form]}")
    return str(module.render(checked))
