"""The user's own archive of run records, and what later predictions learn from it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from advisor.job import Job
from advisor.record import RunRecord, append_record, read_records


def archive_path() -> Path:
    """``records.jsonl`` in ``ADVISOR_DATA_DIR``, else in the platform's user data folder."""
    override = os.environ.get("ADVISOR_DATA_DIR")
    if override:
        return Path(override) / "records.jsonl"
    import platformdirs

    return Path(platformdirs.user_data_dir("advisor")) / "records.jsonl"


def keep(record: RunRecord) -> Path:
    """Append a record to the archive; returns where it lies."""
    path = archive_path()
    append_record(record, path)
    return path


@dataclass(frozen=True, slots=True)
class Correction:
    """What runs of the same kind on this machine showed: the median of measured over predicted."""

    runs: int
    gpu_used: float | None
    speed: float | None  # measured time over predicted time


def like(job: Job, machine: str) -> list[RunRecord]:
    """Records of good runs on ``machine`` with the same strategy, task and method, newest last."""
    path = archive_path()
    if not path.exists():
        return []
    return [
        record
        for record in read_records(path)
        if record.hardware == machine
        and record.measured.outcome == "ok"
        and record.strategy.name == job.strategy
        and record.workload.task == job.task
        and record.job().method == job.method
    ]
