"""What a transformer holds and computes, as closed forms.

Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021 (parameters;
operations of matrix products, appendix: four times the forward pass of a layer where all of it is recomputed, three times where
nothing is); Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022 (attention alone); extended to
grouped-query attention and gated feed-forward parts by the shapes of their matrices. Attention is counted in full, as there,
although it is causal; a layer with a sliding window by the tokens of its window. Experts are counted by the tokens that they work on:
as published those that a token goes to, which are the model's active ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.routing import count_given_tokens

EXPERTS = ".experts"
"""Ends the name of a unit of experts."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Weights that are held and exchanged together: the embedding, a layer, its experts or the head.

    Attributes:
        sharded: Parameters that tensor parallel ranks divide.
        replicated: Parameters that each of them holds whole.
        group: The comm group whose ranks hold the same: `dp`, of experts `edp`.
    """

    sharded: int
    replicated: int
    group: str = "dp"

    def held(self, tp: int) -> int:
        """Return the parameters that a tensor parallel rank holds."""
        return self.sharded // tp + self.replicated


@dataclass(frozen=True, slots=True)
class Product:
    """The matrix of a linear layer, (rows, columns): from so many inputs to so many outputs.

    Attributes:
        name: Its name.
        rows, columns: Its shape.
        split: What tensor parallel ranks divide: `columns`, `rows`, or nothing (``).
    """

    name: str
    rows: int
    columns: int
    split: str

    @property
    def size(self) -> int:
        """Its parameters; twice as many operations a token."""
        return self.rows * self.columns


def compute_query_width(model: Model) -> int:
    """Return the width of queries of all heads together."""
    return model.heads * (model.head_size + model.rope_size)


def compute_key_width(model: Model) -> int:
    """Return the width of keys of all heads together."""
    return model.kv_heads * (model.head_size + model.rope_size)


def compute_value_width(model: Model) -> int:
    """Return the width of values of all heads together."""
    return model.kv_heads * (model.value_size or model.head_size)


def compute_output_width(model: Model) -> int:
    """Return the width of what attention makes."""
    return model.heads * (model.value_size or model.head_size)


def compute_qkv_width(model: Model) -> int:
    """Return the width of queries, keys and values together."""
    return compute_query_width(model) + compute_key_width(model) + compute_value_width(model)


def compute_inner_width(model: Model, width: int | None = None) -> int:
    """Return the width that the first product of a feed-forward part makes: twice as much with a gate.

    Args:
        model: The model.
        width: The inner width of the part where it is not that of a dense layer.
    """
    return (model.feed_forward if width is None else width) * (2 if model.gated else 1)


def list_down_products(model: Model) -> tuple[Product, ...]:
    """Return the matrices that compress a token in multi-head latent attention, which every tensor parallel rank holds whole."""
    if not model.kv_rank:
        return ()
    key = Product("kv_down", model.hidden, model.kv_rank + model.rope_size, "")
    return (Product("q_down", model.hidden, model.query_rank, ""), key) if model.query_rank else (key,)


def list_up_products(model: Model) -> tuple[Product, ...]:
    """Return the matrices that make queries, keys and values."""
    if not model.kv_rank:
        return (Product("qkv", model.hidden, compute_qkv_width(model), "columns"),)
    columns = model.heads * model.head_size + compute_value_width(model)
    return (
        Product("q_up", model.query_rank or model.hidden, compute_query_width(model), "columns"),
        Product("kv_up", model.kv_rank, columns, "columns"),
    )


def compute_entering_width(model: Model) -> int:
    """Return the width of what attention takes from every part of the sequence: the residual stream, or what is compressed of it."""
    return (
        (model.query_rank or model.hidden) + model.kv_rank + model.rope_size
        if model.kv_rank
        else model.hidden
    )


def list_attention_products(model: Model) -> tuple[Product, ...]:
    """Return all matrices of attention."""
    out = Product("proj", compute_output_width(model), model.hidden, "rows")
    return (*list_down_products(model), *list_up_products(model), out)


def list_feed_forward_products(model: Model, width: int) -> tuple[Product, Product]:
    """Return both matrices of a feed-forward part of an inner width."""
    return (
        Product("fc1", model.hidden, compute_inner_width(model, width), "columns"),
        Product("fc2", width, model.hidden, "rows"),
    )


def has_experts(model: Model, layer: int) -> bool:
    """Return whether a layer has experts."""
    return bool(model.experts) and layer >= model.dense_layers


def count_expert_layers(model: Model) -> int:
    """Return how many layers have experts."""
    return model.layers - model.dense_layers if model.experts else 0


def build_layer_unit(model: Model, layer: int = 0) -> Unit:
    """Return the weights of a layer but for its experts."""
    hidden, experts = model.hidden, has_experts(model, layer)
    width = model.shared_width if experts else model.feed_forward
    products = (*list_attention_products(model), *list_feed_forward_products(model, width))
    sharded = sum(product.size for product in products if product.split)
    if model.biases or model.qkv_bias:
        sharded += sum(product.columns for product in list_up_products(model))
    sharded += compute_inner_width(model, width) if model.biases else 0
    replicated = sum(product.size for product in products if not product.split)
    # Norms, and biases of products whose rows are divided.
    replicated += (6 if model.biases else 4 if model.post_norms else 2) * hidden
    replicated += (2 * model.head_size if model.qk_norm else 0) + model.query_rank + model.kv_rank
    if experts:
        replicated += hidden * (model.experts + (1 if model.shared_gate else 0))
        replicated += model.experts if model.router_bias else 0
    return Unit(sharded, replicated)


def build_expert_unit(model: Model, ep: int = 1) -> Unit:
    """Return the weights of a layer's experts that a rank of expert parallelism has."""
    each = sum(product.size for product in list_feed_forward_products(model, model.expert_width))
    return Unit(model.experts // ep * each, 0, "edp")


def build_embedding_unit(model: Model, vocabulary: int) -> Unit:
    """Return the weights of the embedding."""
    return Unit(vocabulary * model.hidden, model.positions * model.hidden)


def count_norm_parameters(model: Model) -> int:
    """Return the parameters of the norm before the output layer."""
    return (2 if model.biases else 1) * model.hidden


def build_head_unit(model: Model, vocabulary: int, *, shared: bool) -> Unit:
    """Return the weights of the output layer and the norm before it.

    Args:
        model: The model.
        vocabulary: Its vocabulary, padded.
        shared: Whether the matrix is that of the embedding on the same rank.
    """
    return Unit(0 if shared else vocabulary * model.hidden, count_norm_parameters(model))


def build_stage_units(model: Model, layout: Layout, stage: int) -> dict[str, Unit]:
    """Return the weights of a pipeline stage: `embedding`, `layer<n>`, `layer<n>.experts` (a rank's), `head`.

    Where the output layer shares the matrix of the embedding and lies on another stage, both hold it.
    """
    vocabulary = layout.vocabulary(model)
    units = {"embedding": build_embedding_unit(model, vocabulary)} if stage == 0 else {}
    # There are two kinds of layers at most, and their weights take longest to count.
    kinds: dict[bool, Unit] = {}
    own = build_expert_unit(model, layout.ep) if model.experts else None
    for layers in layout.chunk_layers(stage):
        for layer in layers:
            experts = has_experts(model, layer)
            if experts not in kinds:
                kinds[experts] = build_layer_unit(model, layer)
            units[f"layer{layer}"] = kinds[experts]
            if experts and own is not None:
                units[f"layer{layer}{EXPERTS}"] = own
    if stage == layout.pp - 1:
        units["head"] = build_head_unit(model, vocabulary, shared=model.tied and layout.pp == 1)
    return units


def count_parameters(model: Model, vocabulary: int | None = None) -> int:
    """Return the parameters of a model.

    Args:
        model: The model.
        vocabulary: Its vocabulary where it is padded.

    Example:
        >>> from studio.generation.models import find_model
        >>> count_parameters(find_model("llama3-8b"))
        8030261248
    """
    return _sum_parameters(model, vocabulary or model.vocabulary, model.experts)


def count_active_parameters(model: Model) -> int:
    """Return the parameters that a token meets: of experts only those that it goes to.

    Example:
        >>> from studio.generation.models import find_model
        >>> count_active_parameters(find_model("mixtral-8x7b"))
        12879925248
    """
    return _sum_parameters(model, model.vocabulary, model.experts_per_token)


def _sum_parameters(model: Model, vocabulary: int, experts: int) -> int:
    units = [build_embedding_unit(model, vocabulary), build_head_unit(model, vocabulary, shared=model.tied)]
    total = sum(unit.sharded + unit.replicated for unit in units)
    # Layers are alike but for their experts: each kind is counted once.
    for layers, first in _list_layer_kinds(model):
        layer = build_layer_unit(model, first)
        total += layers * (layer.sharded + layer.replicated)
    each = build_expert_unit(model).sharded // model.experts if model.experts else 0
    return total + count_expert_layers(model) * experts * each


def _list_layer_kinds(model: Model) -> list[tuple[int, int]]:
    """Return how many layers of each kind there are, without experts and with them, and the first of each."""
    with_experts = count_expert_layers(model)
    kinds = [(model.layers - with_experts, 0), (with_experts, model.layers - with_experts)]
    return [(layers, first) for layers, first in kinds if layers]


def count_flop_per_sequence(model: Model, sequence: int, vocabulary: int) -> int:
    """Return the operations of matrix products in the forward and the backward pass of a sequence.

    Of a GPT of l layers and width h that is Narayanan et al.'s 72 s l h² (1 + s / 6h + V / 12lh). Of a model with experts those of a
    token's own count, whatever a layout's routing drops or pads.
    """
    forward = _sum_layer_flop(model, sequence)
    routed = sequence * model.experts_per_token * count_expert_flop(model)
    forward += count_expert_layers(model) * routed
    return 3 * (forward + 2 * sequence * model.hidden * vocabulary)


def _sum_layer_flop(model: Model, sequence: int) -> int:
    """Return the operations of the forward pass of all layers but for their experts."""
    products = sum(layers * _count_product_sizes(model, first) for layers, first in _list_layer_kinds(model))
    attention = sum(count_attention_flop(model, 1, sequence, layer) for layer in range(model.layers))
    return 2 * sequence * products + attention


def _count_product_sizes(model: Model, layer: int) -> int:
    """Return the parameters of a layer that each token is multiplied with, but for those of its experts."""
    experts = has_experts(model, layer)
    width = model.shared_width if experts else model.feed_forward
    products = (*list_attention_products(model), *list_feed_forward_products(model, width))
    router = model.hidden * (model.experts + (1 if model.shared_gate else 0)) if experts else 0
    return sum(product.size for product in products) + router


def count_expert_flop(model: Model) -> int:
    """Return the operations of a token in an expert's forward pass; 0 for a model without."""
    return 2 * sum(product.size for product in list_feed_forward_products(model, model.expert_width))


def count_attention_flop(model: Model, sequences: int, length: int, layer: int | None = None) -> int:
    """Return the operations of both products of attention in a forward pass: scores, and their sum of values.

    Args:
        model: The model.
        sequences: How many sequences.
        length: Tokens of each.
        layer: Which layer, where layers differ in their window; None counts all tokens.
    """
    seen = length
    if layer is not None and model.window and not (model.full_every and (layer + 1) % model.full_every == 0):
        seen = min(model.window, length)
    return 2 * sequences * length * seen * (compute_query_width(model) + compute_output_width(model))


def compute_largest_node_flop(model: Model, layout: Layout) -> int:
    """Return the operations of the compute node that has most of them."""
    widest = max(
        compute_qkv_width(model),
        compute_output_width(model),
        compute_inner_width(model),
        layout.vocabulary(model),
    )
    product = 2 * layout.tokens * model.hidden * widest
    if model.experts:
        product = max(product, layout.ep * layout.tokens * model.experts_per_token * count_expert_flop(model))
    return max(product, 2 * count_attention_flop(model, layout.micro_batch, layout.sequence)) // layout.tp


def count_step_flop(model: Model, layout: Layout) -> int:
    """Return the operations of matrix products in a step of the whole job, those that are recomputed among them.

    Experts are counted with the tokens that they work on, those that pad them to a capacity among them.
    """
    forward = count_layers_flop(
        model, layout
    ) + 2 * layout.batch * layout.sequence * model.hidden * layout.vocabulary(model)
    return 3 * forward + count_recomputed_flop(model, layout)


def count_layers_flop(model: Model, layout: Layout) -> int:
    """Return the operations of matrix products in the forward pass of all layers in a step of the whole job."""
    each = _sum_layer_flop(model, layout.sequence)
    if not model.experts:
        return layout.batch * each
    routed = (
        count_expert_layers(model)
        * layout.micro_batches
        * layout.copies
        * (layout.tp if layout.sequence_parallel else 1)
    )
    return layout.batch * each + routed * count_given_tokens(model, layout) * count_expert_flop(model)


def count_recomputed_flop(model: Model, layout: Layout) -> int:
    """Return the operations of matrix products of a step that the backward pass repeats, of the whole job.

    Of a GPT whose layers are recomputed in full, with them: 96 s l h² (1 + s / 6h + V / 16lh) a sequence (Narayanan et al.).
    """
    if layout.recompute == "selective":
        layers = range(model.layers)
        return layout.batch * sum(count_attention_flop(model, 1, layout.sequence, layer) for layer in layers)
    return count_layers_flop(model, layout) if layout.recompute == "full" else 0
