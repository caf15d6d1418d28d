"""The terminal as it comes: narrow, wide, without colour, dumb, piped, on a Windows code page, quiet and talkative."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from advisor.advise import Advice
from advisor.cache import cached
from advisor.cli import output
from advisor.report import progress
from advisor.report.terminal import advice_view

pty = pytest.importorskip("pty", reason="a terminal of our own needs POSIX")
ADVISOR = [sys.executable, "-m", "advisor"]


def _view(advice: Advice, width: int) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(advice_view(advice, None, width))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [30, 50, 80, 99, 100, 120, 200])
def test_every_width_says_the_same_and_no_line_is_longer(mapped: Advice, width: int) -> None:
    lines = _view(mapped, width)
    assert max(map(len, lines)) <= width
    text = " ".join(lines)
    for candidate in mapped.decision.candidates:
        if candidate.budget and candidate.budget.gpus and candidate.verdict != "refused":
            assert candidate.label in text
    assert "…" not in text
    # Verdicts never depend on colour or on room: the words are there.
    assert re.search(r"device_map\s+tight|device_map\s+fits", text)
    drawn = [c for c in mapped.decision.candidates if c.budget is not None and c.budget.gpus]
    assert len([line for line in lines if re.search(r"[A-Za-z]\W*\|\W*", line) and "RRR" in line]) == len(drawn)


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "FORCE_COLOR")}
    return kept | more


def _command(model: Path, out: Path, *more: str) -> list[str]:
    return [
        *ADVISOR, "recommend", "-m", str(model), "-t", "inference", "--hardware", "rtx4090-x2", "--gpu-memory",
        "860MiB", "--quantization", "none", "--strategy", "device_map", "--seq-len", "256", "-o", str(out), *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def asked(tiny_model: Path, mapped: Advice, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The question whose answer is kept on disk by now."""
    return _command(tiny_model, tmp_path_factory.mktemp("out") / "plan.json")


