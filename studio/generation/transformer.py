"""What a dense transformer holds and computes, as closed forms.

Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021 (parameters;
operations of matrix products, appendix; here without recomputation, so three times the forward pass and not four), extended
to grouped-query attention and gated feed-forward parts by the shapes of their matrices. Attention is counted in full, as there,
although it is causal.
"""

from __future__ import annotations

from dataclasses import dataclass

from studio.generation.layout import Layout
from studio.generation.models import Model


@dataclass(frozen=True, slots=True)
class Unit:
    """Weights that are held and exchanged together: the embedding, a layer or the head.

    Attributes:
        sharded: Parameters that tensor parallel ranks divide.
        replicated: Parameters that each of them holds whole.
    """

    sharded: int
    replicated: int

    def held(self, tp: int) -> int:
        """Return the parameters that a tensor parallel rank holds."""
        return self.sharded // tp + self.replicated


def queries(model: Model) -> int:
    """Return the width of queries of all heads together."""
    return model.heads * model.head_size


def keys(model: Model) -> int:
    """Return the width of keys of all heads together, which is that of values as well."""
    return model.kv_heads * model.head_size


def qkv_width(model: Model) -> int:
    """Return the width of queries, keys and values together."""
    return queries(model) + 2 * keys(model)


def inner_width(model: Model) -> int:
    """Return the width that the first product of the feed-forward part makes: twice as much with a gate."""
    return model.feed_forward * (2 if model.gated else 1)


def layer_unit(model: Model) -> Unit:
    """Return the weights of a layer."""
    hidden = model.hidden
    matrices = hidden * (qkv_width(model) + queries(model) + inner_width(model) + model.feed_forward)
    sharded = matrices + (qkv_width(model) if model.biases or model.qkv_bias else 0)
    sharded += inner_width(model) if model.biases else 0
    replicated = (6 if model.biases else 2) * hidden + (2 * model.head_size if model.qk_norm else 0)
    return Unit(sharded, replicated)


def embedding_unit(model: Model, vocabulary: int) -> Unit:
    """Return the weights of the embedding."""
    return Unit(vocabulary * model.hidden, model.positions * model.hidden)


def norm_unit(model: Model) -> int:
    """Return the parameters of the norm before the output layer."""
    return (2 if model.biases else 1) * model.hidden


def head_unit(model: Model, vocabulary: int, *, shared: bool) -> Unit:
    """Return the weights of the output layer and the norm before it.

    Args:
        model: The model.
        vocabulary: Its vocabulary, padded.
        shared: Whether the matrix is that of the embedding on the same rank.
    """
    return Unit(0 if shared else vocabulary * model.hidden, norm_unit(model))


def stage_units(model: Model, layout: Layout, stage: int) -> dict[str, Unit]:
    """Return the weights of a pipeline stage: `embedding`, `layer<n>`, `head`.

    Where the output layer shares the matrix of the embedding and lies on another stage, both hold it.
    """
    vocabulary = layout.vocabulary(model)
    units = {"embedding": embedding_unit(model, vocabulary)} if stage == 0 else {}
    first = sum(layout.stage_layers[:stage])
    for layer in range(first, first + layout.stage_layers[stage]):
        units[f"layer{layer}"] = layer_unit(model)
    if stage == layout.pp - 1:
        units["head"] = head_unit(model, vocabulary, shared=model.tied and layout.pp == 1)
    return units


def parameters(model: Model, vocabulary: int | None = None) -> int:
    """Return the parameters of a model.

    Args:
        model: The model.
        vocabulary: Its vocabulary where it is padded.

    Example:
        >>> from studio.generation.models import find_model
        >>> parameters(find_model("llama3-8b"))
        8030261248
    """
    vocabulary = vocabulary or model.vocabulary
    layer, embedding = layer_unit(model), embedding_unit(model, vocabulary)
    head = head_unit(model, vocabulary, shared=model.tied)
    units = embedding, head
    return model.layers * (layer.sharded + layer.replicated) + sum(
        unit.sharded + unit.replicated for unit in units
    )


def flop_per_sequence(model: Model, sequence: int, vocabulary: int) -> int:
    """Return the operations of matrix products in the forward and the backward pass of a sequence.

    Of a GPT of l layers and width h that is Narayanan et al.'s 72 s l h² (1 + s / 6h + V / 12lh).
    """
    hidden = model.hidden
    matrices = hidden * (qkv_width(model) + queries(model) + inner_width(model) + model.feed_forward)
    forward = model.layers * (2 * sequence * matrices + attention_flop(model, 1, sequence))
    return 3 * (forward + 2 * sequence * hidden * vocabulary)


def attention_flop(model: Model, sequences: int, length: int) -> int:
    """Return the operations of both products of attention in a forward pass: scores, and their sum of values."""
    return 4 * sequences * length * length * queries(model)


def largest_node_flop(model: Model, layout: Layout) -> int:
    """Return the operations of the compute node that has most of them."""
    widest = max(qkv_width(model), queries(model), inner_width(model), layout.vocabulary(model))
    product = 2 * layout.tokens * model.hidden * widest
    return max(product, 2 * attention_flop(model, layout.micro_batch, layout.sequence)) // layout.tp


def step_flop(model: Model, layout: Layout) -> int:
    """Return the operations of matrix products in a step of the whole job."""
    return layout.batch * flop_per_sequence(model, layout.sequence, layout.vocabulary(model))
