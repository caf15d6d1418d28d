"""From the content of a config.json to a :class:`ModelSpec`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.job import Dtype
from advisor.models.checkpoint import Weights
from advisor.models.spec import CONTEXT_KEYS, HIDDEN_KEYS, LAYER_KEYS, VOCAB_KEYS, Kind, ModelSpec, Source

_DTYPES: Mapping[str, Dtype] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
# Architectures that only fill in masked tokens; everything else that is no encoder-decoder generates.
_MASKED = frozenset(
    ("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "mobilebert", "modernbert",
     "mpnet", "nomic_bert", "roberta", "roformer", "xlm-roberta", "xlm-roberta-xl")
)  # fmt: skip
_SEQ2SEQ = frozenset(("mt5", "t5", "umt5"))  # the others say is_encoder_decoder in their files
# Where a composite model (vision, audio) keeps its language model.
_TEXT_KEYS = ("text_config", "llm_config", "language_config")
# Not the architecture's: they are taken out, or would be read again by the library.
_OTHER_KEYS = ("auto_map", "transformers_version", "_name_or_path", "dtype", "torch_dtype", "quantization_config")


def spec_from_config(
    asked: str, raw: object, source: Source, *, where: str, weights: Weights, trust_remote_code: bool = False
) -> ModelSpec:
    """The spec of a config.json's content ``raw``, read from ``where``, and of the ``weights`` that lie beside it.

    Of a composite model the text model alone is taken. Raises InputError that names the field which is missing or
    wrong, an architecture that the installed transformers lacks, and a model that needs its own code while
    ``trust_remote_code`` is false.
    """
    if not isinstance(raw, Mapping):
        raise InputError(where, "is no model config", found=type(raw).__name__, expected="a JSON object")
    config, place, notes = _text_model(raw)
    own_code = "auto_map" in raw or "auto_map" in config
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise InputError(where, "is missing or no text", field=place + "model_type", found=model_type,
                         expected='the architecture, such as "llama"')  # fmt: skip
    native = _native(model_type)
    if not native and not own_code:
        from advisor.cache import version_of

        raise InputError(where, f"is no architecture of transformers {version_of('transformers')}", found=model_type,
                         field=place + "model_type", expected="one that it has (a newer release may)")  # fmt: skip
    if not native and not trust_remote_code:
        raise InputError(where, f"{model_type!r} is not part of transformers and needs the model's own code",
                         field="auto_map", expected="--trust-remote-code, if you trust its author")  # fmt: skip
    if place and native:
        config = _with_defaults(config, model_type)
    for names in (LAYER_KEYS, HIDDEN_KEYS, VOCAB_KEYS):
        _check_count(config, names, where, place)
    quantization = raw.get("quantization_config") or config.get("quantization_config")
    if quantization is not None and not isinstance(quantization, Mapping):
        raise InputError(where, "is no table", field="quantization_config", found=quantization)
    return ModelSpec(
        name=asked,
        asked=asked,
        loader_repo=asked,
        source=source,
        kind=_kind(model_type, config),
        config={key: value for key, value in config.items() if key not in _OTHER_KEYS},
        # A quantized checkpoint stores packed integers, and the files of a composite model hold more than its text
        # model: neither tells the number of parameters.
        parameters=weights.parameters if quantization is None and not place else None,
        checkpoint_bytes=weights.bytes,
        dtype=_dtype(config) or _dtype(raw) or weights.dtype or "fp32",
        quantization_config=quantization,
        trust_remote_code=own_code and trust_remote_code,
        notes=notes,
    )


def _dtype(config: Mapping[str, Any]) -> Dtype | None:
    # Before transformers 5 the field was called torch_dtype.
    name = config.get("dtype") or config.get("torch_dtype")
    return _DTYPES.get(str(name).removeprefix("torch."))


def _text_model(raw: Mapping[str, Any]) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """(config of the text model, prefix of its fields, notes); of a plain model the config itself and no prefix."""
    for key in _TEXT_KEYS:
        inner = raw.get(key)
        if isinstance(inner, Mapping) and not any(name in raw for name in LAYER_KEYS):
            config = dict(inner)
            if "tie_word_embeddings" in raw:
                config.setdefault("tie_word_embeddings", raw["tie_word_embeddings"])
            kind = raw.get("model_type", "a composite model")
            return config, f"{key}.", (f"{kind}: only its text model is planned, without vision or audio parts",)
    return dict(raw), "", ()


def _with_defaults(config: dict[str, Any], model_type: str) -> dict[str, Any]:
    """``config`` with the sizes that it leaves to its class.

    Only nested configs are written so short (Gemma 3 leaves its vocabulary out); in a config.json of its own a missing
    size is an error. Imports transformers, but only when something is missing.
    """
    groups = (LAYER_KEYS, HIDDEN_KEYS, VOCAB_KEYS, CONTEXT_KEYS)
    if all(any(name in config for name in names) for names in groups):
        return config
    from transformers import AutoConfig

    known = {key: value for key, value in config.items() if key not in (*_OTHER_KEYS, "model_type")}
    whole = AutoConfig.for_model(model_type, **known).to_dict()
    missing = [name for names in groups if not any(name in config for name in names) for name in names]
    return config | {name: whole[name] for name in missing if isinstance(whole.get(name), int)}


def _check_count(config: Mapping[str, Any], names: tuple[str, ...], where: str, place: str) -> None:
    for name in names:
        if name in config:
            value = config[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(where, "is no positive whole number", field=place + name, found=value)
            return
    raise InputError(where, "is missing", field=place + names[0], expected="a positive whole number")


@cache
def _native(model_type: str) -> bool:
    """Whether the installed transformers has the architecture: its table of names is read, nothing is imported."""
    import importlib.util

    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return True  # the step that needs the library says that it is missing
    tables = (Path(spec.origin).parent / "models" / "auto").glob("*.py")
    return any(f'("{model_type}", "' in path.read_text(encoding="utf-8") for path in sorted(tables))


def _kind(model_type: str, config: Mapping[str, Any]) -> Kind:
    if model_type in _SEQ2SEQ or config.get("is_encoder_decoder"):
        return "seq2seq"
    if model_type in _MASKED and not config.get("is_decoder"):
        return "masked"
    return "causal"
