"""``advisor check`` as people and CI call it: exit codes, bad input, formats and files, fixes, and what is not imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from advisor.check.codes import all_rules
from advisor.cli import app
from advisor.errors import AdvisorError

ROOT = Path(__file__).parents[2]
GOOD = "import torch\n\nprint(torch.__version__)\n"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def failed(*arguments: str | Path) -> str:
    """The sentence of a run that ends with exit code 2."""
    result = run(*arguments)
    assert isinstance(result.exception, AdvisorError), result.output
    assert result.exception.exit_code == 2
    return str(result.exception)


def process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "advisor", "check", *arguments],
        cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of its own with one right script, as the current folder."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_clean_is_zero(folder: Path) -> None:
    for arguments in ((), (".",), ("train.py",), (folder,)):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (0, "nothing found in 1 file.\n")


def test_an_empty_folder_is_clean(folder: Path) -> None:
    (folder / "train.py").unlink()
    assert run().stdout == "nothing found in 0 files.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone.py"], "gone.py: cannot be checked (No such file or directory)"),
        (["--select", "ADV9O1"], "--select: is no code, found 'ADV9O1'; expected near: ADV9"),
        (["--ignore", "ADV901,XYZ"], "--ignore: is no code, found 'XYZ'"),
        (["--format", "xml"], "--format: is not known, found 'xml'; expected one of text, json, sarif, junit, github"),
        (["--yes"], "--yes: answers what --fix asks"),
        (["--fix", "--diff"], "--diff: writes nothing and --fix writes"),
        (["--fix"], "--fix: asks before it writes, and nobody is there to answer"),
        (["--min-headroom", "lots"], "--min-headroom: is no share of memory, found 'lots'"),
        (["--plan", "gone.json"], "gone.json: cannot be read (No such file or directory)"),
        (["--plan", "train.py"], "train.py: is not valid JSON"),
        (["--model", "openai-community/gpt2"], "--task: is missing"),
        (["--task", "inference"], "--model: is missing"),
        (["--seq-len", "12"], "--model: is missing"),
        (["--model", "openai-community/gpt2", "--task", "inference"], "--hardware: is missing; expected the machine"),
        (["--hardware", "h2000"], "--hardware: is no profile and no file, found 'h2000'"),
        (["--output", "train.py/report.json"], "train.py/report.json: cannot be written"),
    ],
)
def test_bad_input_is_two_and_one_sentence(folder: Path, arguments: list[str], said: str) -> None:
    sentence = failed(*arguments)
    assert said in sentence and "\n" not in sentence


def test_a_wrong_setting_is_two(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.advisor.check]\nselect = ['ADV9', 'NOPE']\n")
    assert "pyproject.toml: select: is no code, found 'NOPE'" in failed(".")
    (folder / "pyproject.toml").write_text("[tool.advisor.check.per-file-ignores]\n'*.py' = ['NOPE']\n")
    assert "per-file-ignores.\"*.py\": is no code, found 'NOPE'" in failed(".")
    (folder / "pyproject.toml").write_text("[tool.advisor.check]\nhardwear = 'h200'\n")
    assert "expected hardware?" in failed(".")


def test_linting_imports_nothing_heavy_and_opens_no_socket(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.advisor]\nselect = ['ADV']\n")
    script = """
import socket, sys
def refuse(*args, **kwargs): raise AssertionError("a socket")
socket.socket.connect = refuse
from advisor.cli import app
app(["check", ".", "--strict", *sys.argv[1:]], standalone_mode=False)
heavy = {"torch", "transformers", "accelerate", "deepspeed", "peft", "numpy", "huggingface_hub"}
print("heavy:", sorted(heavy & set(sys.modules)))
"""
    for form in ("text", "json", "sarif", "junit", "github"):
        done = subprocess.run(
            [sys.executable, "-c", script, "--format", form, "--exit-zero"],
            cwd=folder, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert done.stdout.endswith("heavy: []\n")


def test_the_action_installs_what_linting_imports(folder: Path) -> None:
    """What the action installs without torch is enough: no other distribution is imported by a lint run."""
    script = """
import importlib.metadata, json, sys
from advisor.cli import app
for form in ("text", "json", "sarif", "junit", "github"):
    app(["check", ".", "--format", form, "--output", f"out.{form}"], standalone_mode=False)
