"""What an NPU holds in inference, by part, as closed forms.

Weights: parameters by their bytes. KV cache: Kwon et al., "PagedAttention", SOSP 2023, without the unfilled rest of blocks.
Activations: the tensors that are alive at once in the layer that needs most, beside the residual stream, or the logits in the
output layer. With multi-head latent attention, keys and values of what the cache held before a prompt are made in parts no longer than
what the step reads. What libraries, graphs of kernels and the context of the driver take is not counted.
"""

from __future__ import annotations

from studio.generation.inference.batches import Load, advance_batch, sum_load
from studio.generation.inference.counts import (
    ACTIVATION_BYTES,
    Precision,
    count_cache_shares,
    count_layer_cache_bytes,
)
from studio.generation.inference.job import MicroBatches, Steps
from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.transformer import (
    EXPERTS,
    build_stage_units,
    compute_inner_width,
    compute_qkv_width,
    compute_query_width,
    list_down_products,
)


def count_weight_bytes(model: Model, layout: Layout, stage: int, precision: Precision) -> int:
    """Return the bytes of weights on a rank of a stage: matrices of layers in their data type, the rest in bf16."""
    total = 0
    for name, unit in build_stage_units(model, layout, stage).items():
        size = precision.weight_bytes if name.startswith("layer") else ACTIVATION_BYTES
        total += size * (unit.sharded // layout.tp) + ACTIVATION_BYTES * unit.replicated
        if name.startswith("layer") and not name.endswith(EXPERTS):
            # Matrices that every tensor parallel rank holds whole are in the type of the others.
            total -= (ACTIVATION_BYTES - size) * sum(product.size for product in list_down_products(model))
    return total


def count_cache_bytes(model: Model, layout: Layout, stage: int, precision: Precision, tokens: int) -> int:
    """Return the bytes on a rank of a stage that hold the keys and values of so many tokens."""
    return (
        layout.stage_layers[stage]
        * tokens
        * count_layer_cache_bytes(model, precision)
        // count_cache_shares(model, layout.tp)
    )


def count_activation_bytes(model: Model, layout: Layout, stage: int, load: Load) -> int:
    """Return the bytes of activations of a rank at the peak of a step."""
    tokens, tp, hidden = load.tokens, layout.tp, model.hidden
    wide, heads, inner = (
        compute_qkv_width(model) // tp,
        compute_query_width(model) // tp,
        compute_inner_width(model) // tp,
    )
    feed = model.feed_forward // tp
    layer = max(hidden + wide, wide + heads, heads + hidden, hidden + inner, inner + feed, feed + hidden)
    if model.experts:
        # Copies of tokens with the inner width of their experts; on an expert parallel rank as many in the mean.
        copies = model.experts_per_token
        layer = max(layer, copies * (hidden + compute_inner_width(model, model.expert_width) // tp))
    latent = 0
    if model.kv_rank:
        # Of tokens that decode, queries and results of heads, each as wide as what is compressed.
        latent = load.decoding.tokens * model.heads // tp * (2 * model.kv_rank + model.rope_size)
    peak = tokens * hidden + max(tokens * layer, latent)
    if stage == layout.pp - 1:
        vocabulary = layout.vocabulary(model)
        gathered = vocabulary + vocabulary // tp if tp > 1 else vocabulary
        peak = max(peak, tokens * hidden + load.logits * (hidden + gathered))
    return ACTIVATION_BYTES * peak


def _count_held(
    model: Model, layout: Layout, stage: int, micro: MicroBatches, steps: Steps
) -> dict[str, int]:
    last = [sum_load(advance_batch(batch, steps.steps - 1)) for batch in micro]
    cached = sum(load.cached for load in last)
    return {
        "weights": count_weight_bytes(model, layout, stage, steps.precision),
        "kv_cache": count_cache_bytes(model, layout, stage, steps.precision, cached),
        "activations": max(count_activation_bytes(model, layout, stage, load) for load in last),
    }


def count_stage_memory(steps: Steps, stage: int) -> dict[str, int]:
    """Return the bytes on a rank of a stage at the end of the last step, by part, of the replica that holds most."""
    every = [_count_held(steps.model, steps.layout, stage, micro, steps) for micro in steps.batches]
    most = max(every, key=lambda held: sum(held.values()))
    draft = 0
    if steps.draft is not None and not stage:
        other = [
            _count_held(steps.draft.model, steps.draft.layout, 0, micro, steps) for micro in steps.batches
        ]
        draft = max(held["weights"] + held["kv_cache"] for held in other)
    return {**most, "draft": draft}


def find_fullest(steps: Steps) -> tuple[int, dict[str, int]]:
    """Return the stage whose ranks hold most, and what they hold."""
    stages = [count_stage_memory(steps, stage) for stage in range(steps.layout.pp)]
    stage = max(range(len(stages)), key=lambda at: sum(stages[at].values()))
    return stage, stages[stage]
