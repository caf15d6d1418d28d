"""The facts of one model that everything else reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Source = Literal["local", "catalogue", "cache", "hub"]
Kind = Literal["causal", "seq2seq", "masked"]

# Families name the same size differently in config.json; the first that is set counts.
LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers")
HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model", "dim")
VOCAB_KEYS = ("vocab_size",)
# Architectures whose positions are rows of a table: a longer input has none and fails.
TABLED = frozenset((
    "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "codegen", "opt", "bert", "roberta", "xlm-roberta", "camembert",
    "distilbert", "electra", "albert", "bart", "mbart",
))  # fmt: skip
_PADDED = frozenset(("roberta", "xlm-roberta", "camembert"))  # two rows of their table are for padding
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as resolved from a name, folder or config.json.

    ``config`` is the text model's config.json content (plain JSON; with ``model_type``), enough for
    ``transformers.AutoConfig.for_model``. ``parameters`` counts unique parameters (tied weights once); None when no
    published or stored count is known, then the meta model counts. ``checkpoint_bytes`` is the size of the weight
    files when an index or the files are there. ``dtype`` is the checkpoint's own ("bf16", "fp16", "fp32").
    ``quantization_config`` is the checkpoint's own, if it is stored quantized.
    """

    name: str  # as the user will know it: Hub id or folder name
    asked: str  # what was typed
    loader_repo: str  # what from_pretrained should be given (Hub id or local path)
    source: Source
    kind: Kind
    config: Mapping[str, Any]
    parameters: int | None = None
    active_parameters: int | None = None  # used a token, for mixture of experts; None for dense models
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    quantization_config: Mapping[str, Any] | None = None
    checkpoint_bytes: int | None = None
    path: Path | None = None  # local folder that holds the weights or config
    trust_remote_code: bool = False
    gated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def model_type(self) -> str:
        """The architecture's name in transformers."""
        return str(self.config["model_type"])

    def first(self, *keys: str, default: int | None = None) -> int | None:
        """The first of several config keys that is set to a number (families name the same fact differently)."""
        for key in keys:
            value = self.config.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return default

    @property
    def layers(self) -> int:
        """Number of decoder layers (encoder layers for an encoder; decoder layers for encoder-decoder)."""
        return self.first(*LAYER_KEYS) or 0

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.first(*HIDDEN_KEYS) or 0

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return self.first(*VOCAB_KEYS) or 0

    @property
    def position_limit(self) -> int | None:
        """The longest input, prompt and answer together, where a longer one fails; None where none does."""
        limit = self.context_length if self.model_type in TABLED else None
        return limit - 2 if limit is not None and self.model_type in _PADDED else limit

    @property
    def context_length(self) -> int | None:
        """Longest position that the config allows, if it says so."""
        return self.first(*CONTEXT_KEYS)
