"""Publicly reported faults: each folder holds what was reported as files, and `case.json` what must be found, and nothing
else; variants named ``right`` hold what the right answer says to do instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.check.engine import lint
from advisor.check.settings import Settings

CASES = Path(__file__).parent / "cases"
VARIANTS = [
    (case.parent / variant, expected)
    for case in sorted(CASES.glob("*/case.json"))
    for variant, expected in json.loads(case.read_text())["expected"].items()
]


@pytest.mark.parametrize(
    ("folder", "expected"), VARIANTS, ids=lambda value: "-".join(value.parts[-2:]) if isinstance(value, Path) else ""
)
def test_case(folder: Path, expected: list[str]) -> None:
    found = lint([folder], Settings(root=folder)).findings
    assert sorted(finding.code for finding in found) == sorted(expected), found


def test_the_cases_are_there() -> None:
    assert {folder.parent.name for folder, _ in VARIANTS} == {
        "A01", "A02", "A06", "A07", "A08", "A09", "A11", "B05", "B06", "B07", "C05", "C06", "C18", "C19", "F01", "F03",
    }  # fmt: skip
