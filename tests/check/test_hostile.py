"""Odd repositories: whatever lies there, a check ends, says what it could not read, and crashes on nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from advisor.cli import app
from advisor.report.findings import FORMATS

BROKEN = "import torch\ndef broken(:\n"
GOOD = "import torch\n\nprint(torch.__version__)\n"
LAUNCH = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json\n"


def checked(*arguments: str | Path) -> dict[str, Any]:
    """The JSON report of a check that must end with 0 or 1."""
    result = CliRunner().invoke(app, ["check", "--json", "--strict", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_links_in_a_circle_and_to_nowhere(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "up").symlink_to(folder)
    (folder / "self.py").symlink_to(folder / "self.py")
    (folder / "gone.py").symlink_to(folder / "nothing.py")
    (folder / "train.py").write_text(GOOD)
    report = checked(".")
    assert report["summary"]["files"] <= 3 and not report["summary"]["errors"]


@pytest.mark.parametrize("name", [".hidden", "node_modules", "lib/site-packages", "own_environment", "build"])
def test_other_peoples_code_is_read_only_where_it_is_named(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "train.py").write_text(BROKEN)
    (folder / name / "pyvenv.cfg").write_text("home = /usr\n")
    assert checked(".")["summary"]["files"] == 0
    assert [finding["severity"] for finding in checked(name)["findings"]] == ["warning"]
    assert [finding["severity"] for finding in checked(f"{name}/train.py")["findings"]] == ["error"]


def test_what_is_no_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket.py"))
    (folder / "folder.py").mkdir()
    (folder / "folder.py" / "train.py").write_text(GOOD)
    try:
        checked(".")
        named = checked("pipe.py", "socket.py", "/dev/null")["findings"]
        assert [finding["code"] for finding in named] == ["ADV001"] * 3
    finally:
        server.close()


@pytest.mark.parametrize(
    "name", ["a b.py", "-x.py", "ü—é.py", "line\nbreak.py", "tab\t.py", "a;rm -rf $(x).py", "%41:,.py"]
)
def test_odd_names_in_every_format(folder: Path, name: str) -> None:
    (folder / name).write_text(BROKEN)
    for form in FORMATS:
        result = CliRunner().invoke(app, ["check", "--format", form, "--", name])
        assert result.exit_code == 1, result.output
        result.stdout.encode()
    assert checked("--", name)["findings"][0]["path"] == name


def test_a_name_that_is_no_unicode(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    (folder / name).write_text(BROKEN)
    for form in FORMATS:
        result = CliRunner().invoke(app, ["check", "--format", form])
        assert result.exit_code == 1, result.output
    assert checked(".")["findings"][0]["path"] == "caf?.py"


UNREADABLE: dict[str, tuple[bytes, str]] = {
    "binary.py": (bytes(range(256)) * 8, "info"),
    "utf16.py": ("import torch\n".encode("utf-16"), "info"),
    "latin.py": ("import torch  # caf\xe9\n".encode("latin-1"), "info"),
    "nul.py": (b"import torch\x00\n", "warning"),
    "syntax.py": (b"import torch\ndef f(:\n", "warning"),
    "deep.py": (b"import torch\nx = " + b"(" * 5000 + b")" * 5000, "warning"),
    "deep_unary.py": (b"import torch\nx = " + b"-" * 50_000 + b"1\n", "warning"),
    "tabs.py": (b"import torch\nif x:\n\ty = 1\n        z = 2\n", "warning"),
    "ds.json": (b'{"zero_optimization": {"stage": 3}', "warning"),
    "template.yaml": (b"distributed_type: {{ kind }\n- x", "info"),
    "a.ipynb": (b'{"cells": [{"source": "import torch"', "warning"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_a_finding_and_an_error_where_it_was_named(folder: Path, name: str) -> None:
    data, severity = UNREADABLE[name]
    (folder / name).write_bytes(data)
    for path, expected in ((".", severity), (name, "error")):
        (finding,) = checked(path)["findings"]
        assert (finding["code"], finding["path"], finding["severity"]) == ("ADV001", name, expected)
        assert f"{name} was not checked: it " in finding["message"]


def test_a_named_script_without_any_word_of_ours_is_parsed_all_the_same(folder: Path) -> None:
    (folder / "a.py").write_text("x = 1\ndef broken(:\n")
    assert checked(".")["findings"] == []
    (finding,) = checked("a.py")["findings"]
    assert (finding["line"], finding["severity"]) == (2, "error")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the newest forms are no error there")
def test_what_may_be_right_for_a_newer_python_fails_nothing(folder: Path) -> None:
    (folder / "a.py").write_text("import torch\nhello = t'{torch}'\n")
    for path in (".", "a.py"):
        (finding,) = checked(path)["findings"]
        assert (finding["severity"], finding["line"]) == ("info", 2) and "by Python 3." in finding["message"]


def test_where_a_notebook_cannot_be_parsed(folder: Path) -> None:
    cells = [
        {"cell_type": "code", "source": ["import torch\n", "x = 1\n"]},
        {"cell_type": "code", "source": ["def f(:\n"]},
    ]
    text = json.dumps({"cells": cells}, indent=1)
    (folder / "a.ipynb").write_text(text)
    (finding,) = checked(".")["findings"]
    assert finding["line"] == text[: text.index("def f")].count("\n") + 1


READABLE: dict[str, bytes] = {
    "windows.py": GOOD.replace("\n", "\r\n").encode(),
    "old_mac.py": GOOD.replace("\n", "\r").encode(),
    "mark.py": b"\xef\xbb\xbf" + GOOD.encode(),
    "cookie.py": "# -*- coding: latin-1 -*-\nimport torch\nname = 'caf\xe9'\n".encode("latin-1"),
    "empty.py": b"",
    "form_feed.py": b"x = 1\n\x0c\ny = 2\n",
    "no_end.py": b"x = 1",
    "long_line.py": b"x = [" + b"1, " * 200_000 + b"]\n",
    "windows.sh": LAUNCH.replace("\n", "\r\n").encode(),
    "quotes.sh": b"echo 'never closed\n",
    "here.sh": b"cat <<EOF\nnever closed\n",
    "binary.sh": b"#!/bin/sh\n\x7fELF\x00\x01\x02",
    "empty.ipynb": b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    "empty.yaml": b"",
    "empty_documents.yaml": b"---\n---\n---\n",
    "tagged.yaml": b"a: !!python/object/apply:os.system ['touch hacked']\n",
    "aliases.yaml": b"a: &a [x, x, x, x, x, x, x, x, x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b", ".join([b"*%c" % (97 + i)] * 9)) for i in range(8)),
    "loop.yaml": b"a: &a\n  b: *a\n",
    "list.json": b"[1, 2, 3]",
    "number.json": b"1e999",
    "mark.json": b"\xef\xbb\xbf{}",
    "settings.json": b'// a comment\n{\n  "a": 1,\n}\n',
}


@pytest.mark.parametrize("name", READABLE)
def test_what_is_odd_and_right_is_silent(folder: Path, name: str) -> None:
    (folder / name).write_bytes(READABLE[name])
    assert checked(".")["findings"] == []
    assert not (folder / "hacked").exists()


NOTEBOOKS: dict[str, object] = {
    "no_cells": {"metadata": {}, "nbformat": 4},
    "cells_are_a_map": {"cells": {"torch": 1}, "nbformat": 4},
    "cell_is_text": {"cells": ["x"], "nbformat": 4},
    "source_is_a_number": {"cells": [{"cell_type": "code", "source": 3, "torch": 1}], "nbformat": 4},
    "source_of_numbers": {"cells": [{"cell_type": "code", "source": [1, None, "import torch"]}], "nbformat": 4},
    "old": {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1"]}]}], "nbformat": 3},
    "a_list": [],
    "magic": {"cells": [{"cell_type": "code", "source": ["import torch\n", "%time x\n", "!pip i a\n", "y = !ls\n", "?x\n"]}]},
    "shell": {"cells": [{"cell_type": "code", "source": "%%bash\nls -l"}], "metadata": {"kernelspec": {"language": "R"}}},
}  # fmt: skip


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_odd_notebooks_crash_nothing(folder: Path, name: str) -> None:
    (folder / "explore.ipynb").write_text(json.dumps(NOTEBOOKS[name]))
    assert all(finding["code"] == "ADV001" for finding in checked(".")["findings"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ds_config.json", b"[" * 100_000),
        ("ds_config.json", b'{"zero_optimization": ' * 5_000),
        ("config.yaml", b"a: " + b"[" * 100_000),
        ("config.yaml", b"- " * 20_000 + b"x"),
        ("config.yaml", b"? " * 5_000 + b"x"),
        ("train.sh", b"$(" * 50_000),
        ("train.sh", b"echo " + b'"' * 100_001),
        ("train.py", b"x = " + b"[" * 100_000),
        ("train.py", b"x = f'" + b"{f'" * 200),
        ("train.py", b"a" + b".b" * 100_000),
        ("train.py", b"x = " + b"1 + " * 100_000 + b"1"),
        ("train.py", b"if x:\n pass\n" + b"elif x:\n pass\n" * 3_000),
        ("pyproject.toml", b"a = " + b"[" * 50_000),
    ],
)
def test_deep_nesting_exhausts_nothing(folder: Path, name: str, text: bytes) -> None:
    (folder / name).write_bytes(text)
    result = CliRunner().invoke(app, ["check", "--json"])
    assert result.exit_code in (0, 1, 2) and not isinstance(result.exception, (RecursionError, MemoryError))


def test_a_huge_file_is_said_or_read(folder: Path) -> None:
    with (folder / "huge.json").open("wb") as handle:
        handle.truncate(1 << 32)  # sparse: 4 GiB that take no disk
    with (folder / "huge.py").open("wb") as handle:
        handle.truncate(1 << 32)
    assert [finding["severity"] for finding in checked(".")["findings"]] == ["info"]  # the script; data may be large


def test_a_file_that_may_not_be_read(folder: Path) -> None:
    (folder / "secret.py").write_text(GOOD)
    (folder / "secret.py").chmod(0)
    (folder / "closed").mkdir()
    (folder / "closed" / "train.py").write_text(GOOD)
    (folder / "closed").chmod(0)
    try:
        checked(".")
    finally:
        (folder / "closed").chmod(0o755)


SOUP = st.lists(
    st.sampled_from(
        [
            "model", " = ", "AutoModel.from_pretrained(", ")", "device_map=", '"auto"', "{", "}", "'': local_rank", ", ", "\n",
            "    ", "TrainingArguments(", "deepspeed=", "**kwargs", "if x:", "def f():", "import torch", "lambda: ", "f'{a}'",
            "torchrun ", "--nproc_per_node ", "8", " \\\n", "export ", "$X", "accelerate launch ", "#SBATCH --gpus=2", "<<EOF",
            '"zero_optimization": ', '"stage": 3', ": ", "- ", "&a ", "*a", "[", "]", "# advisor: ignore[ADV101]", "\r\n",
            "\ufeff", "max_memory", "\x00", "é", "!!x ", "---\n", "%%bash\n",
        ]
    ),
    max_size=40,
).map("".join)  # fmt: skip
NAMES = (
    "a.py",
    "a.ipynb",
    "a.json",
    "a.yaml",
    "a.sh",
    "a.slurm",
    "ds_config.json",
    "requirements.txt",
    "pyproject.toml",
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.dictionaries(st.sampled_from(NAMES[:-1]), SOUP | st.text(max_size=60), min_size=1, max_size=4))
def test_no_text_crashes_a_check(texts: dict[str, str], folder: Path) -> None:
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode("utf-8", "replace"))
    checked(".")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(NAMES[:-1]), data=st.binary(max_size=200))
def test_no_bytes_crash_a_check(name: str, data: bytes, folder: Path) -> None:
    for other in NAMES:
        (folder / other).unlink(missing_ok=True)
    (folder / name).write_bytes(data)
    checked(".")


def test_every_format_agrees_on_what_fails(folder: Path) -> None:
    (folder / "a.py").write_text(BROKEN)
    codes: list[int] = []
    run: Callable[..., Any] = CliRunner().invoke
    for form in FORMATS:
        codes.append(run(app, ["check", "--format", form]).exit_code)
        assert run(app, ["check", "--format", form, "--exit-zero"]).exit_code == 0
    assert set(codes) == {1}


FIXTURES = sorted(path for path in (Path(__file__).parent / "fixtures").glob("*/*") if path.is_dir())
PUT = (
    "",
    '"auto"',
    "None",
    "{}",
    "**more",
    "3",
    "-1",
    "1e9",
    "(",
    ")",
    ",",
    "\n",
    "x if y else z",
    "await x",
    "é",
    "0" * 30,
)
MUTATION = st.tuples(st.integers(0, 5000), st.integers(0, 12), st.sampled_from(PUT))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sources=st.lists(st.sampled_from(FIXTURES), min_size=1, max_size=2), mutations=st.lists(MUTATION, max_size=6))
def test_no_change_to_files_that_combine_crashes_a_check(
    sources: list[Path], mutations: list[tuple[int, int, str]], folder: Path
) -> None:
    """Scripts, launchers and configs that belong together, with a few characters of each replaced."""
    room = folder / "room"
    shutil.rmtree(room, ignore_errors=True)
    for source in sources:
        shutil.copytree(source, room, dirs_exist_ok=True)
    for file in sorted(path for path in room.rglob("*") if path.is_file()):
        text = file.read_text(errors="replace")
        for start, length, put in mutations:
            at = start % (len(text) + 1)
            text = text[:at] + put + text[at + length :]
        file.write_text(text)
    for finding in checked("room")["findings"]:
        lines = (folder / finding["path"]).read_text().count("\n") + 1
        assert finding["line"] is None or 1 <= finding["line"] <= lines
