"""How a running rank tells its supervisor what happens: JSON lines in a folder, one file a rank.

A file needs no port, survives a killed rank, and keeps its last words. Events: loaded, prefill, step, text, done, error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Status:
    """The writing side, one a rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"rank-{rank}.jsonl"
        self.rank = rank

    def write(self, event: str, **values: Any) -> None:
        """Append one event; the line is flushed at once, so that a kill loses nothing that was said."""
        line = json.dumps({"event": event, "rank": self.rank, "time": time.time(), **values})
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(line + "\n")


@dataclass
class StatusReader:
    """The reading side: every new event of all ranks since the last look."""

    folder: Path
    _offsets: dict[Path, int] = field(default_factory=dict)

    def new(self) -> Iterator[dict[str, Any]]:
        """Events in the order each rank wrote them. A half-written last line waits for the next look."""
        for path in sorted(self.folder.glob("rank-*.jsonl")):
            offset = self._offsets.get(path, 0)
            with path.open("rb") as handle:
                handle.seek(offset)
                data = handle.read()
            whole, newline, _ = data.rpartition(b"\n")
            if not newline:
                continue
            self._offsets[path] = offset + len(whole) + 1
            for line in whole.split(b"\n"):
                if line:
                    yield json.loads(line)
