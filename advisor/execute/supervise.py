"""Start a command, watch it, end it: no process outlives the run, and every bad end has one sentence."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from advisor.execute import guard
from advisor.execute.launch import Command
from advisor.execute.status import StatusReader
from advisor.execute.watch import Peaks, Watcher

Ending = Literal["ok", "oom", "host_oom", "disk_full", "dead_rank", "hung", "failed", "interrupted"]

# Last words of a foreign script, most telling first.
_SIGNS: tuple[tuple[Ending, re.Pattern[str]], ...] = (
    ("oom", re.compile(r"(CUDA|HIP) out of memory|torch\.(cuda\.)?OutOfMemoryError|CUDA error: out of memory")),
    ("disk_full", re.compile(r"No space left on device|Disk quota exceeded")),
    ("host_oom", re.compile(r"MemoryError|Cannot allocate memory|DefaultCPUAllocator: can't allocate memory")),
    ("hung", re.compile(r"Watchdog caught collective operation timeout|Timed out waiting|ProcessGroup\w* timeout")),
)

# What ranks say whose peer is gone: gloo's, NCCL's and the store's words.
_PEER = re.compile(r"Connection (closed|reset|refused)|Broken pipe|remote process|DistNetworkError|Socket|NCCL error")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: ``sentence`` names the cause, ``last_lines`` are the failing rank's own words."""

    ending: Ending
    sentence: str
    seconds: float
    peaks: Peaks
    events: tuple[dict[str, Any], ...] = ()
    last_lines: tuple[str, ...] = ()
    log: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether the run did what it should."""
        return self.ending == "ok"


class _Said:
    """What the run's processes print, as it comes."""

    def __init__(self, log: Path, on_output: Callable[[str], None] | None) -> None:
        self._log, self._on_output, self._size = log, on_output, 0

    def more(self) -> bool:
        """Whether there was something new; it is handed on."""
        size = self._log.stat().st_size
        if size == self._size:
            return False
        if self._on_output:
            with self._log.open("rb") as handle:
                handle.seek(self._size)
                self._on_output(handle.read(size - self._size).decode("utf-8", "replace"))
        self._size = size
        return True


@dataclass
class _Seen:
    events: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    last_progress: float = field(default_factory=time.monotonic)


def supervise(
    command: Command,
    folder: Path,
    *,
    time_limit: float | None = None,
    stall_limit: float | None = None,
    expects_status: bool = True,
    extra_environment: Mapping[str, str] | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    on_tick: Callable[[Peaks, float], None] | None = None,
    on_output: Callable[[str], None] | None = None,
) -> Outcome:
    """Run ``command``; its ranks report into ``folder`` (created, empty), its output goes to ``folder/log``.

    ``time_limit`` bounds the whole run and ``stall_limit`` the time without any event or output, in seconds.
    ``expects_status``: our own worker, which says "done"; a user's script only has an exit code. KeyboardInterrupt ends
    all ranks and returns "interrupted".
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, run_id = folder / "log", uuid.uuid4().hex
    environment = {**os.environ, **command.environment, **(extra_environment or {}), guard.RUN_ID: run_id}
    environment["PYTHONUNBUFFERED"] = "1"
    started, seen, reader = time.monotonic(), _Seen(), StatusReader(folder)
    watchman = guard.start(run_id)
    watcher = Watcher(run_id)
    code: int | None = None
    stopped: Ending | None = None
    with log.open("wb") as output:
        process = subprocess.Popen(
            command.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True,
        )  # fmt: skip
        watcher.start()
        said, lost = _Said(log, on_output), set[int]()
        tail: tuple[str, ...] = ()
        try:
            while True:
                code = process.poll()
                _collect(reader, seen, on_event)
                if said.more():
                    seen.last_progress = time.monotonic()
                elapsed = time.monotonic() - started
                if on_tick:
                    on_tick(watcher.peaks, elapsed)
                if code is not None:
                    break
                if seen.errors or (lost := _lost(reader, seen, on_event)):
                    # One rank said why it dies, or died without a word: its peers would wait for it in a collective.
                    stopped = "failed" if seen.errors else "dead_rank"
                    break
                if time_limit and elapsed > time_limit:
                    stopped = "hung"
                    break
                if stall_limit and time.monotonic() - seen.last_progress > stall_limit:
                    stopped = "hung"
                    break
                time.sleep(0.05)
        except KeyboardInterrupt:
            stopped = "interrupted"
        finally:
            # Ctrl-C again must not leave half of them: wait until all are gone.
            previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                lost |= _lost(reader, seen, on_event)  # looked for before the rest is ended
                tail = _tail(log)  # before the launcher prints how it was ended
                if seen.errors:
                    time.sleep(0.3)  # let the other ranks say their own word, if they have one
                guard.end_all(run_id)
                process.wait()
                watcher.stop()
                _collect(reader, seen, on_event)
                said.more()
                assert watchman.stdin is not None
                watchman.stdin.close()
                watchman.wait()
            finally:
                signal.signal(signal.SIGINT, previous)
    tail = tail if stopped else _tail(log)
    elapsed = time.monotonic() - started
    return _outcome(seen, code, stopped, lost, elapsed, watcher.peaks, log, tail, expects_status, time_limit)


def _collect(reader: StatusReader, seen: _Seen, on_event: Callable[[dict[str, Any]], None] | None) -> None:
    for event in reader.new():
        seen.events.append(event)
        seen.last_progress = time.monotonic()
        if event["event"] == "error":
            seen.errors.append(event)
        if on_event:
            on_event(event)


def _lost(reader: StatusReader, seen: _Seen, on_event: Callable[[dict[str, Any]], None] | None) -> set[int]:
    """Ranks of this host whose process is gone although they said neither that they were done nor why they failed."""

    def silent() -> set[int]:
        last = {event["rank"] for event in seen.events if event["event"] in ("done", "error")}
        started = [event for event in seen.events if event["event"] == "start" and event["rank"] not in last]
        here = socket.gethostname()
        return {event["rank"] for event in started if event["host"] == here and not guard.alive(event["pid"])}

    gone = silent()
    if gone:
        _collect(reader, seen, on_event)  # the last word may have come since
    return gone & silent()


def _of_a_peer(error: dict[str, Any]) -> bool:
    """Whether a rank's last word is only that it lost another."""
    return bool(error["kind"] == "failed" and _PEER.search(str(error.get("trace", ""))))