owners = importlib.metadata.packages_distributions()
tops = {name.split(".")[0] for name in sys.modules}
print(json.dumps(sorted({dist.lower() for top in tops for dist in owners.get(top, [])} - {"advisor"})))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    install = next(step["run"] for step in action["runs"]["steps"] if step.get("name") == "Install advisor")
    light = next(line for line in install.splitlines() if "libcst" in line)
    named = {word.lower() for word in light.split("--quiet")[1].split()}
    assert imported - _required(named) == set(), "the action's light install lacks these"


def _required(names: set[str]) -> set[str]:
    """``names`` with what they depend on, by the installed metadata; start-up hooks of this environment count as there."""
    import importlib.metadata
    import re

    found: set[str] = set()
    todo = {*names, "setuptools"}
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        todo |= {re.split(r"[\s;<>=!~\[(]", need)[0].lower() for need in needs if "extra ==" not in need}
    return found | {name.replace("-", "_") for name in found}


def test_the_actions_script_runs_with_names_that_would_break_a_shell(folder: Path) -> None:
    """The action's own step, run by bash with inputs as variables."""
    odd = folder / "a b; touch hacked $(touch hacked)"
    odd.mkdir()
    (odd / "-x.py").write_text(GOOD)
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = next(step for step in action["runs"]["steps"] if step.get("name") == "Check")
    assert "${{" not in step["run"], "inputs reach the script as variables, never as its text"
    inputs = {name: spec.get("default", "") for name, spec in action["inputs"].items()}
    inputs |= {"paths": f"{odd.name}\ntrain.py\n", "sarif": "out/advisor.sarif", "ignore": "ADV9", "strict": "true"}
    variables = {name: inputs[text.split("inputs.")[1].split(" ")[0]] for name, text in step["env"].items()}
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder, env=os.environ | variables | {"PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    log = json.loads((folder / "out" / "advisor.sarif").read_text())
    assert log["runs"][0]["results"] == []
    assert not (folder / "hacked").exists()


def test_the_hooks_start_a_command_that_is_there() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {hook["id"] for hook in hooks} == {"advisor-check", "advisor-check-system"}
    for hook in hooks:
        assert hook["entry"] == "advisor check"
        assert hook["pass_filenames"] is False  # findings lie in how files combine
        assert {"name", "language", "types_or"} <= set(hook)


def test_reports_go_to_a_file_whole_and_stdout_stays_empty(folder: Path) -> None:
    done = process("--format", "sarif", "--output", "deep/er/report.sarif", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert "written to deep/er/report.sarif" in done.stderr
    assert json.loads((folder / "deep/er/report.sarif").read_text())["version"] == "2.1.0"


def test_a_device_is_written_into_and_never_replaced(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with subprocess.Popen(["cat", "pipe"], cwd=folder, stdout=subprocess.PIPE) as reader:
        done = process("--json", "--output", "pipe", cwd=folder)
        out, _ = reader.communicate(timeout=60)
    assert done.returncode == 0 and json.loads(out)["format"] == "advisor-check"
    assert not (folder / "pipe").is_file()


def test_a_full_disk_is_one_sentence(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "advisor", "check"],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2 and done.stderr.startswith(
        "advisor: stdout: cannot be written (No space left on device)"
    )


def test_stdout_is_the_report_alone(folder: Path) -> None:
    done = process("--json", cwd=folder)
    assert json.loads(done.stdout)["summary"]["failed"] is False
    assert done.stderr == ""


def test_explain_knows_every_code() -> None:
    for code in all_rules():
        result = CliRunner().invoke(app, ["explain", code.lower()])
        assert result.exit_code == 0 and result.stdout.startswith(f"{code}  "), code
        assert "why " in result.stdout and "fix " in result.stdout and "since " in result.stdout
    result = CliRunner().invoke(app, ["explain", "ADV9O1"])
    assert "near: ADV9" in str(result.exception)


def test_explaining_imports_nothing_heavy() -> None:
    script = (
        "import sys; from advisor.cli import app; app(['explain', 'ADV901'], standalone_mode=False);"
        "print(sorted({'torch', 'transformers', 'libcst', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


BITS = (
    "from transformers import AutoModelForCausalLM\n"
    'm = AutoModelForCausalLM.from_pretrained("m", torch_dtype="auto", device_map="auto", max_memory={0: "20gb"})\n'
)


def asked(folder: Path, answer: str) -> tuple[int, str]:
    """``advisor check --fix`` on a terminal, with ``answer`` typed; its exit code and what the terminal showed."""
    import pty

    parent, child = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "advisor", "check", "--fix"], cwd=folder, stdin=child, stdout=child, stderr=child
    ) as running:
        os.close(child)
        os.write(parent, answer.encode())
        shown = b""
        try:
            while part := os.read(parent, 4096):
                shown += part
        except OSError:  # the other side is gone: Linux says EIO
            pass
        os.close(parent)
        return running.wait(timeout=60), shown.decode()


def test_fix_shows_the_diff_asks_and_writes_on_yes(folder: Path) -> None:
    script = folder / "train.py"
    script.write_text(BITS)
    script.chmod(0o755)
    code, shown = asked(folder, "n\n")
    assert (code, script.read_text()) == (1, BITS)
    assert '+m = AutoModelForCausalLM.from_pretrained("m"' in shown and "Write 1 file? [y/N]" in shown
    assert "ADV401" in shown  # still there
    code, shown = asked(folder, "y\n")
    assert (code, script.read_text()) == (0, BITS.replace("20gb", "20GB"))
    assert "1 file written." in shown and script.stat().st_mode & 0o777 == 0o755


def test_fix_yes_does_not_ask_and_the_report_has_stdout_to_itself(folder: Path) -> None:
    (folder / "train.py").write_text(BITS)
    done = process("--fix", "--yes", "--json", cwd=folder)
    assert done.returncode == 0 and "+m = " in done.stderr
    summary = json.loads(done.stdout)["summary"]
    assert summary["warnings"] == summary["errors"] == 0
    assert "20GB" in (folder / "train.py").read_text()


def test_diff_is_a_patch_and_writes_nothing(folder: Path) -> None:
    (folder / "train.py").write_text(BITS)
    done = process("--diff", cwd=folder)
    assert (done.returncode, (folder / "train.py").read_text()) == (1, BITS)
    assert done.stdout.startswith("--- a/train.py\n+++ b/train.py\n")
    assert "1 warning in 1 file, 1 of them fixed by this diff" in done.stderr
    subprocess.run(["git", "apply", "-"], input=done.stdout, text=True, cwd=folder, check=True)
    assert process(cwd=folder).returncode == 0


def test_findings_are_one_and_exit_zero_is_zero(folder: Path) -> None:
    (folder / "train.py").write_text(BITS)
    assert run().exit_code == 1
    assert run("--exit-zero").exit_code == 0
    assert "train.py:2:101: warning ADV401" in run().stdout


def test_select_and_ignore_on_the_command_line_and_in_the_file(folder: Path) -> None:
    (folder / "train.py").write_text(BITS)
    assert run("--select", "ADV4").exit_code == 1
    assert run("--select", "ADV1,ADV2").exit_code == run("--ignore", "ADV401").exit_code == 0
    (folder / "pyproject.toml").write_text("[tool.advisor]\nignore = ['ADV401']\n")
    assert run().exit_code == 0
    (folder / "pyproject.toml").write_text("[tool.advisor.check]\nselect = ['ADV1']\n")
    assert run().exit_code == 0 and run("--select", "ADV401").exit_code == 1
    (folder / "pyproject.toml").write_text("[tool.advisor.check.per-file-ignores]\n'tr*.py' = ['ADV4']\n")
    assert run().exit_code == 0
    (folder / "pyproject.toml").write_text("[tool.advisor.check]\nexclude = ['train.py']\n")
    assert run().exit_code == 0


def test_a_comment_silences_one_line(folder: Path) -> None:
    (folder / "train.py").write_text(BITS.rstrip() + "  # advisor: ignore[ADV401] measured\n")
    assert run().exit_code == 0


def test_the_reports_name_the_rule(folder: Path) -> None:
    (folder / "train.py").write_text(BITS)
    log = json.loads(run("--format", "sarif").stdout)["runs"][0]
    (result,) = log["results"]
    rule = log["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], rule["name"]) == ("ADV401", "MaxMemoryUnits") and "max_memory" in rule["shortDescription"][
        "text"
    ]
    assert run("--format", "github").stdout.startswith(
        "::warning file=train.py,line=2,col=101,title=ADV401 max-memory-units::"
    )


def test_this_repository_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = run("--json")
    assert result.exit_code == 0, result.stdout
    assert json.loads(result.stdout)["summary"]["files"] > 300
