"""From a name to a :class:`ModelSpec`: this machine's disk, the catalogue, the Hugging Face cache, the Hub.

Reads small JSON files only; weights and code are never fetched, and torch is not imported.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from advisor.errors import InputError
from advisor.files import read_json
from advisor.models import hub
from advisor.models.checkpoint import Weights, weights_in
from advisor.models.config import spec_from_config
from advisor.models.known import find, nearest
from advisor.models.spec import ModelSpec, Source

_WAYS = "a local model folder, the path of a config.json, or a Hub id with --download"


def resolve(name: str, *, allow_download: bool = False, trust_remote_code: bool = False) -> ModelSpec:
    """The model that ``name`` means: a local folder, a config.json, or a Hub id (any case; the owner may be left out).

    Looked for in that order: local disk, the built-in catalogue, the Hugging Face cache, and, with ``allow_download``,
    the Hub. Raises InputError for a name nobody knows (with the nearest known ones), a broken config, and a model that
    needs its own code without ``trust_remote_code``.
    """
    try:
        path = Path(name).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # no access, a name too long, ~ of an unknown user
        raise InputError("--model", f"cannot be looked up ({error})", found=name, expected=_WAYS) from error
    if is_folder and name.strip():
        return _local(name, path, path / "config.json", trust_remote_code)
    if is_file:
        return _local(name, path.parent, path, trust_remote_code)
    if not name.strip() or name.endswith(".json") or name.startswith((".", "/", "~")):
        raise InputError("--model", "is no such file or folder", found=name, expected=_WAYS)
    entry = find(name)
    if entry is not None:
        return entry.spec(name)
    cached = hub.cached_config(name)
    if cached is not None:
        spec = _read(name, cached, "cache", weights_in(cached.parent), trust_remote_code)
        return replace(spec, path=cached.parent)
    if not allow_download:
        near = nearest(name)
        hint = f"; nearest known: {', '.join(near)}" if near else ""
        raise InputError("--model", f"is not known here{hint}", found=name, expected=_WAYS)
    fetched = hub.fetch(name)
    spec = _read(name, fetched.config, "hub", fetched.weights, trust_remote_code)
    return replace(spec, gated=fetched.gated, notes=(*spec.notes, *fetched.notes))


def _read(name: str, config: Path, source: Source, weights: Weights, trust_remote_code: bool) -> ModelSpec:
    raw = read_json(config)
    return spec_from_config(
        name, raw, source, where=str(config), weights=weights, trust_remote_code=trust_remote_code
    )  # fmt: skip


def _local(name: str, folder: Path, config: Path, trust_remote_code: bool) -> ModelSpec:
    if not config.is_file():
        adapter = folder / "adapter_config.json"
        if adapter.is_file():
            facts = read_json(adapter)
            base = facts.get("base_model_name_or_path") if isinstance(facts, dict) else None
            raise InputError(name, "is an adapter, not a model", expected=f"the model it was made for ({base})")
        raise InputError(name, "has no config.json", expected="a folder as save_pretrained writes it")
    spec = _read(name, config, "local", weights_in(folder), trust_remote_code)
    folder = folder.resolve()
    label = folder.name if config.name == "config.json" else config.stem
    return replace(spec, name=label, loader_repo=str(folder), path=folder)
