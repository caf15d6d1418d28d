"""Ends every process of a run when its supervisor is gone: ``python -m advisor.execute.guard RUN_ID`` reads a pipe.

Launchers put ranks into sessions of their own, so a process group is not enough; every process of a run carries its id
in the environment, and that is what is looked for. The guard sits in its own session: a Ctrl-C does not reach it, and
when the supervisor dies, however it dies, the pipe closes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

RUN_ID = "ADVISOR_RUN_ID"


def members(run_id: str) -> list[int]:
    """Process ids of a run, this process left out."""
    import psutil

    found = []
    for process in psutil.process_iter(["pid"]):
        if process.pid == os.getpid():
            continue
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(RUN_ID) == run_id:
                found.append(process.pid)
        except (psutil.Error, OSError):  # gone, or another user's: not ours
            continue
    return found


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end_all(run_id: str, grace: float = 5.0) -> int:
    """SIGTERM, then SIGKILL after ``grace`` seconds, until no process of the run is left. Returns how many there were."""
    first = members(run_id)
    for number, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        left = members(run_id)
        for pid in left:
            _signal(pid, number)
        deadline = time.monotonic() + wait
        while left and time.monotonic() < deadline:
            time.sleep(0.05)
            left = members(run_id)
        if not left:
            break
    return len(first)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def start(run_id: str) -> subprocess.Popen[bytes]:
    """Start the guard; it acts when the returned process's stdin closes, so keep it until the run is over."""
    environment = {key: value for key, value in os.environ.items() if key != RUN_ID}
    return subprocess.Popen(
        [sys.executable, "-m", "advisor.execute.guard", run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_all(sys.argv[1])
