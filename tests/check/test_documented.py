"""Every command that docs/check.md shows is run as it stands there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from advisor.check.configured import KEYS, configured
from advisor.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
BLOCKS = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", PAGE, flags=re.MULTILINE)


def commands() -> list[str]:
    """Indented lines that start with the command, and the ones in running text."""
    indented = re.findall(r"^    (advisor .*)$", PAGE, flags=re.MULTILINE)
    inline = [text.replace("\n", " ") for text in re.findall(r"`(advisor check [^`]*)`", PAGE)]
    return [text for text in (*indented, *inline) if "…" not in text and "--fix" not in text.split()]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "ds_config.json").write_text('{"zero_optimization": {"stage": 2}}\n')
    (tmp_path / "launch.sh").write_text("torchrun --nproc_per_node 2 train.py\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_works(repository: Path) -> None:
    """In the page's order, since a plan is made before it is checked; with a small model in place of the large one."""
    assert len(commands()) > 12
    for text in commands():
        arguments = shlex.split(text.replace("Qwen/Qwen2.5-7B", "openai-community/gpt2"))[1:]
        result = CliRunner().invoke(app, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), f"{text}: {result.exception}"
        assert result.exit_code in (0, 1), f"{text}: {result.output}"
    for file in ("findings.json", "advisor.sarif", "advisor.xml"):
        assert (repository / file).stat().st_size > 0


def test_the_documented_settings_are_read(repository: Path) -> None:
    block = next(block for block in BLOCKS if "[tool.advisor.check]" in block)
    (repository / "pyproject.toml").write_text("\n".join(line[4:] for line in block.splitlines()))
    found = configured([repository])
    assert found.hardware == "h200-x8" and found.per_file_ignores == {"tests/**": ("ADV1",)}
    assert all(key in block for key in KEYS)
    assert CliRunner().invoke(app, ["check"]).exit_code == 0


def test_the_documented_json_has_the_fields_that_are_written(repository: Path) -> None:
    block = next(block for block in BLOCKS if '"advisor-check"' in block)
    shown = json.loads(re.sub(r"//.*", "", block))
    written = json.loads(CliRunner().invoke(app, ["check", "--json", "--strict"]).stdout)
    assert set(shown) == set(written)
    assert set(shown["summary"]) == set(written["summary"])


def test_the_documented_workflows_are_yaml_that_the_action_takes() -> None:
    action = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())
    block = next(block for block in BLOCKS if "OWNER/advisor@" in block)
    steps = yaml.safe_load(block)
    used = next(step for step in steps if "OWNER/advisor" in step["uses"])
    assert set(used["with"]) <= set(action["inputs"])
    hooks = yaml.safe_load(next(block for block in BLOCKS if "hooks:" in block))
    known = {hook["id"] for hook in yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())}
    assert {hook["id"] for repo in hooks["repos"] for hook in repo["hooks"]} <= known
