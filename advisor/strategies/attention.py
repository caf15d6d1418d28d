"""Which attention kernels a model's class has in the installed transformers, and which of them a plan runs.

Read off the class without making a model: loading BLOOM, MPT, GPT-Neo, Gemma-2, gpt-oss or DeBERTa with SDPA is an
error in the library, so a plan for them says "eager", and the trace runs what the plan says.
"""

from __future__ import annotations

from typing import Any

from advisor.cache import cached, source_digest, version_of
from advisor.errors import InputError
from advisor.job import Attention, Workload
from advisor.models.spec import ModelSpec


def attention_of(model: ModelSpec, workload: Workload) -> Attention:
    """The attention kernel: as asked, else SDPA, else the plain one where the class has no SDPA path.

    Raises InputError for a kernel that was asked for and that transformers refuses to load this model with.
    """
    found = kernels_of(model)
    asked = workload.attention
    if asked is None:
        return "sdpa" if found["sdpa"] else "eager"
    if asked == "eager" or found[asked]:
        return asked
    others = "eager, or no --attention" if not found["sdpa"] else "sdpa or eager"
    raise InputError(
        "--attention",
        f"{found['class']} has no {asked} path in transformers {version_of('transformers')}, which would refuse to "
        f"load {model.name}",
        found=asked,
        expected=others,
    )


def kernels_of(model: ModelSpec) -> dict[str, Any]:
    """``class`` (its name), ``sdpa`` and ``flash_attention_2`` (whether transformers loads the model with it).

    Raises InputError when transformers has no such architecture.
    """
    key = {
        "model_type": model.model_type,
        "kind": model.kind,
        "capped": bool(model.config.get("attn_logit_softcapping")),
        "version": version_of("transformers"),
        "code": source_digest("strategies/attention"),
    }
    found: dict[str, Any] = cached("attention", key, lambda: _read(model))
    return found


def _read(model: ModelSpec) -> dict[str, Any]:
    import transformers

    from advisor.memory.trace.build import AUTO, full_config

    config = full_config(model)
    cls = getattr(transformers, AUTO[model.kind])._model_mapping.get(type(config), None)
    if cls is None:
        raise InputError(
            model.asked,
            f"transformers {version_of('transformers')} has no {model.kind} model of type {model.model_type}",
        )
    # Scores under a soft cap cannot run in SDPA; versions that loaded such models with it left the cap out.
    capped = bool(getattr(config, "attn_logit_softcapping", None))
    return {
        "class": cls.__name__,
        "sdpa": bool(cls._supports_sdpa) and not capped,
        # gpt-oss names the FlashAttention builds that know its attention sinks; version 2 is none of them.
        "flash_attention_2": bool(getattr(cls, "_supports_flash_attn", False))
        and not getattr(cls, "_compatible_flash_implementations", None),
    }
