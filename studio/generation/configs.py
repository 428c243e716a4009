"""Read the shape of a model from a `config.json` in the form of Hugging Face Transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from studio.errors import ConfigError
from studio.generation.models import Model

_ROTARY = ("llama", "mistral", "qwen2", "qwen3")
_KINDS = (*_ROTARY, "gpt2")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_LARGEST_BYTES = 1 << 20


def read_config(path: Path) -> Model:
    """Return the model that a `config.json` describes; nothing is downloaded.

    Raises:
        ConfigError: The file is none, describes a model of another kind, or lacks a number.
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ConfigError(f"{path.name} is larger than {_LARGEST_BYTES:,} bytes; a config.json is not.")
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name}: not JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path.name}: not a config.json: it holds no table of names and values.")
    kind = values.get("model_type")
    experts = next((key for key in _EXPERTS if values.get(key)), None)
    if kind not in _KINDS or experts:
        why = f"it has experts ({experts})" if experts else f"model_type is {str(kind)[:80]!r}"
        raise ConfigError(
            f"{path.name}: {why}; allowed: {', '.join(_KINDS)}, without experts.",
            hint="Give the numbers of a dense model with --model custom.",
        )
    return _gpt2(values, path.name) if kind == "gpt2" else _rotary(values, path.name, str(kind))


def _number(values: dict[str, Any], key: str, file: str, default: int | None = None) -> int:
    value = values.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int:
        raise ConfigError(f"{file}: {key} is {str(value)[:80]}; allowed: a whole number.", key=key)
    return value


def _rotary(values: dict[str, Any], file: str, kind: str) -> Model:
    hidden, heads = _number(values, "hidden_size", file), _number(values, "num_attention_heads", file)
    if heads < 1:
        raise ConfigError(f"{file}: num_attention_heads is {heads}; allowed: at least 1.")
    if values.get("attention_bias") and kind != "qwen2":
        raise ConfigError(
            f"{file}: attention_bias is true; allowed: false.", hint="Such biases are not modelled yet."
        )
    return Model(
        name=kind,
        layers=_number(values, "num_hidden_layers", file),
        hidden=hidden,
        heads=heads,
        kv_heads=_number(values, "num_key_value_heads", file, heads),
        head_size=_number(values, "head_dim", file, hidden // heads),
        feed_forward=_number(values, "intermediate_size", file),
        vocabulary=_number(values, "vocab_size", file),
        sequence=min(_number(values, "max_position_embeddings", file, 4_096), 8_192),
        qkv_bias=kind == "qwen2",
        qk_norm=kind == "qwen3",
        tied=bool(values.get("tie_word_embeddings", False)),
        source=file,
    )


def _gpt2(values: dict[str, Any], file: str) -> Model:
    hidden, heads = _number(values, "n_embd", file), _number(values, "n_head", file)
    if heads < 1 or hidden % heads:
        raise ConfigError(f"{file}: n_embd is {hidden}, which {heads} heads do not share evenly.")
    positions = _number(values, "n_positions", file, 1_024)
    return Model(
        name="gpt2",
        layers=_number(values, "n_layer", file),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        feed_forward=_number(values, "n_inner", file, 4 * hidden),
        vocabulary=_number(values, "vocab_size", file),
        sequence=positions,
        positions=positions,
        gated=False,
        biases=True,
        tied=bool(values.get("tie_word_embeddings", True)),
        dropout=True,
        source=file,
    )