def _tail(log: Path, count: int = 12) -> tuple[str, ...]:
    with log.open("rb") as handle:
        handle.seek(max(0, log.stat().st_size - 64_000))
        text = handle.read().decode("utf-8", "replace")
    return tuple(deque((line for line in text.splitlines() if line.strip()), maxlen=count))


def _outcome(
    seen: _Seen, code: int | None, stopped: Ending | None, lost: set[int], seconds: float, peaks: Peaks, log: Path,
    tail: tuple[str, ...], expects_status: bool, time_limit: float | None,
) -> Outcome:  # fmt: skip
    def ended(ending: Ending, sentence: str, lines: tuple[str, ...] = tail) -> Outcome:
        return Outcome(ending, sentence, seconds, peaks, tuple(seen.events), lines, log)

    if stopped == "interrupted":
        return ended("interrupted", "Interrupted; every process of the run was ended.", ())
    if lost and (stopped == "dead_rank" or (seen.errors and all(map(_of_a_peer, seen.errors)))):
        hint = "; the kernel does that when host RAM runs out" if peaks.host_low else ""
        who = f"rank {min(lost)}" if len(lost) == 1 else f"ranks {', '.join(map(str, sorted(lost)))}"
        return ended("dead_rank", f"The run died: {who} ended without a word, as a killed process does{hint}.")
    if seen.errors:
        first = min(seen.errors, key=lambda event: event["time"])
        lines = tuple(str(first.get("trace", "")).splitlines()[-12:]) or tail
        return ended(first["kind"], f"Rank {first['rank']} {first['message']}", lines)
    if stopped == "hung":
        why = f"after the time limit of {time_limit:.0f} s" if time_limit and seconds > time_limit else (
            "because nothing moved any more (a collective that waits for a lost rank looks like this)"
        )  # fmt: skip
        return ended("hung", f"The run was ended {why}.")
    done = {event["rank"] for event in seen.events if event["event"] == "done"}
    if code == 0 and (done or not expects_status):
        return ended("ok", "The run ended well.", ())
    if code == 0:
        return ended("failed", "The program ended without a result: it never reported that it was done.")
    text = "\n".join(tail)
    for ending, sign in _SIGNS:
        found = sign.search(text)
        if found:
            return ended(ending, f"The run failed: {found.group(0)}.")
    silent = {event["rank"] for event in seen.events} - done
    killed = (code is not None and code < 0) or re.search(
        r"exitcode\s*:\s*-9|Signal 9|SIGKILL|code -9|return code = -9", text
    )
    if killed:
        who = f"rank {min(silent)}" if len(silent) == 1 else "a rank"
        hint = "; the kernel does that when host RAM runs out" if peaks.host_low else ""
        return ended("dead_rank", f"The run died: {who} was killed by a signal{hint}.")
    return ended("failed", f"The program ended with exit code {code}.")
