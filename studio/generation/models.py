"""The shapes of dense decoder-only transformers: presets with their sources."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from studio.errors import ConfigError

_GPT3 = "Brown et al., Language Models are Few-Shot Learners, 2020, table 2.1; vocabulary of GPT-2"
_LLAMA2 = "Touvron et al., Llama 2, 2023, and config.json of its weights"
_LLAMA3 = "Llama team, The Llama 3 Herd of Models, 2024, table 3, and config.json of its weights"
_MISTRAL = "Jiang et al., Mistral 7B, 2023, table 1, and config.json of its weights (v0.1)"
_QWEN25 = "Qwen team, Qwen2.5 Technical Report, 2024, table 1, and config.json of its weights"
_QWEN3 = "Qwen team, Qwen3 Technical Report, 2025, table 1, and config.json of its weights"
_LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a dense decoder-only transformer.

    Attributes:
        name: Its name.
        layers: Transformer layers.
        hidden: Width of the residual stream.
        heads: Attention heads.
        kv_heads: Heads of keys and values (grouped-query attention); as many as `heads` for multi-head attention.
        head_size: Width of a head.
        feed_forward: Inner width of the feed-forward part.
        vocabulary: Tokens of its vocabulary.
        sequence: Tokens of a sequence in its training.
        positions: Learned positions; 0 for rotary ones.
        gated: Whether the feed-forward part has a gate (SwiGLU: three matrices), not GELU (two).
        biases: Whether linear layers and norms have biases, as in GPT.
        qkv_bias: Whether the projection to queries, keys and values has one although the others have none, as in Qwen 2.5.
        qk_norm: Whether queries and keys are normalised per head, as in Qwen 3.
        tied: Whether the output layer shares the matrix of the embedding.
        dropout: Whether it is trained with dropout, whose masks count as activations.
        batch: Sequences of a step in the published training; 0 where the source says none.
        source: Where the numbers are from.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    sequence: int
    positions: int = 0
    gated: bool = True
    biases: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    dropout: bool = False
    batch: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse numbers that no model has.

        Raises:
            ConfigError: A number is out of its range, or heads do not divide by heads of keys and values.
        """
        zero = ("positions", "batch")
        for spec in fields(self):
            value = getattr(self, spec.name)
            least = 0 if spec.name in zero else 1
            if type(value) is int and not least <= value <= _LARGEST:
                raise ConfigError(
                    f"{spec.name} of model {self.name} is {value}; allowed: {least} to {_LARGEST:,}.",
                    key=spec.name,
                )
        if self.heads % self.kv_heads:
            near = nearest(self.kv_heads, (n for n in range(1, self.heads + 1) if self.heads % n == 0))
            raise ConfigError(
                f"kv_heads of model {self.name} is {self.kv_heads}, which does not divide its {self.heads} heads.",
                hint=f"The nearest that does: {near}.",
                key="kv_heads",
            )


def nearest(value: int, allowed: Any) -> str:
    """Return the allowed values next to a value, below and above, in words."""
    known = sorted(set(allowed))
    below = [number for number in known if number < value][-1:]
    above = [number for number in known if number > value][:1]
    return " or ".join(f"{number:,}" for number in (*below, *above)) or "none"


def _gpt3(name: str, layers: int, hidden: int, heads: int, batch: int) -> Model:
    return Model(
        name, layers, hidden, heads, heads, hidden // heads, 4 * hidden, 50_257, 2_048, positions=2_048,
        gated=False, biases=True, tied=True, dropout=True, batch=batch, source=_GPT3,
    )  # fmt: skip


