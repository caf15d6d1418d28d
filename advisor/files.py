"""Writing files whole or not at all, and reading JSON with a clear error."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from advisor.errors import InputError


def write_whole(path: Path, text: str | bytes, mode: int | None = None) -> None:
    """Write ``text`` to ``path`` through a temporary file in the same folder and a rename.

    ``mode`` are the permission bits of the result; by default those of a new file under the user's umask. A device or
    pipe (/dev/null, /dev/stdout) is written into, never replaced. Raises InputError when the folder cannot be written
    to; a failed write leaves the old file as it was.
    """
    data = text.encode() if isinstance(text, str) else text
    temporary: str | None = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as device:
                device.write(data)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        # mkstemp makes the file private; a written result follows the user's umask like any other.
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask if mode is None else mode)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(str(path), f"cannot be written ({error.strerror})", expected="a writable folder") from error


def read_json(path: Path) -> Any:
    """The JSON value in ``path``. Raises InputError naming the file and line when it is missing or broken."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(str(path), f"cannot be read ({reason})") from error
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "nested too deep"
        raise InputError(str(path), f"is not valid JSON ({where})") from error
