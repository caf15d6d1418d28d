"""The user's own archive of run records."""

from __future__ import annotations

import os
from pathlib import Path

from advisor.record import RunRecord, append_record


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