def _rotary(
    name: str, shape: tuple[int, int, int, int, int], vocabulary: int, sequence: int, source: str, **more: Any
) -> Model:
    """Return a model of the Llama kind; `shape` is layers, hidden, heads, heads of keys and values, feed-forward."""
    layers, hidden, heads, kv_heads, feed_forward = shape
    size = more.pop("head_size", hidden // heads)
    return Model(
        name, layers, hidden, heads, kv_heads, size, feed_forward, vocabulary, sequence, source=source, **more
    )


# Batches are in sequences. Their sources give tokens in millions, read as 2^20 here, but for GPT-3's largest: its 3.2 million are the
# 1,536 sequences of Narayanan et al., 2021.
_LISTED = (
    _gpt3("gpt3-125m", 12, 768, 12, 256),
    _gpt3("gpt3-350m", 24, 1_024, 16, 256),
    _gpt3("gpt3-760m", 24, 1_536, 16, 256),
    # The table gives 24 heads of 128 for a width of 2,048, which do not agree; 16 of 128 do.
    _gpt3("gpt3-1.3b", 24, 2_048, 16, 512),
    _gpt3("gpt3-2.7b", 32, 2_560, 32, 512),
    _gpt3("gpt3-6.7b", 32, 4_096, 32, 1_024),
    # The table gives a width of 5,140, which 40 heads of 128 do not fill; 5,120 does.
    _gpt3("gpt3-13b", 40, 5_120, 40, 1_024),
    _gpt3("gpt3-175b", 96, 12_288, 96, 1_536),
    _rotary("llama2-7b", (32, 4_096, 32, 32, 11_008), 32_000, 4_096, _LLAMA2, batch=1_024),
    _rotary("llama2-13b", (40, 5_120, 40, 40, 13_824), 32_000, 4_096, _LLAMA2, batch=1_024),
    _rotary("llama2-70b", (80, 8_192, 64, 8, 28_672), 32_000, 4_096, _LLAMA2, batch=1_024),
    _rotary("llama3-8b", (32, 4_096, 32, 8, 14_336), 128_256, 8_192, _LLAMA3),
    _rotary("llama3-70b", (80, 8_192, 64, 8, 28_672), 128_256, 8_192, _LLAMA3),
    _rotary("llama3-405b", (126, 16_384, 128, 8, 53_248), 128_256, 8_192, _LLAMA3, batch=2_048),
    _rotary("mistral-7b", (32, 4_096, 32, 8, 14_336), 32_000, 8_192, _MISTRAL),
    _rotary("qwen2.5-0.5b", (24, 896, 14, 2, 4_864), 151_936, 4_096, _QWEN25, qkv_bias=True, tied=True),
    _rotary("qwen2.5-1.5b", (28, 1_536, 12, 2, 8_960), 151_936, 4_096, _QWEN25, qkv_bias=True, tied=True),
    _rotary("qwen2.5-3b", (36, 2_048, 16, 2, 11_008), 151_936, 4_096, _QWEN25, qkv_bias=True, tied=True),
    _rotary("qwen2.5-7b", (28, 3_584, 28, 4, 18_944), 152_064, 4_096, _QWEN25, qkv_bias=True),
    _rotary("qwen2.5-14b", (48, 5_120, 40, 8, 13_824), 152_064, 4_096, _QWEN25, qkv_bias=True),
    _rotary("qwen2.5-32b", (64, 5_120, 40, 8, 27_648), 152_064, 4_096, _QWEN25, qkv_bias=True),
    _rotary("qwen2.5-72b", (80, 8_192, 64, 8, 29_568), 152_064, 4_096, _QWEN25, qkv_bias=True),
    _rotary("qwen3-8b", (36, 4_096, 32, 8, 12_288), 151_936, 4_096, _QWEN3, qk_norm=True),
    _rotary("qwen3-14b", (40, 5_120, 40, 8, 17_408), 151_936, 4_096, _QWEN3, qk_norm=True),
    _rotary(
        "qwen3-32b", (64, 5_120, 64, 8, 25_600), 151_936, 4_096, _QWEN3, qk_norm=True, head_size=128
    ),
)  # fmt: skip
MODELS = {model.name: model for model in _LISTED}
# Llama 3.1 has the shape of Llama 3.
MODELS |= {
    f"llama3.1-{size}": replace(MODELS[f"llama3-{size}"], name=f"llama3.1-{size}")
    for size in ("8b", "70b", "405b")
}


def find_model(name: str) -> Model:
    """Return a preset.

    Raises:
        ConfigError: There is none of this name.

    Example:
        >>> find_model("llama3-8b").layers
        32
    """
    wanted = name.strip().lower()
    if wanted not in MODELS:
        near = get_close_matches(wanted, MODELS, 1)
        raise ConfigError(
            f"--model is {name!r}; allowed: {', '.join(MODELS)}, custom.",
            hint=f"The nearest is {near[0]}."
            if near
            else "--config reads config.json of a model of the Llama or GPT kind.",
            key="model",
        )
    return MODELS[wanted]
