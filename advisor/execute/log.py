"""``--log``: what happens in a run as JSON lines, there as it happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.execute.options import Hooks
from advisor.execute.watch import Peaks


@contextmanager
def logged(hooks: Hooks, path: Path | None) -> Iterator[Hooks]:
    """``hooks`` that also write to ``path``; as they are without one. Raises InputError when it cannot be written."""
    if path is None:
        yield hooks
        return
    try:
        handle = path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"cannot be written ({error.strerror})", field="--log") from error
    with handle:

        def write(value: dict[str, Any]) -> None:
            handle.write(json.dumps(value) + "\n")
            handle.flush()

        yield _tee(hooks, write)


def _tee(hooks: Hooks, write: Callable[[dict[str, Any]], None]) -> Hooks:
    last = 0.0

    def event(value: dict[str, Any]) -> None:
        write(value)
        hooks.on_event(value)

    def tick(peaks: Peaks, seconds: float) -> None:
        nonlocal last
        if seconds - last >= 1.0:
            last = seconds
            write({
                "event": "watch", "time": time.time(), "seconds": round(seconds, 2), "gpu_used": peaks.gpu_used,
                "host_ram": peaks.host_ram, "process_ram": peaks.process_ram,
            })  # fmt: skip
        hooks.on_tick(peaks, seconds)

    return replace(hooks, on_event=event, on_tick=tick)
