"""Peaks of a run as seen from outside: GPU memory by NVML, host RAM of the machine and of the run's processes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from advisor.execute.guard import members


@dataclass
class Peaks:
    """Bytes. ``gpu_used`` is each card's peak above what was used before; ``host_ram`` the fall of available memory."""

    gpu_used: list[int] = field(default_factory=list)
    gpu_before: list[int] = field(default_factory=list)
    host_ram: int = 0
    process_ram: int = 0  # proportional share of the run's processes, where the system tells it
    host_low: bool = False  # available memory fell under 3% of the machine


class Watcher:
    """Samples in a thread from :meth:`start` to :meth:`stop`."""

    def __init__(self, run_id: str, interval: float = 0.05) -> None:
        self.peaks = Peaks()
        self._run_id, self._interval = run_id, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._available = 0
        self._total = 0

    def start(self) -> None:
        """Take the state before the run and begin to sample."""
        import psutil

        memory = psutil.virtual_memory()
        self._available, self._total = memory.available, memory.total
        self.peaks.gpu_before = gpu_used()
        self.peaks.gpu_used = [0] * len(self.peaks.gpu_before)
        self._thread.start()

    def stop(self) -> None:
        """End sampling."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        import psutil

        peaks, next_tree = self.peaks, 0.0
        while not self._stop.is_set():
            available = psutil.virtual_memory().available
            peaks.host_ram = max(peaks.host_ram, self._available - available)
            peaks.host_low = peaks.host_low or available < 0.03 * self._total
            for index, used in enumerate(gpu_used()[: len(peaks.gpu_used)]):
                peaks.gpu_used[index] = max(peaks.gpu_used[index], used - peaks.gpu_before[index])
            if time.monotonic() >= next_tree:  # walking all processes is dear
                peaks.process_ram = max(peaks.process_ram, _resident(self._run_id))
                next_tree = time.monotonic() + 1.0
            self._stop.wait(self._interval)


def _resident(run_id: str) -> int:
    import psutil

    total = 0
    for pid in members(run_id):
        try:
            total += psutil.Process(pid).memory_info().rss
        except psutil.Error:  # it ended between the two looks
            continue
    return total


def gpu_used() -> list[int]:
    """Used bytes of every card NVML shows; empty without NVML."""
    from advisor.hardware.nvml import used_bytes

    return used_bytes()
