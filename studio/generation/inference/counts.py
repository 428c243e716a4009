"""What a step of inference computes and reads, as closed forms.

Sources: Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023 (operations of a token: twice the parameters of the
matrices, and attention over the context; bytes: weights once a step, and the KV cache); Kwon et al., "PagedAttention", SOSP 2023
(bytes of the cache of a token: 2 · layers · heads of keys and values · head size · bytes, one 2 for keys and values). Unlike in
training, attention is counted of the tokens that are attended to: those before a token and itself. So a prompt that is read
in chunks costs in all what it costs at once, and decode steps add up to a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

from studio.errors import ConfigError
from studio.generation.inference.batches import Load
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.routing import compute_popularity
from studio.generation.transformer import (
    compute_key_width,
    compute_output_width,
    compute_query_width,
    compute_value_width,
    has_experts,
    list_attention_products,
    list_feed_forward_products,
    list_up_products,
)

BYTES = {"bf16": 2, "fp8": 1}
"""Bytes of an element by data type; scales of fp8 are not counted."""
ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Precision:
    """Data types.

    Attributes:
        weights: Of the matrices of layers, and of their products. Embedding, output layer and norms are in bf16, as in the
            published weights in fp8; activations, and what ranks send of them, as well.
        cache: Of keys and values in the cache.
    """

    weights: str = "bf16"
    cache: str = "bf16"

    def __post_init__(self) -> None:
        """Refuse other data types.

        Raises:
            ConfigError: One is not known.
        """
        for option, value in (("--dtype", self.weights), ("--kv-dtype", self.cache)):
            if value not in BYTES:
                raise ConfigError(f"{option} is {value[:80]!r}; allowed: {', '.join(BYTES)}.", key=option[2:])

    @property
    def weight_bytes(self) -> int:
        """Bytes of a weight of a layer's matrices."""
        return BYTES[self.weights]

    @property
    def cache_bytes(self) -> int:
        """Bytes of an element of the cache."""
        return BYTES[self.cache]


BF16 = Precision()


def compute_cached_width(model: Model) -> int:
    """Return the elements of a token in the cache of one layer: its keys and values, or what they are compressed to."""
    return (
        model.kv_rank + model.rope_size
        if model.kv_rank
        else compute_key_width(model) + compute_value_width(model)
    )


def count_cache_shares(model: Model, tp: int) -> int:
    """Return among how many tensor parallel ranks the cache is divided: by heads; what is compressed each of them holds whole."""
    return 1 if model.kv_rank else tp


def count_layer_cache_bytes(model: Model, precision: Precision) -> int:
    """Return the bytes of keys and values of a token in one layer, once."""
    return compute_cached_width(model) * precision.cache_bytes


def cache_bytes(model: Model, precision: Precision) -> int:
    """Return the bytes of a token in the KV cache: 2 · layers · heads of keys and values · head size · bytes of an element.

    With multi-head latent attention layers · (rank of keys and values + width of rotary keys) · bytes (DeepSeek-V2, 2024, table 1).

    Example:
        >>> from studio.generation.models import find_model
        >>> cache_bytes(find_model("llama3-70b"), Precision())
        327680
    """
    return model.layers * count_layer_cache_bytes(model, precision)


def count_layer_weights(model: Model, layer: int = 0) -> int:
    """Return the weights of the matrices of a layer that a token is multiplied by: of experts those that it goes to."""
    products = list_attention_products(model)
    if not has_experts(model, layer):
        return sum(
            product.size for product in (*products, *list_feed_forward_products(model, model.feed_forward))
        )
    shared = list_feed_forward_products(model, model.shared_width)
    each = sum(product.size for product in list_feed_forward_products(model, model.expert_width))
    router = model.hidden * (model.experts + (1 if model.shared_gate else 0))
    return sum(product.size for product in (*products, *shared)) + router + model.experts_per_token * each


def compute_experts_met(model: Model, layout: Layout, layer: int, place: int) -> float:
    """Return how many of a rank's experts any token of a step goes to, in the mean.

    Each of the T tokens of an expert parallel group goes to an expert with its share p, so that it is met with 1 - (1 - p)^T.

    Args:
        model: The model.
        layout: The layout, with the step's tokens.
        layer: The layer.
        place: The rank's place in its expert parallel group.
    """
    held, tokens = model.experts // layout.ep, layout.tokens * layout.ep
    if not layout.expert_skew:
        return held * (1 - (1 - model.experts_per_token / model.experts) ** tokens)
    shares = compute_popularity(
        model.experts, model.experts_per_token, layout.expert_skew, f"{layout.seed}/{layer}"
    )
    return sum(1 - (1 - share) ** tokens for share in shares[place * held : (place + 1) * held])


def count_attention_flop(model: Model, load: Load) -> int:
    """Return the operations of a layer's attention: scores, and their sum of values.

    Multi-head latent attention has two forms (DeepSeek-V2, 2024, section 2.1): tokens that decode attend to what is compressed, in
    all heads at once (`count_latent_flop`); for prompts keys and values are made of it, also of what the cache holds before them.
    """
    full = compute_query_width(model) + compute_output_width(model)
    if not model.kv_rank:
        return 2 * load.pairs * full
    before = load.reading.cached - load.reading.tokens
    expansion = 2 * before * list_up_products(model)[-1].size
    return 2 * load.reading.pairs * full + count_latent_flop(model, load) + expansion


def count_latent_flop(model: Model, load: Load) -> int:
    """Return the operations of a layer's attention of tokens that decode to what is compressed.

    A head's query of a token is as wide as what is compressed and the rotary key, its result as what is compressed.
    """
    return 2 * load.decoding.pairs * model.heads * (2 * model.kv_rank + model.rope_size)


def count_step_flop(model: Model, load: Load, vocabulary: int) -> int:
    """Return the operations of matrix products and attention of a step.

    Args:
        model: The model.
        load: What the step computes.
        vocabulary: That of the model, padded.

    Example:
        >>> from studio.generation.inference.batches import Load
        >>> from studio.generation.models import find_model
        >>> model = find_model("llama3-8b")
        >>> count_step_flop(model, Load(1, 1, 1, 1), model.vocabulary) / 1e9  # about twice the parameters without the embedding
        15.009841152
    """
    matrices = 2 * load.tokens * sum(count_layer_weights(model, layer) for layer in range(model.layers))
    attention = model.layers * count_attention_flop(model, load)
    return matrices + attention + 2 * load.logits * model.hidden * vocabulary
