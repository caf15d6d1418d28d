"""From a name to a :class:`ModelSpec`: local folder or config.json, catalogue, Hugging Face cache, Hub.

Reads small JSON files only; weights and code are never fetched. The Hub is asked only when the caller allows it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from advisor.errors import InputError
from advisor.files import read_json
from advisor.models.spec import Kind, ModelSpec, Source

_CATALOGUE = Path(__file__).parent / "catalogue"
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
_SEQ2SEQ = {"t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "longt5", "led", "m2m_100", "nllb-moe"}
_MASKED = {"bert", "roberta", "xlm-roberta", "distilbert", "albert", "electra", "deberta", "deberta-v2", "modernbert"}
# Fields that a config needs before anything can be said about memory; families name the same fact differently.
_NEEDED: tuple[tuple[str, ...], ...] = (
    ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    ("hidden_size", "n_embd", "d_model", "dim"),
    ("vocab_size",),
)
_WEIGHT_SUFFIXES = (".safetensors", ".bin")


@cache
def catalogue() -> Mapping[str, Mapping[str, Any]]:
    """Every shipped model by Hub id."""
    models: dict[str, Mapping[str, Any]] = {}
    for path in sorted(_CATALOGUE.glob("*.json")):
        models.update(json.loads(path.read_text(encoding="utf-8")))
    return models


@cache
def _names() -> Mapping[str, tuple[str, bool]]:
    """Lower-case names to (Hub id, is the original-weights repo): ids, aliases, ids without their owner."""
    names: dict[str, tuple[str, bool]] = {}
    for repo, entry in catalogue().items():
        names[repo.lower()] = (repo, False)
        for alias in entry.get("aliases", ()):
            names.setdefault(alias.lower(), (repo, False))
        if "original" in entry:
            names[entry["original"].lower()] = (repo, True)
    for repo in catalogue():
        names.setdefault(repo.split("/")[-1].lower(), (repo, False))
    return names


def resolve(name: str, *, allow_download: bool = False, trust_remote_code: bool = False) -> ModelSpec:
    """The model that ``name`` means: a local folder, a config.json, or a Hub id.

    Looked for in that order: this machine's disk, the built-in catalogue, the Hugging Face cache, and, with
    ``allow_download``, the Hub. Raises InputError for a name nobody knows (with the nearest known ones), a broken
    config, and a model that needs its own code without ``trust_remote_code``.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return _local(name, path, path / "config.json", trust_remote_code)
    if path.is_file():
        return _local(name, path.parent, path, trust_remote_code)
    if name.endswith(".json") or name.startswith((".", "/", "~")):
        raise InputError(name, "is no such file or folder", expected="a model folder, a config.json or a Hub id")
    known = _names().get(name.lower())
    if known is not None:
        return _from_catalogue(name, *known)
    cached = _cached_config(name)
    if cached is not None:
        spec = _from_file(name, cached, "cache", trust_remote_code)
        return replace(spec, name=name, loader_repo=name, path=cached.parent)
    if allow_download:
        return _from_hub(name, trust_remote_code)
    raise _unknown(name)


def _unknown(name: str) -> InputError:
    near = difflib.get_close_matches(name.lower(), list(_names()), n=4, cutoff=0.5)
    nearest = list(dict.fromkeys(_names()[key][0] for key in near))
    text = f"; nearest known: {', '.join(nearest)}" if nearest else ""
    return InputError(
        "--model", f"is not known{text}", found=name,
        expected="a local model folder, the path of a config.json, or a Hub id with --download",
    )  # fmt: skip


def _from_catalogue(asked: str, repo: str, original: bool) -> ModelSpec:
    entry = catalogue()[repo]
    notes: list[str] = []
    if original:
        notes.append(f"{entry['original']} holds the original weights; loaders need {repo}, which is planned here")
    if entry.get("gated"):
        notes.append(f"{repo} is gated: accept its licence on the Hub and log in before loading")
    return ModelSpec(
        name=repo,
        asked=asked,
        loader_repo=repo,
        source="catalogue",
        kind=cast(Kind, entry["kind"]),
        config=entry["config"],
        parameters=entry["parameters"],
        active_parameters=entry.get("active"),
        dtype=entry.get("dtype", "bf16"),
        quantization_config=entry.get("quantization_config"),
        gated=bool(entry.get("gated")),
        notes=tuple(notes),
    )


def _local(name: str, folder: Path, config: Path, trust_remote_code: bool) -> ModelSpec:
    if not config.is_file():
        raise InputError(name, "has no config.json", expected="a folder as save_pretrained writes it")
    spec = _from_file(name, config, "local", trust_remote_code)
    parameters, size = _weights(folder)
    label = folder.resolve().name if config.name == "config.json" else config.stem
    return replace(
        spec,
        name=label,
        loader_repo=str(folder),
        path=folder.resolve(),
        parameters=parameters,
        checkpoint_bytes=size,
    )


