"""What a terminal shows while a run goes on."""

from __future__ import annotations

import os
import pty
import sys

import pytest

from advisor.execute.watch import Peaks
from advisor.report.run import Live


def test_the_line_is_drawn_until_text_comes_and_never_over_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, terminal = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(terminal))
    monkeypatch.setattr("advisor.report.run.shown", lambda: True)
    live = Live(asks=True)
    live.tick(Peaks(gpu_used=[3 << 30], process_ram=1 << 30), 1.0)
    assert "GPU 3.0 GiB · host 1.0 GiB" in capsys.readouterr().err
    live.event({"event": "loaded", "rank": 0, "seconds": 2.0})
    assert capsys.readouterr().err.endswith("loaded in 2 s\n> ")
    live.event({"event": "text", "rank": 0, "text": "An ans", "end": False})
    live.tick(Peaks(), 9.0)
    live.event({"event": "text", "rank": 0, "text": "wer.", "end": True})
    captured = capsys.readouterr()
    assert captured.out == "An answer.\n" and captured.err == "> "


def test_without_a_terminal_each_step_has_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("advisor.report.run.shown", lambda: False)
    live = Live()
    live.event({"event": "step", "rank": 0, "step": 2, "total": 4, "seconds": 0.5})
    live.event({"event": "step", "rank": 1, "step": 2, "total": 4, "seconds": 0.5})
    live.tick(Peaks(), 9.0)
    assert capsys.readouterr().err == "step 2 of 4, 0.5 s\n"
