"""The documentation builds without a warning, links to what is there, and its commands work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from typer.main import get_command

from advisor.check.codes import all_rules
from advisor.cli import app
from advisor.decide.rules import TREES, load_tree

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = sorted(DOCS.glob("*.md"))
# Marks before a block of commands that the tests do not run; their flags are checked all the same. Those that are only
# slow run with ADVISOR_DOCS=all.
_KEPT_OUT = ("needs: gpu", "needs: network", "not run:", "slow:")
_FENCE = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\n)?```console\n(?P<body>.*?)```", re.DOTALL)


class Block(NamedTuple):
    """Commands of one fence; ``mark`` is what stands before it."""

    commands: tuple[str, ...]
    mark: str


def blocks(text: str) -> Iterator[Block]:
    """The fences of a page. A mark that is not known is a mistake."""
    for found in _FENCE.finditer(text):
        mark = found["mark"] or ""
        assert not mark or mark.startswith(_KEPT_OUT), mark
        commands = tuple(line[2:] for line in found["body"].splitlines() if line.startswith("$ "))
        assert commands, found["body"]
        yield Block(commands, mark)


def _commands(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    for block in blocks(text):
        yield from block.commands
    for line in text.splitlines():
        if line.startswith("    advisor "):
            yield line.strip()
        elif line.startswith("    $ advisor "):
            yield line.strip()[2:]


@pytest.mark.parametrize("path", [*WRITTEN, ROOT / "README.md"], ids=lambda path: path.name)
def test_every_command_is_one_that_exists(path: Path) -> None:
    """Whether it is run or not: its name and its flags are known and its values have the right type."""
    commands: Any = get_command(app).commands  # type: ignore[attr-defined]
    for line in _commands(path):
        words = shlex.split(line.replace("…", "x"), comments=True)
        if not words or words[0] != "advisor" or words[1].startswith("--"):
            continue
        words = words[: words.index(">")] if ">" in words else words
        name, arguments = words[1], [word for word in words[2:] if word != "..."]
        assert name in commands, line
        if "--help" not in arguments:
            commands[name].make_context(name, arguments, resilient_parsing=bool({"...", "x"} & set(words)))


@pytest.mark.parametrize(
    "path", [path for path in WRITTEN if "```console" in path.read_text()], ids=lambda path: path.name
)
def test_commands_of_a_page_work_one_after_the_other(path: Path, tmp_path: Path) -> None:
    binaries = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.mark and not (block.mark.startswith("slow:") and os.environ.get("ADVISOR_DOCS") == "all"):
            continue
        for command in block.commands:
            ran = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
            )
            assert ran.returncode == 0, f"{command}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-d", str(out / "trees"), str(DOCS)]
    ran = subprocess.run([*command, str(out / "html")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return out / "html"


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src") and tag in ("a", "img"):
                self.links.append(value)
            if value and name == "id":
                self.anchors.add(value)


def _read(page: Path) -> _Links:
    parser = _Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def test_links_and_pictures_lead_somewhere(built: Path) -> None:
    pages = {page: _read(page) for page in built.rglob("*.html")}
    assert len(pages) > 80
    for page, read in pages.items():
        for link in read.links:
            parts = urlsplit(link)
            if parts.scheme or link.startswith(("//", "#")):
                continue
            target = (page.parent / unquote(parts.path)).resolve()
            assert target.is_file(), f"{page.relative_to(built)}: {link}"
            if parts.fragment and target in pages:
                assert parts.fragment in pages[target].anchors, f"{page.relative_to(built)}: {link}"


def test_every_rule_has_its_page_made_from_itself(built: Path) -> None:
    import html

    for name in TREES:
        for node in load_tree(name).nodes.values():
            text = (built / "generated" / "rules" / f"{node.code}.html").read_text(encoding="utf-8")
            assert html.escape(node.ask.split("`")[0], quote=False)[:40] in text.replace("’", "'")
            assert (node.yes in text and node.no in text) or "nothing fits" in text
    for code, rule in all_rules().items():
        text = (built / "generated" / "checks" / f"{code}.html").read_text(encoding="utf-8")
        assert rule.name in text


def test_pictures_say_what_they_show() -> None:
    for picture in (DOCS / "pictures").glob("*.svg"):
        text = picture.read_text(encoding="utf-8")
        assert "aria-label=" in text and "<script" not in text and "http" not in text.replace("http://www.w3.org", "")


def test_a_mark_that_is_mistyped_is_found() -> None:
    with pytest.raises(AssertionError):
        list(blocks("<!-- need: gpu -->\n```console\n$ advisor probe\n```"))