def _from_file(asked: str, path: Path, source: Source, trust_remote_code: bool) -> ModelSpec:
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(str(path), "is no model config", found=type(value).__name__, expected="a JSON object")
    return from_config(asked, value, source, where=str(path), trust_remote_code=trust_remote_code)


def from_config(
    asked: str, raw: Mapping[str, Any], source: Source, *, where: str, trust_remote_code: bool = False
) -> ModelSpec:
    """A spec from the content of a config.json. Raises InputError naming the field that is missing or wrong."""
    config = dict(raw)
    notes: list[str] = []
    inner = config.get("text_config") or config.get("llm_config")
    if isinstance(inner, Mapping) and not any(key in config for key in _NEEDED[0]):
        notes.append(f"{config.get('model_type', 'a composite model')}: the text model alone is planned")
        outer, config = config, dict(inner)
        for key in ("dtype", "torch_dtype", "quantization_config", "tie_word_embeddings", "auto_map"):
            if key in outer:
                config.setdefault(key, outer[key])
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise InputError(where, "is missing or no text", field="model_type", found=model_type)
    for names in _NEEDED:
        found = [config[key] for key in names if key in config]
        if not found:
            raise InputError(where, "is missing", field=names[0])
        if isinstance(found[0], bool) or not isinstance(found[0], int) or found[0] < 1:
            raise InputError(where, "is no positive whole number", field=names[0], found=found[0])
    if "auto_map" in config and not trust_remote_code and not _native(model_type):
        raise InputError(
            where, f"{model_type!r} is not part of transformers and needs the model's own code", field="auto_map",
            expected="--trust-remote-code, if you trust it",
        )  # fmt: skip
    dtype = config.pop("dtype", None) or config.get("torch_dtype") or "float32"
    config.pop("torch_dtype", None)
    quantization = config.pop("quantization_config", None)
    return ModelSpec(
        name=asked,
        asked=asked,
        loader_repo=asked,
        source=source,
        kind=_kind(model_type, config),
        config={key: item for key, item in config.items() if key not in ("auto_map", "transformers_version")},
        dtype=cast(Any, _DTYPES.get(str(dtype).removeprefix("torch."), "fp32")),
        quantization_config=quantization if isinstance(quantization, Mapping) else None,
        trust_remote_code="auto_map" in config and trust_remote_code,
        notes=tuple(notes),
    )


@cache
def _native(model_type: str) -> bool:
    """Whether transformers has the architecture: its model folders are looked at, nothing is imported."""
    import importlib.util

    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return True
    folder = model_type.replace("-", "_").removesuffix("_text")
    return (Path(spec.origin).parent / "models" / folder).is_dir()


def _kind(model_type: str, config: Mapping[str, Any]) -> Kind:
    if model_type in _SEQ2SEQ or config.get("is_encoder_decoder"):
        return "seq2seq"
    if model_type in _MASKED and not config.get("is_decoder"):
        return "masked"
    return "causal"


def _weights(folder: Path) -> tuple[int | None, int | None]:
    """(parameters, bytes) of the safetensors files of a folder, from their headers; None where there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            size = read_json(index).get("metadata", {}).get("total_size")
            return None, size if isinstance(size, int) else None
        return None, None
    parameters = total = 0
    for path in files:
        total += path.stat().st_size
        with path.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if length > 100_000_000:
                raise InputError(str(path), "is no safetensors file (its header claims to be over 100 MB)")
            try:
                header = json.loads(handle.read(length))
            except ValueError as error:
                raise InputError(str(path), "is no safetensors file (its header is not JSON)") from error
        for key, tensor in header.items():
            if key != "__metadata__":
                count = 1
                for extent in tensor["shape"]:
                    count *= extent
                parameters += count
    return parameters, total


def _cached_config(name: str) -> Path | None:
    """config.json of a repo in the Hugging Face cache; None when it is not there. Asks no network."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def _from_hub(name: str, trust_remote_code: bool) -> ModelSpec:
    import huggingface_hub
    from huggingface_hub import errors

    try:
        path = Path(huggingface_hub.hf_hub_download(name, "config.json"))
    except errors.GatedRepoError as error:
        raise InputError("--model", "is gated", found=name, expected="an accepted licence and a token (hf auth login)") from error
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        raise InputError(
            "--model", "cannot be fetched: the Hub is not reachable or HF_HUB_OFFLINE is set", found=name,
            expected="a local folder, or a network",
        ) from error  # fmt: skip
    except (errors.RepositoryNotFoundError, errors.EntryNotFoundError, errors.HFValidationError) as error:
        raise _unknown(name) from error
    spec = _from_file(name, path, "hub", trust_remote_code)
    size = None
    try:
        index = huggingface_hub.hf_hub_download(name, "model.safetensors.index.json")
        size = read_json(Path(index)).get("metadata", {}).get("total_size")
    except (errors.EntryNotFoundError, errors.LocalEntryNotFoundError):
        size = None  # a single-file checkpoint has no index
    return replace(spec, name=name, loader_repo=name, checkpoint_bytes=size if isinstance(size, int) else None)
