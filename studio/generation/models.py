"""The shapes of decoder-only transformers, dense and with experts: presets with their sources."""

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
_MIXTRAL = "Jiang et al., Mixtral of Experts, 2024, table 1, and config.json of its weights (v0.1)"
_DEEPSEEK2 = "DeepSeek-AI, DeepSeek-V2, 2024, section 3.1.2, and config.json of its weights"
_DEEPSEEK3 = "DeepSeek-AI, DeepSeek-V3, 2024, section 4.2, and config.json of its weights; without multi-token prediction"
_GEMMA = "Gemma team, Gemma, 2024, table 1, and config.json of its weights"
_GEMMA2 = "Gemma team, Gemma 2, 2024, table 1, and config.json of its weights"
_GEMMA3 = (
    "Gemma team, Gemma 3 Technical Report, 2025, and config.json of its weights; without the vision encoder"
)
_LARGEST = 1 << 24


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of a decoder-only transformer.

    With `experts` above 0 the layers after the first `dense_layers` have a router and experts in place of the feed-forward part.
    With `kv_rank` above 0 attention is multi-head latent attention: keys and values (and, with `query_rank`, queries) are made of
    a compressed vector of a token, and beside `head_size` a head has `rope_size` rotary elements.

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
        experts: Experts of a layer among which its router chooses; 0 for a dense model.
        experts_per_token: How many of them a token goes to.
        expert_width: Inner width of an expert.
        shared_width: Inner width of the experts that every token goes to, of all of them together; 0 for none.
        shared_gate: Whether a gate of one column scales what these make, as in Qwen 1.5 and 2.
        router_bias: Whether the router has a number for each expert that balances them, as in DeepSeek V3.
        dense_layers: First layers that have no experts.
        query_rank: Width of a token's compressed queries; 0 where they are made of the residual stream.
        kv_rank: Width of a token's compressed keys and values; 0 for ordinary attention.
        rope_size: Rotary elements of a head, beside `head_size`, in multi-head latent attention.
        value_size: Width of a head's values; 0 for that of the head.
        window: Tokens that layers with a sliding window attend to; 0 for none.
        full_every: With a window, every how many layers one attends to all tokens; 0 for none that does.
        post_norms: Whether norms stand after both parts as well, as in Gemma 2 and 3.
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
    experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    shared_width: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    dense_layers: int = 0
    query_rank: int = 0
    kv_rank: int = 0
    rope_size: int = 0
    value_size: int = 0
    window: int = 0
    full_every: int = 0
    post_norms: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that no model has.

        Raises:
            ConfigError: A number is out of its range, heads do not divide by heads of keys and values, or numbers of experts or of
                latent attention contradict each other.
        """
        for spec in fields(self):
            value = getattr(self, spec.name)
            # A number that a model may do without has 0 for that.
            least = 0 if spec.default == 0 else 1
            if type(value) is int and not least <= value <= _LARGEST:
                raise ConfigError(
                    f"{spec.name} of model {self.name} is {value}; allowed: {least} to {_LARGEST:,}.",
                    key=spec.name,
                )
        if self.heads % self.kv_heads:
            near = format_nearest(self.kv_heads, (n for n in range(1, self.heads + 1) if self.heads % n == 0))
            raise ConfigError(
                f"kv_heads of model {self.name} is {self.kv_heads}, which does not divide its {self.heads} heads.",
                hint=f"The nearest that does: {near}.",
                key="kv_heads",
            )
        self._check_experts()
        if (self.query_rank or self.rope_size or self.value_size) and not self.kv_rank:
            raise ConfigError(
                f"Model {self.name} has numbers of multi-head latent attention, but no kv_rank.",
                key="kv_rank",
                hint="Give kv_rank, or leave out query_rank, rope_size and value_size.",
            )
        if self.kv_rank and self.kv_heads != self.heads:
            raise ConfigError(
                f"kv_heads of model {self.name} is {self.kv_heads}; allowed with kv_rank: {self.heads}, as many as heads.",
                key="kv_heads",
            )

    def _check_experts(self) -> None:
        numbers = {
            "experts_per_token": self.experts_per_token,
            "expert_width": self.expert_width,
            "shared_width": self.shared_width,
            "dense_layers": self.dense_layers,
        }
        if not self.experts:
            given = [key for key, value in numbers.items() if value]
            if given:
                raise ConfigError(
                    f"Model {self.name} has {given[0]}, but no experts.",
                    key="experts",
                    hint=f"Give experts, the number of them, or leave {given[0]} out.",
                )
            return
        for key, least, most in (("experts_per_token", 1, self.experts), ("dense_layers", 0, self.layers)):
            if not least <= numbers[key] <= most:
                raise ConfigError(
                    f"{key} of model {self.name} is {numbers[key]}; allowed: {least} to {most}.", key=key
                )
        if not self.expert_width:
            raise ConfigError(
                f"Model {self.name} has experts, but no expert_width.",
                key="expert_width",
                hint="Give expert_width, or leave experts out.",
            )


def format_nearest(value: int, allowed: Any) -> str:
    """Return the allowed values next to a value, below and above, as options take them."""
    known = sorted(set(allowed))
    below = [number for number in known if number < value][-1:]
    above = [number for number in known if number > value][:1]
    return " or ".join(str(number) for number in (*below, *above)) or "none"


def _build_gpt3(name: str, layers: int, hidden: int, heads: int, batch: int) -> Model:
    return Model(
        name, layers, hidden, heads, heads, hidden // heads, 4 * hidden, 50_257, 2_048, positions=2_048,
        gated=False, biases=True, tied=True, dropout=True, batch=batch, source=_GPT3,
    )  # fmt: skip


def _build_rotary(
    name: str, shape: tuple[int, int, int, int, int], vocabulary: int, sequence: int, source: str, **more: Any
) -> Model:
    """Return a model of the Llama kind; `shape` is layers, hidden, heads, heads of keys and values, feed-forward."""
    layers, hidden, heads, kv_heads, feed_forward = shape
    size = more.pop("head_size", hidden // heads)
    return Model(
        name, layers, hidden, heads, kv_heads, size, feed_forward, vocabulary, sequence, source=source, **more
    )


_LATENT: dict[str, Any] = {"query_rank": 1_536, "kv_rank": 512, "rope_size": 64, "value_size": 128}
_GEMMA2_KIND: dict[str, Any] = {"tied": True, "post_norms": True, "window": 4_096, "full_every": 2}

# Batches are in sequences. Their sources give tokens in millions, read as 2^20 here, but for GPT-3's largest: its 3.2 million are the
# 1,536 sequences of Narayanan et al., 2021.
_LISTED = (
    _build_gpt3("gpt3-125m", 12, 768, 12, 256),
    _build_gpt3("gpt3-350m", 24, 1_024, 16, 256),
    _build_gpt3("gpt3-760m", 24, 1_536, 16, 256),
    # The table gives 24 heads of 128 for a width of 2,048, which do not agree; 16 of 128 do.
    _build_gpt3("gpt3-1.3b", 24, 2_048, 16, 512),
    _build_gpt3("gpt3-2.7b", 32, 2_560, 32, 512),
    _build_gpt3("gpt3-6.7b", 32, 4_096, 32, 1_024),
    # The table gives a width of 5,140, which 40 heads of 128 do not fill; 5,120 does.
    _build_gpt3("gpt3-13b", 40, 5_120, 40, 1_024),
    _build_gpt3("gpt3-175b", 96, 12_288, 96, 1_536),
    _build_rotary("llama2-7b", (32, 4_096, 32, 32, 11_008), 32_000, 4_096, _LLAMA2, batch=1_024),
    _build_rotary("llama2-13b", (40, 5_120, 40, 40, 13_824), 32_000, 4_096, _LLAMA2, batch=1_024),
    _build_rotary("llama2-70b", (80, 8_192, 64, 8, 28_672), 32_000, 4_096, _LLAMA2, batch=1_024),
    _build_rotary("llama3-8b", (32, 4_096, 32, 8, 14_336), 128_256, 8_192, _LLAMA3),
    _build_rotary("llama3-70b", (80, 8_192, 64, 8, 28_672), 128_256, 8_192, _LLAMA3),
    _build_rotary("llama3-405b", (126, 16_384, 128, 8, 53_248), 128_256, 8_192, _LLAMA3, batch=2_048),
    _build_rotary("mistral-7b", (32, 4_096, 32, 8, 14_336), 32_000, 8_192, _MISTRAL, window=4_096),
    _build_rotary(
        "mixtral-8x7b", (32, 4_096, 32, 8, 14_336), 32_000, 8_192, _MIXTRAL,
        experts=8, experts_per_token=2, expert_width=14_336,
    ),
    _build_rotary(
        "mixtral-8x22b", (56, 6_144, 48, 8, 16_384), 32_000, 8_192, _MIXTRAL.replace("table 1, and ", "and, of its shape, "),
        experts=8, experts_per_token=2, expert_width=16_384,
    ),
    _build_rotary("qwen2.5-0.5b", (24, 896, 14, 2, 4_864), 151_936, 4_096, _QWEN25, qkv_bias=True, tied=True),
    _build_rotary("qwen2.5-1.5b", (28, 1_536, 12, 2, 8_960), 151_936, 4_096, _QWEN25, qkv_bias=True, tied=True),
    _build_rotary("qwen2.5-3b", (36, 2_048, 16, 2, 11_008), 151_936, 4_096, _QWEN25, qkv_bias=True, tied=True),
    _build_rotary("qwen2.5-7b", (28, 3_584, 28, 4, 18_944), 152_064, 4_096, _QWEN25, qkv_bias=True),
    _build_rotary("qwen2.5-14b", (48, 5_120, 40, 8, 13_824), 152_064, 4_096, _QWEN25, qkv_bias=True),
    _build_rotary("qwen2.5-32b", (64, 5_120, 40, 8, 27_648), 152_064, 4_096, _QWEN25, qkv_bias=True),
    _build_rotary("qwen2.5-72b", (80, 8_192, 64, 8, 29_568), 152_064, 4_096, _QWEN25, qkv_bias=True),
    _build_rotary("qwen3-8b", (36, 4_096, 32, 8, 12_288), 151_936, 4_096, _QWEN3, qk_norm=True),
    _build_rotary("qwen3-14b", (40, 5_120, 40, 8, 17_408), 151_936, 4_096, _QWEN3, qk_norm=True),
    _build_rotary(
        "qwen3-32b", (64, 5_120, 64, 8, 25_600), 151_936, 4_096, _QWEN3, qk_norm=True, head_size=128
    ),
    _build_rotary(
        "qwen3-30b-a3b", (48, 2_048, 32, 4, 6_144), 151_936, 4_096, _QWEN3.replace("table 1", "table 2"), qk_norm=True,
        head_size=128, experts=128, experts_per_token=8, expert_width=768,
    ),
    _build_rotary(
        "qwen3-235b-a22b", (94, 4_096, 64, 4, 12_288), 151_936, 4_096, _QWEN3.replace("table 1", "table 2"), qk_norm=True,
        head_size=128, experts=128, experts_per_token=8, expert_width=1_536,
    ),
    # The largest batches of their schedules, in sequences of 4,096.
    _build_rotary(
        "deepseek-v2", (60, 5_120, 128, 128, 12_288), 102_400, 4_096, _DEEPSEEK2, batch=9_216, head_size=128,
        experts=160, experts_per_token=6, expert_width=1_536, shared_width=3_072, dense_layers=1, **_LATENT,
    ),
    _build_rotary(
        "deepseek-v3", (61, 7_168, 128, 128, 18_432), 129_280, 4_096, _DEEPSEEK3, batch=15_360, head_size=128,
        experts=256, experts_per_token=8, expert_width=2_048, shared_width=2_048, dense_layers=3, router_bias=True, **_LATENT,
    ),
    _build_rotary("gemma-7b", (28, 3_072, 16, 16, 24_576), 256_000, 8_192, _GEMMA, head_size=256, tied=True),
    _build_rotary("gemma2-9b", (42, 3_584, 16, 8, 14_336), 256_000, 8_192, _GEMMA2, head_size=256, **_GEMMA2_KIND),
    _build_rotary("gemma2-27b", (46, 4_608, 32, 16, 36_864), 256_000, 8_192, _GEMMA2, head_size=128, **_GEMMA2_KIND),
    _build_rotary(
        "gemma3-27b", (62, 5_376, 32, 16, 21_504), 262_208, 8_192, _GEMMA3, head_size=128, qk_norm=True, tied=True,
        post_norms=True, window=1_024, full_every=6,
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
            hint=f"The nearest is {near[0]}." if near else "--config reads the config.json of other models.",
            key="model",
        )
    return MODELS[wanted]