def _in_terminal(command: list[str], **environment: str) -> str:
    """What a command writes to a terminal, stderr included."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=_environment(**environment)
    ) as process:
        os.close(theirs)
        written = b"".join(_read(ours))
    os.close(ours)
    assert process.returncode == 0, written.decode()
    return written.decode()


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            block = os.read(descriptor, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            return
        if not block:
            return
        yield block


def test_a_terminal_gets_colour_and_what_asks_for_none_gets_none(asked: list[str]) -> None:
    assert "\x1b[" in _in_terminal(asked, TERM="xterm-256color", COLUMNS="100")
    colours = re.compile(r"\x1b\[[\d;]*3[0-7]")
    assert not colours.search(_in_terminal(asked, TERM="xterm-256color", NO_COLOR="1", COLUMNS="100"))
    assert "\x1b" not in _in_terminal(asked, TERM="dumb", COLUMNS="100")


def test_progress_goes_to_stderr_and_to_people_alone(asked: list[str], tmp_path: Path) -> None:
    piped = subprocess.run(asked, capture_output=True, text=True, env=_environment(TERM="xterm"), check=True)
    assert piped.stderr == "" and "\x1b" not in piped.stdout
    code = (
        "import sys, time\nfrom advisor.report.progress import working\n"
        "with working('tracing [a/b]') as say:\n    say('layer [2] of 3'); time.sleep(0.3)\nprint('result')\n"
    )
    drawn = _in_terminal([sys.executable, "-c", code], TERM="xterm")
    assert "layer [2] of 3" in drawn and "result" in drawn
    assert "layer" not in _in_terminal([sys.executable, "-c", code], TERM="dumb")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_code_pages_that_lack_letters_get_others(asked: list[str], encoding: str) -> None:
    environment = _environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    for command in (asked, [*ADVISOR, "recomend"], [*ADVISOR, "recommend", "--help"], [*ADVISOR, "explain", "FIN030"]):
        ran = subprocess.run(command, capture_output=True, env=environment)
        assert b"UnicodeEncodeError" not in ran.stderr and b"Traceback" not in ran.stderr
        text = ran.stdout.decode(encoding) + ran.stderr.decode(encoding)
        assert "?" not in re.sub(r"[A-Za-z]\?|\? |\?$", "", text), text
    assert "WWW" in subprocess.run(asked, capture_output=True, env=environment).stdout.decode(encoding)


def test_what_every_report_prints_has_a_plain_form() -> None:
    """Letters beyond ASCII in our own sources that may reach a terminal are in the table."""
    root = Path(output.__file__).parents[1]
    printed = [*root.glob("report/*.py"), *root.glob("report/findings/*.py"), *root.glob("cli/*.py")]
    letters = {letter for path in printed for letter in path.read_text(encoding="utf-8") if ord(letter) > 127}
    assert "?" not in {output._plain(UnicodeEncodeError("ascii", letter, 0, 1, ""))[0] for letter in letters}


def test_quiet_is_the_sentence(asked: list[str], mapped: Advice) -> None:
    ran = subprocess.run([*asked, "--quiet"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{mapped.decision.sentence}\n" and ran.stderr == ""
    assert "\x1b" not in _in_terminal([*asked, "--quiet"], TERM="xterm")


def test_verbose_says_where_errors_come_from() -> None:
    wrong = [*ADVISOR, "recommend", "-m", "no/such", "-t", "inference"]
    plain = subprocess.run(wrong, capture_output=True, text=True)
    talking = subprocess.run([*wrong, "--verbose"], capture_output=True, text=True)
    assert plain.returncode == talking.returncode == 2
    assert plain.stderr.count("\n") == 1 and plain.stderr.startswith("advisor: --model: ")
    assert "Traceback" in talking.stderr and talking.stderr.endswith(plain.stderr)
    both = subprocess.run([*wrong, "--quiet", "--verbose"], capture_output=True, text=True)
    assert both.returncode == 2 and "cannot go with" in both.stderr


def test_verbose_says_what_takes_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    progress.set_level(progress.Level.VERBOSE)
    try:
        assert cached("some_thing", {"a": 1}, lambda: 2) == cached("some_thing", {"a": 1}, lambda: 3) == 2
    finally:
        progress.set_level(progress.Level.USUAL)
    assert re.fullmatch(r"some thing\nsome thing took 0\.\d\d s\n", capsys.readouterr().err)


def test_levels_do_not_pile_up(capsys: pytest.CaptureFixture[str]) -> None:
    for level in (progress.Level.VERBOSE, progress.Level.VERBOSE, progress.Level.USUAL):
        progress.set_level(level)
        logging.getLogger("advisor").debug("a word")
    progress.set_level(progress.Level.USUAL)
    assert capsys.readouterr().err == "a word\na word\n"


@pytest.mark.parametrize(
    ("shell", "typed", "offered"),
    [
        ("bash", "advisor rec", "recommend"), ("bash", "advisor recommend --hardware h200-x", "h200-x8"),
        ("bash", "advisor recommend --model Qwen/Qwen2.5-7", "Qwen/Qwen2.5-7B"), ("zsh", "advisor rep", "report"),
        ("fish", "advisor u", "ui"),
    ],
)  # fmt: skip
def test_the_shell_completes_commands_machines_and_models(shell: str, typed: str, offered: str) -> None:
    words = typed.split()
    environment = _environment(
        _ADVISOR_COMPLETE=f"complete_{shell}", COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1),
        _TYPER_COMPLETE_ARGS=typed, _TYPER_COMPLETE_FISH_ACTION="get-args",
    )  # fmt: skip
    script = Path(sys.executable).with_name("advisor")
    ran = subprocess.run([str(script)], capture_output=True, text=True, env=environment)
    assert offered in ran.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_get_a_script(shell: str) -> None:
    script = Path(sys.executable).with_name("advisor")
    environment = _environment(_ADVISOR_COMPLETE=f"source_{shell}")
    ran = subprocess.run([str(script)], capture_output=True, text=True, env=environment)
    assert "_ADVISOR_COMPLETE" in ran.stdout


def test_every_command_knows_both_switches() -> None:
    from typer.main import get_command

    from advisor.cli import app

    for command in get_command(app).commands.values():  # type: ignore[attr-defined]
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert {"--quiet", "--verbose"} <= flags, command.name


def test_the_reader_that_goes_away_is_no_error(asked: list[str]) -> None:
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert b"Traceback" not in errors and b"BrokenPipe" not in errors
