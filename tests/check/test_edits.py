"""Edits are offered only where the text, read back, says the same without what went."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.check.edits import instead, without
from advisor.check.engine import lint
from advisor.check.fixing import fixed, write
from advisor.check.readers.positioned import json_node
from advisor.check.settings import Settings
from advisor.check.types import Edit
from advisor.check.values import Node

FIXTURES = Path(__file__).parent / "fixtures"


def made(text: str, edits: tuple[Edit, ...]) -> str:
    (edit,) = edits
    return text[: edit.start] + edit.text + text[edit.end :]


def argument(text: str, name: str, end: str) -> Node:
    """The node of ``name=…end`` in a script."""
    start = text.index(f"{name}=")
    stop = text.index(end, start) + len(end)
    line = text.count("\n", 0, start) + 1
    return Node(None, "a.py", line, 1, start + len(name) + 1, stop, line, start)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(1, low=True)", "f(1)"),
        ("f(low=True)", "f()"),
        ("f(low=True, b=2)", "f(b=2)"),
        ("f(a=1, low=True, b=2)", "f(a=1, b=2)"),
        ("f(\n    a=1,\n    low=True,\n    b=2,\n)\n", "f(\n    a=1,\n    b=2,\n)\n"),
        ("f(\r\n    a=1,\r\n    low=True,\r\n)\r\n", "f(\r\n    a=1,\r\n)\r\n"),
        ("f(\n    a=1,\n    low=True\n)\n", "f(\n    a=1\n)\n"),
        ("\ufeffé = f('é', low=True)  # é\n", "\ufeffé = f('é')  # é\n"),
        ("f(g(low=True), low=False)", "f(g(), low=False)"),
    ],
)
def test_an_argument_goes_with_its_comma(before: str, after: str) -> None:
    assert made(before, without({"a.py": before}, argument(before, "low", "True"))) == after


@pytest.mark.parametrize(
    "text",
    [
        "f(\n    low=True,  # because of the host\n    b=2,\n)\n",  # the remark would be left behind
        "f(\n    a=1,  # first\n    low=True\n)\n",  # a remark between the comma and the argument
        "x = 'low=True'\n",  # no argument
        "f(low=True if a else b)",  # not the whole value
    ],
)
def test_what_is_not_sure_is_left(text: str) -> None:
    assert without({"a.py": text}, argument(text, "low", "True")) == ()


def test_a_place_that_is_not_known_is_left() -> None:
    assert without({"a.py": "f(low=True)"}, Node(True, "a.py", 1)) == ()
    assert without({}, argument("f(low=True)", "low", "True")) == ()
    assert instead({"a.py": "f('24gb')"}, Node("24gb", "a.py", 1, 1, 0, 3), "24gb", "24GB") == ()


def test_a_text_is_put_for_another_with_its_own_quotes() -> None:
    text = "m = {0: '24gb'}"
    assert made(text, instead({"a.py": text}, Node("24gb", "a.py", 1, 1, 8, 14), "24gb", "24GB")) == "m = {0: '24GB'}"


@given(
    value=st.dictionaries(
        st.sampled_from(["a", "b", 'q"é', ""]),
        st.recursive(st.integers() | st.text('x{},: "\\é', max_size=4), lambda inner: st.lists(inner, max_size=2)),
        min_size=1,
    ),
    indent=st.sampled_from([None, 0, 2]),
    data=st.data(),
)
def test_a_json_member_goes_and_nothing_else(value: dict[str, object], indent: int | None, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(value)))
    text = json.dumps({"outer": value}, indent=indent)
    root = json_node(text, "a.json")
    assert root is not None
    member = root.get("outer", key)
    assert member is not None
    after = made(text, without({"a.json": text}, member))
    assert json.loads(after) == {"outer": {name: item for name, item in value.items() if name != key}}


@pytest.mark.parametrize("fixture", ["ADV104/bad_argument", "ADV104/bad_old", "ADV107/bad_json", "ADV401/bad_bits"])
def test_what_was_fixed_is_not_found_again(fixture: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / fixture, tmp_path / "r")
    before = lint([tmp_path / "r"], Settings(root=tmp_path)).findings
    files = fixed(before)
    assert [file.findings for file in files] == [tuple(before)]
    for file in files:
        write(file)
    after = lint([tmp_path / "r"], Settings(root=tmp_path)).findings
    assert [finding for finding in after if finding.severity != "info"] == []
    assert fixed(after) == ()


def test_every_offered_fix_mends_its_finding(tmp_path: Path) -> None:
    """Over all fixtures: written, the text is another, and the same finding is gone."""
    shutil.copytree(FIXTURES, tmp_path / "all")
    offered = 0
    for folder in sorted(path for path in (tmp_path / "all").glob("*/*") if path.is_dir()):
        before = lint([folder], Settings(root=folder)).findings
        files = fixed(before)
        offered += len(files)
        for file in files:
            write(file)
        mended = {(one.code, one.message) for file in files for one in file.findings}
        after = {(one.code, one.message) for one in lint([folder], Settings(root=folder)).findings}
        assert not mended & after, folder
    assert offered >= 8
