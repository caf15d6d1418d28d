"""The Hugging Face cache of this machine, and the Hub itself: config.json, index and metadata, never weights.

huggingface_hub does both, so its settings hold: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.models.checkpoint import SAFETENSORS_INDEX, Weights, read_index

_CONFIG = "config.json"
_TOKEN = "a token (hf auth login, or HF_TOKEN)"
# safetensors' names of what counts as a parameter; integers are buffers or packed weights.
_FLOATS = ("BF16", "F16", "F32", "F64")


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the Hub told of a repository."""

    config: Path
    weights: Weights  # as the Hub counted them
    gated: bool
    notes: tuple[str, ...]


def cached_config(repo: str) -> Path | None:
    """config.json of ``repo`` in the cache (the revision that ``main`` points to); None when it is not there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repo, _CONFIG)
    except HFValidationError:
        return None  # no Hub id at all
    return Path(found) if isinstance(found, str) else None


def fetch(repo: str) -> Fetched:
    """Ask the Hub for ``repo``. Raises InputError when it is not reachable, or refuses, or has no such model."""
    from huggingface_hub import errors, hf_hub_download

    _check_reachable(repo)
    try:
        config = Path(hf_hub_download(repo, _CONFIG))
    except errors.GatedRepoError as error:
        raise InputError(
            "--model", "is gated on the Hub", found=repo, expected=f"a licence accepted on its page, and {_TOKEN}"
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise InputError(
            "--model", "is neither in the catalogue nor on the Hub", found=repo,
            expected=f"a Hub id; for a private one {_TOKEN}",
        ) from error  # fmt: skip
    except errors.LocalEntryNotFoundError as error:
        raise _unreachable(repo) from error
    except errors.EntryNotFoundError as error:
        raise InputError(
            "--model", "has no config.json on the Hub", found=repo,
            expected="a transformers model (no adapter, no GGUF, no original weights)",
        ) from error  # fmt: skip
    try:
        size, _ = read_index(Path(hf_hub_download(repo, SAFETENSORS_INDEX)))
    except errors.EntryNotFoundError:
        size = None  # a checkpoint of one file has no index
    parameters, gated, notes = _metadata(repo)
    return Fetched(config, Weights(parameters=parameters, bytes=size), gated, notes)


def _check_reachable(repo: str) -> None:
    """Ask the Hub once for anything: huggingface_hub itself tries for half a minute before it gives up."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except _transport_errors() as error:
        raise _unreachable(repo) from error


def _unreachable(repo: str) -> InputError:
    from huggingface_hub import constants

    reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer"
    return InputError(
        "--model", f"cannot be fetched ({reason})", found=repo, expected="a local model folder or a config.json"
    )


def _transport_errors() -> tuple[type[BaseException], ...]:
    """The HTTP library's own base error and OSError, whichever library this huggingface_hub is built on."""
    from huggingface_hub import errors

    return tuple(errors.HfHubHTTPError.__bases__)


def _metadata(repo: str) -> tuple[int | None, bool, tuple[str, ...]]:
    """(parameters, gated, notes) as the Hub's API tells them. Without them planning goes on: the config is counted."""
    from huggingface_hub import HfApi

    try:
        info = HfApi().model_info(repo, expand=["safetensors", "gated"])
    except _transport_errors() as error:
        return None, False, (f"the Hub gave no parameter count ({type(error).__name__}): counted from the config",)
    counts: Mapping[str, int] = info.safetensors.parameters if info.safetensors is not None else {}
    parameters = sum(count for name, count in counts.items() if name in _FLOATS)
    return parameters or None, bool(info.gated), ()
