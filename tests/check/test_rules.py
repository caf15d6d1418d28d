"""Every rule finds its bad fixtures, and nothing else; it is silent on the good ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.check.engine import lint
from advisor.check.rules import RULES
from advisor.check.settings import Hardware, Settings

FIXTURES = Path(__file__).parent / "fixtures"
FOLDERS = sorted(path for path in FIXTURES.glob("*/*") if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_fixture(folder: Path) -> None:
    found = lint([folder], Settings(root=folder)).findings
    codes = {finding.code for finding in found}
    assert codes == ({folder.parent.name} if folder.name.startswith("bad") else set()), found
    assert all(finding.line > 0 and finding.message and finding.fix for finding in found)


def test_every_rule_has_good_and_bad_fixtures() -> None:
    for rule in RULES:
        kinds = {path.name.split("_")[0] for path in (FIXTURES / rule.code).iterdir()}
        assert {"bad", "good"} <= kinds, rule.code


def test_rules_are_told_apart_and_explain_themselves() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.what and rule.why and rule.fix and rule.since for rule in RULES)


def test_hardware_of_the_target_decides(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}')
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    v100 = Hardware(name="v100", compute_capability=(7, 0), gpus=4)
    h100 = Hardware(name="h100", compute_capability=(9, 0), gpus=8)
    codes = [one.code for one in lint([tmp_path], Settings(root=tmp_path, hardware=v100)).findings]
    assert codes == ["ADV206", "ADV504"]
    assert lint([tmp_path], Settings(root=tmp_path, hardware=h100)).findings == ()
