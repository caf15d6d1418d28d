"""JUnit XML: a suite a file, a failed case a finding. Information is a passed case with its text as output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from advisor.check.checked import Checked
from advisor.check.types import Finding
from advisor.report.findings.words import clean, counted, shown_path

# What XML 1.0 cannot hold, not even as a reference: most control characters, and two code points at the end.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(checked: Checked) -> str:
    """The document. With nothing found it holds one passed case, since some readers reject an empty one."""
    root = Element("testsuites")
    ordered = sorted(checked.findings, key=lambda finding: finding.path)
    for path, found in groupby(ordered, key=lambda finding: finding.path):
        name = shown_path(path) or "fit"
        _suite(root, name, [_case(name, finding) for finding in found])
    if not checked.findings:
        _suite(root, "advisor check", [_element("testcase", name=counted(checked), classname="advisor check")])
    if checked.doubts:
        cases = []
        for doubt in checked.doubts:
            place = f"{shown_path(doubt.path)}:{doubt.line}"
            case = _element("testcase", name=f"{place}: {doubt.code}: {doubt.message}", classname="cannot tell")
            case.append(_element("skipped", message=doubt.message))
            cases.append(case)
        _suite(root, "cannot tell", cases)
    _count(root, root.iter("testcase"), "advisor check")
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite(root: Element, name: str, cases: list[Element]) -> None:
    suite = SubElement(root, "testsuite")
    suite.extend(cases)
    _count(suite, cases, name)


def _count(element: Element, cases: Iterable[Element], name: str) -> None:
    found = list(cases)
    element.attrib.update(
        name=_text(name),
        tests=str(len(found)),
        failures=str(sum(case.find("failure") is not None for case in found)),
        errors="0",
        skipped=str(sum(case.find("skipped") is not None for case in found)),
        time="0",
    )


def _case(path: str, finding: Finding) -> Element:
    place = ":".join(str(part) for part in (finding.line, finding.column) if part)
    case = _element("testcase", name=f"{finding.code} at {place}" if place else finding.code, classname=path, file=path)
    if finding.line:
        case.set("line", str(finding.line))
    text = finding.message + (f"\nfix: {finding.fix}" if finding.fix else "")
    if finding.severity == "info":
        SubElement(case, "system-out").text = _text(text)
        return case
    failure = _element("failure", message=finding.message, type=finding.severity)
    failure.text = _text(":".join(part for part in (path, place) if part) + f": {text}")
    case.append(failure)
    return case


def _element(tag: str, **attributes: str) -> Element:
    return Element(tag, {name: _text(value) for name, value in attributes.items()})


def _text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", clean(text))
