"""The kinds of reported faults in many spellings (scripts, configs and launch lines), and right code beside them: each finds
what it is about and nothing else, errors and information alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.check.engine import lint
from advisor.check.settings import Settings

DATA: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "spellings.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", DATA["cases"])
def test_spelling(name: str, tmp_path: Path) -> None:
    case = DATA["cases"][name]
    for file, text in case["files"].items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else DATA["shared"][text["same"]], encoding="utf-8")
    found = lint([tmp_path], Settings(root=tmp_path)).findings
    assert sorted(finding.code for finding in found) == sorted(case["expected"]), found
