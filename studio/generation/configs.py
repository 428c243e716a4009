"""Read the shape of a model from a `config.json` in the form of Hugging Face Transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from studio.errors import ConfigError
from studio.files import read_start
from studio.generation.models import Model

_EXPERTS_ELSEWHERE = ("num_local_experts", "num_experts", "n_routed_experts")
_LARGEST_BYTES = 1 << 20
_WHICH = "Give the config.json that lies beside the weights of a model."


def read_config(path: Path) -> Model:
    """Return the model that a `config.json` describes; nothing is downloaded.

    Raises:
        ConfigError: The file is none, describes a model of another kind, or lacks a number.
    """
    try:
        content = read_start(path, _LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise ConfigError(
                f"{path.name} is larger than {_LARGEST_BYTES:,} bytes; a config.json is not.", hint=_WHICH
            )
        values = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name}: not JSON: {error}.", hint=_WHICH) from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path.name}: not a config.json: it holds no table of names and values.", hint=_WHICH
        )
    kind = str(values.get("model_type"))[:80]
    if kind not in KINDS:
        problem = f"is {kind!r}" if "model_type" in values else "is missing"
        raise ConfigError(
            f"{path.name}: model_type {problem}; allowed: {', '.join(KINDS)}.",
            hint="Give the numbers of the model with --model custom.",
        )
    experts = next((key for key in _EXPERTS_ELSEWHERE if values.get(key)), None)
    if experts and kind not in _EXPERT_KINDS:
        raise ConfigError(
            f"{path.name}: it has experts ({experts}), which {kind} has not; allowed: {', '.join(_EXPERT_KINDS)}.",
            hint="Give the numbers of the model with --model custom.",
        )
    return KINDS[kind](values, path.name, kind)


def _read_number(values: dict[str, Any], key: str, file: str, default: int | None = None) -> int:
    value = values.get(key)
    if value is None and default is not None:
        return default
    if value is None:
        raise ConfigError(
            f"{file}: {key} is missing; needed: a whole number.",
            hint="Give the whole config.json that goes with the model's weights, or its numbers with --model custom.",
            key=key,
        )
    if type(value) is not int or value < 0:
        raise ConfigError(
            f"{file}: {key} is {str(value)[:80]}; allowed: a whole number of at least 0.", key=key
        )
    return value


def _read_optional_number(values: dict[str, Any], key: str, file: str) -> int:
    """Return a number that a model may do without: 0 where it is not there or null."""
    return _read_number(values, key, file, 0)


def _check_modelled(values: dict[str, Any], file: str, **allowed: Any) -> None:
    """Refuse a value other than the modelled one; a missing value counts as the modelled one."""
    for key, value in allowed.items():
        given = values.get(key)
        if given is not None and given != value:
            raise ConfigError(
                f"{file}: {key} is {str(given)[:80]}; allowed: {str(value).lower()}.",
                hint="Any other value is not modelled yet.",
            )


def _read_rotary(values: dict[str, Any], file: str, kind: str, **more: Any) -> Model:
    hidden, heads = (
        _read_number(values, "hidden_size", file),
        _read_number(values, "num_attention_heads", file),
    )
    if heads < 1:
        raise ConfigError(f"{file}: num_attention_heads is {heads}; allowed: at least 1.")
    if not more.get("qkv_bias"):
        _check_modelled(values, file, attention_bias=False)
    return Model(
        **{
            "name": kind,
            "layers": _read_number(values, "num_hidden_layers", file),
            "hidden": hidden,
            "heads": heads,
            "kv_heads": _read_number(values, "num_key_value_heads", file, heads),
            "head_size": _read_number(values, "head_dim", file, hidden // heads),
            "feed_forward": _read_number(values, "intermediate_size", file),
            "vocabulary": _read_number(values, "vocab_size", file),
            "sequence": min(_read_number(values, "max_position_embeddings", file, 4_096), 8_192),
            "tied": bool(values.get("tie_word_embeddings", False)),
            "source": file,
            **more,
        }
    )


def _read_windowed(values: dict[str, Any], file: str, kind: str, **more: Any) -> Model:
    """Return a model whose layers all have the sliding window that it names, if any."""
    return _read_rotary(
        values, file, kind, window=_read_optional_number(values, "sliding_window", file), **more
    )


def _read_qwen(values: dict[str, Any], file: str, kind: str) -> Model:
    _check_modelled(values, file, use_sliding_window=False)
    more: dict[str, Any] = {"qk_norm": True} if kind.startswith("qwen3") else {"qkv_bias": True}
    if kind.endswith("_moe"):
        _check_modelled(values, file, decoder_sparse_step=1, mlp_only_layers=[])
        more |= _read_experts(values, file, "num_experts", "moe_intermediate_size")
    if kind == "qwen2_moe":
        more |= {
            "shared_width": _read_number(values, "shared_expert_intermediate_size", file),
            "shared_gate": True,
        }
    return _read_rotary(values, file, kind, **more)


def _read_experts(values: dict[str, Any], file: str, count: str, width: str) -> dict[str, Any]:
    return {
        "experts": _read_number(values, count, file),
        "experts_per_token": _read_number(values, "num_experts_per_tok", file),
        "expert_width": _read_number(values, width, file),
    }


def _read_mixtral(values: dict[str, Any], file: str, kind: str) -> Model:
    return _read_windowed(
        values, file, kind, **_read_experts(values, file, "num_local_experts", "intermediate_size")
    )


def _read_deepseek(values: dict[str, Any], file: str, kind: str) -> Model:
    _check_modelled(values, file, moe_layer_freq=1)
    experts = _read_experts(values, file, "n_routed_experts", "moe_intermediate_size")
    return _read_rotary(
        values, file, kind,
        **experts,
        kv_heads=_read_number(values, "num_attention_heads", file),
        shared_width=_read_optional_number(values, "n_shared_experts", file) * experts["expert_width"],
        dense_layers=_read_optional_number(values, "first_k_dense_replace", file),
        # The number of each expert that balances routing without a loss.
        router_bias=kind == "deepseek_v3" and values.get("topk_method", "noaux_tc") == "noaux_tc",
        query_rank=_read_optional_number(values, "q_lora_rank", file),
        kv_rank=_read_number(values, "kv_lora_rank", file),
        head_size=_read_number(values, "qk_nope_head_dim", file),
        rope_size=_read_number(values, "qk_rope_head_dim", file),
        value_size=_read_number(values, "v_head_dim", file),
    )  # fmt: skip


def _read_gemma(values: dict[str, Any], file: str, kind: str) -> Model:
    # A config.json of Gemma 3 with its vision encoder has the language model inside, and leaves out what Transformers assumes of it.
    inner = values.get("text_config") if kind == "gemma3" else None
    values = {**(inner if isinstance(inner, dict) else values)}
    more: dict[str, Any] = {"tied": values.get("tie_word_embeddings") is not False}
    if kind.startswith("gemma3"):
        assumed = {"vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4}
        values = assumed | {key: value for key, value in values.items() if value is not None}
        every = values.get("sliding_window_pattern", values.get("_sliding_window_pattern", 6))
        more |= {"qk_norm": True, "full_every": every}
    elif kind == "gemma2":
        more["full_every"] = 2
    if kind != "gemma":
        window = _read_number(values, "sliding_window", file, 4_096)
        more |= {
            "post_norms": True,
            "window": window,
            "full_every": _read_full_every(values, file, more["full_every"]),
        }
    return _read_rotary(values, file, kind, head_size=_read_number(values, "head_dim", file, 256), **more)


def _read_full_every(values: dict[str, Any], file: str, assumed: Any) -> int:
    """Return every how many layers one attends to all tokens, as `layer_types` says it or else as assumed."""
    types = values.get("layer_types")
    if not isinstance(types, list):
        return _read_number({"sliding_window_pattern": assumed}, "sliding_window_pattern", file)
    full = [number for number, kind in enumerate(types, 1) if kind == "full_attention"]
    every = full[0] if full else 0
    if full != (list(range(every, len(types) + 1, every)) if every else []):
        raise ConfigError(
            f"{file}: layer_types has full attention in the layers {str(full)[:80]}; allowed: every n-th layer."
        )
    return every


def _read_gpt2(values: dict[str, Any], file: str, kind: str) -> Model:
    hidden, heads = _read_number(values, "n_embd", file), _read_number(values, "n_head", file)
    if heads < 1 or hidden % heads:
        raise ConfigError(
            f"{file}: n_embd is {hidden}, which {heads} heads do not share evenly.",
            hint="Correct n_embd or n_head.",
        )
    positions = _read_number(values, "n_positions", file, 1_024)
    return Model(
        name=kind,
        layers=_read_number(values, "n_layer", file),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=hidden // heads,
        feed_forward=_read_number(values, "n_inner", file, 4 * hidden),
        vocabulary=_read_number(values, "vocab_size", file),
        sequence=positions,
        positions=positions,
        gated=False,
        biases=True,
        tied=bool(values.get("tie_word_embeddings", True)),
        dropout=True,
        source=file,
    )


KINDS = {
    "llama": _read_rotary,
    "mistral": _read_windowed,
    "mixtral": _read_mixtral,
    "phi3": _read_windowed,
    "qwen2": _read_qwen,
    "qwen2_moe": _read_qwen,
    "qwen3": _read_qwen,
    "qwen3_moe": _read_qwen,
    "deepseek_v2": _read_deepseek,
    "deepseek_v3": _read_deepseek,
    "gemma": _read_gemma,
    "gemma2": _read_gemma,
    "gemma3": _read_gemma,
    "gemma3_text": _read_gemma,
    "gpt2": _read_gpt2,
}
"""What reads each `model_type`."""
_EXPERT_KINDS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")
