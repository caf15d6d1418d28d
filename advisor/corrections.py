"""The user's own archive as a correction: a machine that knows what its own runs took beside what was said.

Times: the median of taken over said, for each kind of job that was run here. Memory: the bytes that lay outside torch's
allocator, unless the probe measured them. Only runs of this very machine count, and a run's prediction is kept as it was
before any correction, so that corrections do not build on themselves.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable

from advisor import archive
from advisor.errors import InputError
from advisor.hardware.profile import Correction, HardwareProfile, Measured
from advisor.job import StrategyName, Task
from advisor.record import RunRecord, read_records
from advisor.timing.corrected import offloads

# Beyond this a run and its prediction are not of the same thing (another process on the card, a throttled machine).
_BELIEVED = (0.25, 4.0)


def fingerprint(machine: HardwareProfile) -> str | None:
    """What tells this machine from others in an archive: the node's name and its cards. None when it is not here."""
    if not machine.here:
        return None
    cards = ", ".join(f"{gpu.count}x {gpu.name}" for gpu in machine.gpus) or "no GPU"
    return f"{machine.host.name or 'this machine'}: {cards}"


def corrected_by_own_runs(machine: HardwareProfile) -> HardwareProfile:
    """``machine`` with its corrections, and a note that says so; as it is when there are no runs of it.

    An archive that cannot be read is no reason to fail: the note says that it was left out, and why.
    """
    name, path = fingerprint(machine), archive.archive_path()
    if name is None or not path.is_file():
        return machine
    try:
        records = read_records(path)
    except InputError as error:
        return machine.model_copy(update={"notes": (*machine.notes, f"own runs were left out: {error}")})
    own = [record for record in records if record.machine == name and record.measured.outcome == "ok"]
    found = tuple(corrections(own))
    notes = [f"{one.task} by {one.strategy}: corrected by {_runs(one.runs)} on this machine ({one.time - 1:+.0%})"
             for one in found]  # fmt: skip
    measured = _runtime(machine, own)
    if measured is not machine.measured:
        notes.append("bytes outside torch's allocator are those that own runs showed")
    return machine.model_copy(
        update={"corrections": found, "measured": measured, "notes": (*machine.notes, *notes)}
    )  # fmt: skip


def corrections(own: Iterable[RunRecord]) -> Iterable[Correction]:
    """One correction for each kind of job among the records."""
    ratios: dict[tuple[Task, StrategyName, bool], list[float]] = defaultdict(list)
    for record in own:
        ratio = _ratio(record)
        if ratio is not None and _BELIEVED[0] <= ratio <= _BELIEVED[1]:
            ratios[record.workload.task, record.strategy.name, offloads(record.job())].append(ratio)
    for (task, strategy, offload), found in sorted(ratios.items()):
        yield Correction(
            task=task, strategy=strategy, offload=offload, runs=len(found), time=statistics.median(found)
        )  # fmt: skip


def _ratio(record: RunRecord) -> float | None:
    said, took = record.predicted, record.measured
    if said is None:
        return None
    if said.step_seconds and took.step_seconds:
        return took.step_seconds / said.step_seconds
    if said.decode_tokens_per_second and took.decode_tokens_per_second:
        return said.decode_tokens_per_second / took.decode_tokens_per_second
    return None


def _runtime(machine: HardwareProfile, own: list[RunRecord]) -> Measured | None:
    """The machine's measured values with the runtime bytes of own one-process runs, where nothing was measured."""
    seen = [
        record.measured.runtime_overhead
        for record in own
        if record.measured.runtime_overhead and record.job().world_size == 1
    ]
    before = machine.measured
    if not seen or (before is not None and before.context_bytes is not None):
        return before
    if before is None:
        return Measured(date="own runs", method="runs applied on this machine", context_bytes=max(seen))
    return before.model_copy(update={"context_bytes": max(seen)})


def _runs(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''}"
