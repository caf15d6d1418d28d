"""A disk cache of slow results (fake-tensor traces, device maps, estimates), keyed by everything that changes them.

A warm ``advisor recommend`` reads these and never imports torch. Entries are small JSON files under the user's cache
folder, or ``ADVISOR_CACHE_DIR``; a broken entry counts as missing and is written anew.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.files import read_json, write_whole

_LOG = logging.getLogger("advisor")


def cache_dir() -> Path:
    """The folder of cached results: ``ADVISOR_CACHE_DIR``, else the platform's user cache folder."""
    override = os.environ.get("ADVISOR_CACHE_DIR")
    if override:
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_cache_dir("advisor"))


@cache
def version_of(package: str) -> str | None:
    """The installed version of a distribution, without importing it; None when it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def source_digest(*packages: str) -> str:
    """A digest of our own source files below ``packages``: a changed memory model never reads old results."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for package in packages:
        target = root / package
        paths = sorted(target.rglob("*.py")) if target.is_dir() else [target.with_suffix(".py")]
        for path in paths:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def cached(kind: str, key: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
    """The JSON value stored for ``key`` under ``kind``; computed and stored when it is not there.

    ``key`` must hold everything the result depends on: arguments, library versions, our own ``source_digest``. An
    unwritable cache folder is no error: the result is computed each time.
    """
    text = json.dumps(key, sort_keys=True, default=str)
    path = cache_dir() / kind / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    if path.is_file():
        try:
            return read_json(path)["value"]
        except (InputError, KeyError, TypeError):
            path.unlink(missing_ok=True)
    _LOG.info("%s", kind.replace("_", " "))
    start = time.perf_counter()
    value = compute()
    _LOG.debug("%s took %.2f s", kind.replace("_", " "), time.perf_counter() - start)
    try:
        write_whole(path, json.dumps({"key": json.loads(text), "value": value}))
    except InputError:
        return value
    return value
