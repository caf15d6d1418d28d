"""Reports of findings: the SARIF schema, a JUnit reader, GitHub's rules for annotations, and the JSON form's promises."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import junitparser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.check.checked import Checked
from advisor.check.types import Doubt, Edit, Finding, Rule
from advisor.report.findings import FORMATS, render

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-2.1.0-rtm.5.json").read_text())


def finding(code: str = "ADV101", severity: str = "error", **more: object) -> Finding:
    values = {"path": "train.py", "line": 12, "column": 5, "message": "is wrong", "fix": "do it right", "edits": ()}
    return Finding(code=code, severity=severity, **(values | more))  # type: ignore[arg-type]


def rule(code: str, severity: str = "error") -> Rule:
    return Rule(
        code=code, name="some-rule", severity=severity, what="What.", why="Why.", fix="Fix.", since="any",  # type: ignore[arg-type]
        check=lambda *args: iter(()),
    )  # fmt: skip


MANY = Checked(
    findings=(
        finding(),
        finding(),  # the same sentence again on the same line
        finding("ADV102", "warning", path="con figs/ds%20.json", line=3, column=0, fix=None),
        finding("ADV103", "info", message="two\nlines: 100%, <b>&amp;\x1b[31m\x00"),
        finding("ADV901", "error", path="", line=0, column=0, message="does not fit"),
        finding("ADV104", "warning", path="caf\udce9.sh"),  # a name that is no UTF-8
    ),
    files=4,
    rules={code: rule(code) for code in ("ADV101", "ADV102", "ADV103")},
)  # fmt: skip
NOTHING = Checked(findings=(), files=1)
UNSURE = Checked(
    findings=(),
    files=2,
    strict=True,
    doubts=(Doubt(code="ADV101", path="a.py", line=4, message="the stage is read from a file"),),
)


@pytest.mark.parametrize("checked", [MANY, NOTHING, UNSURE])
def test_sarif_validates_against_its_schema(checked: Checked) -> None:
    jsonschema.Draft4Validator(SCHEMA).validate(json.loads(render(checked, "sarif")))


def test_sarif_says_what_code_scanning_reads() -> None:
    run = json.loads(render(MANY, "sarif"))["runs"][0]
    first, second, third, *_ = run["results"]
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "ADV101"
    assert first["locations"][0]["physicalLocation"]["region"] == {"startLine": 12, "startColumn": 5}
    assert [result["level"] for result in run["results"]][:4] == ["error", "error", "warning", "note"]
    uri = third["locations"][0]["physicalLocation"]["artifactLocation"]
    assert uri == {"uri": "con%20figs/ds%2520.json", "uriBaseId": "%SRCROOT%"}
    # Two findings alike must not be taken for one.
    assert first["partialFingerprints"] != second["partialFingerprints"]
    assert "locations" not in run["results"][4]


def test_sarif_fingerprint_does_not_move_with_the_line() -> None:
    def fingerprint(line: int) -> object:
        log = json.loads(render(Checked(findings=(finding(line=line),), files=1), "sarif"))
        return log["runs"][0]["results"][0]["partialFingerprints"]

    assert fingerprint(3) == fingerprint(90)


def test_sarif_path_outside_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "repository"
    inside.mkdir()
    monkeypatch.chdir(inside)
    found = (finding(path="../other/a b.py"), finding(path=str(inside / "c.py")))
    results = json.loads(render(Checked(findings=found, files=2), "sarif"))["runs"][0]["results"]
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in results]
    assert uris[0] == {"uri": (tmp_path / "other" / "a b.py").as_uri()}
    assert uris[1] == {"uri": "c.py", "uriBaseId": "%SRCROOT%"}
    files = [read_command(line)[1]["file"] for line in render(Checked(findings=found, files=2), "github").splitlines()]
    assert files == ["../other/a b.py", "c.py"]


def test_junit_is_read_by_a_consumer(tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    file.write_text(render(MANY, "junit"), encoding="utf-8")
    report = junitparser.JUnitXml.fromfile(str(file))
    cases = [case for suite in report for case in suite]
    assert (report.tests, report.failures, report.errors) == (6, 5, 0)
    failed = [case for case in cases if any(isinstance(result, junitparser.Failure) for result in case.result)]
    assert len(failed) == 5
    assert {suite.name for suite in report} == {"train.py", "con figs/ds%20.json", "fit", "caf?.sh"}
    info = next(case for case in cases if case.name.startswith("ADV103"))
    assert info.system_out is not None and "two\nlines: 100%, <b>&amp;\ufffd[31m\ufffd" in info.system_out


def test_junit_of_nothing_is_one_passed_case(tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    file.write_text(render(NOTHING, "junit"), encoding="utf-8")
    report = junitparser.JUnitXml.fromfile(str(file))
    assert (report.tests, report.failures) == (1, 0)
    file.write_text(render(UNSURE, "junit"), encoding="utf-8")
    assert junitparser.JUnitXml.fromfile(str(file)).skipped == 1


COMMAND = re.compile(r"^::(error|warning|notice) ((?:[a-zA-Z]+=[^,:\r\n]*,?)+)::([^\r\n]*)$")


def read_command(line: str) -> tuple[str, dict[str, str], str]:
    """What the runner makes of a line: the command, its properties and message, unescaped."""
    match = COMMAND.match(line)
    assert match, line
    name, settings_, message = match.groups()
    properties = dict(part.split("=", 1) for part in settings_.split(","))
    return name, {key: unquote(value) for key, value in properties.items()}, unquote(message)


def test_github_commands_come_back_as_they_were() -> None:
    lines = render(MANY, "github").splitlines()
    assert len(lines) == len(MANY.findings)
    read = [read_command(line) for line in lines]
    assert [name for name, _, _ in read] == ["error"] * 3 + ["warning"] * 2 + ["notice"]
    assert read[0][1] == {"file": "train.py", "line": "12", "col": "5", "title": "ADV101 some-rule"}
    assert read[0][2] == "is wrong\nfix: do it right"
    assert read[3][1] == {"file": "con figs/ds%20.json", "line": "3", "title": "ADV102 some-rule"}
    assert read[5][2].startswith("two\nlines: 100%, <b>&amp;")
    assert "file" not in read[2][1]


@settings(max_examples=100, deadline=None)
@given(path=st.text(min_size=1), message=st.text(), fix=st.none() | st.text())
def test_no_text_breaks_a_format(path: str, message: str, fix: str | None) -> None:
    checked = Checked(findings=(finding(path=path, message=message, fix=fix),), files=1)
    for form in FORMATS:
        render(checked, form).encode()
    assert len(render(checked, "github").splitlines()) >= 1
    commands = [line for line in render(checked, "github").split("\n") if line]
    assert len(commands) == 1 and "\r" not in commands[0]
    jsonschema.Draft4Validator(SCHEMA).validate(json.loads(render(checked, "sarif")))
    junitparser.JUnitXml.fromstring(render(checked, "junit"))
    assert json.loads(render(checked, "json"))["findings"][0]["code"] == "ADV101"


def test_json_keeps_its_promises() -> None:
    report = json.loads(render(MANY, "json"))
    assert report["format"] == "advisor-check" and report["version"] == 1
    assert report["findings"][0] == {
        "code": "ADV101", "severity": "error", "path": "train.py", "line": 12, "column": 5, "message": "is wrong",
        "fix": "do it right", "fixable": False,
    }  # fmt: skip
    assert report["findings"][4]["path"] is None and report["findings"][4]["line"] is None
    assert report["summary"] == {
        "files": 4, "errors": 3, "warnings": 2, "info": 1, "fixable": 0, "failed": True, "fit": [],
    }  # fmt: skip
    assert "doubts" not in report
    assert json.loads(render(UNSURE, "json"))["doubts"] == [
        {"code": "ADV101", "path": "a.py", "line": 4, "message": "the stage is read from a file"}
    ]


def test_text_has_places_and_no_escapes() -> None:
    text = render(MANY, "text")
    assert text.startswith("train.py:12:5: error ADV101 is wrong\n    fix: do it right\n")
    assert "con figs/ds%20.json:3: warning ADV102 is wrong\n" in text
    assert "error ADV901 does not fit" in text
    assert "\x1b" not in text and "\x00" not in text
    assert "3 errors, 2 warnings and 1 info in 4 files." in text
    assert render(NOTHING, "text") == "nothing found in 1 file.\n"
    assert "a.py:4: cannot tell ADV101 the stage is read from a file" in render(UNSURE, "text")


def test_information_fails_nothing() -> None:
    assert not Checked(findings=(finding(severity="info"),), files=1).failed
    assert Checked(findings=(finding(severity="warning"),), files=1).failed


def test_terminal_has_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from advisor.report.findings.terminal import show

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    show(MANY, Console(file=out, force_terminal=True, color_system="standard", width=40))
    assert "\x1b[" in out.getvalue()
    assert max(len(line) for line in out.getvalue().splitlines()) > 40  # a place is never wrapped


def test_fixable_is_said() -> None:
    edit = Edit(path="train.py", start=0, end=1, text="")
    checked = Checked(findings=(finding(edits=(edit,)),), files=1)
    assert json.loads(render(checked, "json"))["findings"][0]["fixable"] is True
    assert "1 can be fixed with --fix" in render(checked, "text")
