"""What an NPU holds, by part, as closed forms.

Sources: Rajbhandari et al., "ZeRO", SC 2020 (mixed precision with Adam: 2 bytes of weights, 2 of gradients and 12 of optimizer a
parameter, divided among replicas by stage); Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
2022, table 2: equations 1, 2 and 4, their term 5as/h only where attention is unfused and not recomputed, and 2sbh a layer with full
recomputation; Ren et al., "ZeRO-Offload", 2021 (the optimizer and a copy of the gradients in host memory). The equations count a GPT; gated parts, grouped queries and models without dropout hold the tensors of their own shapes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from studio.generation.layout import Layout, OptimizerName
from studio.generation.models import Model
from studio.generation.replicas import (
    Held,
    count_gathered_at_once,
    count_holders,
    count_shard_parameters,
    count_shards,
    group_gradient_buckets,
    list_chunk_units,
)
from studio.generation.routing import count_given_tokens, count_own_tokens, count_tokens_by_rank
from studio.generation.schedule import count_held_micro_batches
from studio.generation.transformer import (
    EXPERTS,
    compute_key_width,
    compute_output_width,
    compute_query_width,
    compute_value_width,
    has_experts,
)
from studio.trace import Int64

WEIGHT_BYTES = ACTIVATION_BYTES = 2
OPTIMIZER_BYTES: Mapping[OptimizerName, int] = {
    "adam": 12,
    "adam-bf16": 8,
    "adam-8bit": 6,
    "adam-bf16-only": 4,
    "sgd": 8,
}
"""Bytes that an optimizer keeps of a parameter: a copy in fp32, and both moments (Kingma and Ba, 2015) in 4 bytes, in bf16 (DeepSeek-V3,
2024, section 3.3.2) or in one byte (Dettmers et al., 2022, without their scales); of SGD one momentum in 4. With bf16 only there is no copy:
the weights themselves are updated, as PyTorch's optimizers do with a model in bf16."""
_WITHOUT_COPY = ("adam-bf16-only",)
FP8_COPIES = 2
"""Bytes of the copies of a weight of a layer in fp8: as it stands, and transposed for the gradient of the input, as Transformer Engine
keeps both on Hopper."""


def count_layer_activations(model: Model, layout: Layout, layer: int = 0) -> int:
    """Return the bytes that the forward pass of a layer makes on a rank for one micro-batch and its backward pass reads.

    Of a GPT: s b h (10 + 24 / t), with sequence parallelism 34 s b h / t; scores of unfused attention 5 a b s² / t. Of layers whose
    ranks get unequal numbers of tokens for their experts, those of the rank that gets most.
    """
    experts = has_experts(model, layer)
    # Both norms' inputs and the inputs of both first products; masks of dropout are a byte each.
    whole = 8 * model.hidden + (2 * model.hidden if model.dropout else 0)
    # Inputs of the norms behind both parts; what is compressed, before and after its norm.
    whole += (
        (4 * model.hidden if model.post_norms else 0)
        + 4 * (model.query_rank + model.kv_rank)
        + 2 * model.rope_size
    )
    # Queries, keys, values, the input of the projection; what the activation function reads and what it makes.
    divided = 2 * (
        compute_query_width(model)
        + compute_key_width(model)
        + compute_value_width(model)
        + compute_output_width(model)
    )
    divided += (6 if model.gated else 4) * (model.shared_width if experts else model.feed_forward)
    if layout.dtype == "fp8":
        # Both first products and the one behind the activation keep their inputs in a byte; attention keeps what it makes in two,
        # and the projection that in one besides.
        whole -= 2 * model.hidden
        divided += compute_output_width(model) - (model.shared_width if experts else model.feed_forward)
    share = layout.tp if layout.sequence_parallel else 1
    scores = 0
    if layout.attention == "unfused" and layout.recompute != "selective":
        # What the softmax makes; of dropout the mask, a byte, and what it makes.
        scores = model.heads * layout.sequence * (5 if model.dropout else 2)
    dense = layout.tokens * (whole * layout.tp // share + divided + scores) // layout.tp
    return dense + (_count_expert_activations(model, layout, layer) if experts else 0)


def _count_expert_activations(model: Model, layout: Layout, layer: int) -> int:
    """Return the bytes of a layer's experts: their inputs, what both products make of them, what comes back, and scores in 4 bytes."""
    share = layout.tp if layout.sequence_parallel else 1
    tokens = share * layout.ep * max(count_tokens_by_rank(model, layout, layer))
    each = ACTIVATION_BYTES * model.hidden + (6 if model.gated else 4) * model.expert_width // layout.tp
    if layout.dtype == "fp8":
        each -= model.hidden + model.expert_width // layout.tp
    back = ACTIVATION_BYTES * count_given_tokens(model, layout) * model.hidden
    return tokens * each + back + 4 * model.experts * count_own_tokens(layout)


def count_kept_activations(model: Model, layout: Layout, layer: int = 0) -> int:
    """Return the bytes that a layer keeps on a rank from the forward to the backward pass: with full recomputation its input."""
    if layout.recompute != "full":
        return count_layer_activations(model, layout, layer)
    share = layout.tp if layout.sequence_parallel else 1
    return ACTIVATION_BYTES * layout.tokens * model.hidden // share


def count_stage_activations(model: Model, layout: Layout, stage: int) -> int:
    """Return the bytes of activations on a rank of a stage at the peak of a step.

    Beside its layers, for each micro-batch in flight: of the first stage the mask of dropout after the embedding, of the last
    the inputs of the norm and of the output layer and the logits in 4 bytes (Korthikanti et al., section 4.3). With full
    recomputation one layer's are there whole besides, while its backward pass runs; where gradients of weights are left to a later
    pass, all that it repeated stay until then.
    """
    kept, waiting = count_chunk_activations(model, layout, stage)
    held, late = count_held_micro_batches(layout, stage)
    every = (layer for layers in layout.chunk_layers(stage) for layer in layers)
    again = (
        count_layer_activations(model, layout, layer) - count_kept_activations(model, layout, layer)
        for layer in {_classify_unit(model, layout, f"layer{layer}"): layer for layer in every}.values()
    )
    return int((held @ kept + late @ waiting).max()) + max(again, default=0)


def count_chunk_activations(model: Model, layout: Layout, stage: int) -> tuple[Int64, Int64]:
    """Return (V,) the bytes that each of V chunks of a stage keeps for a micro-batch, twice.

    From its forward pass on, and how many more while it waits for the gradients of weights alone.
    """
    known: dict[str, tuple[int, int]] = {}
    chunks = []
    for units in list_chunk_units(model, layout, stage):
        kinds = [_classify_unit(model, layout, name) for name in units]
        for name, kind in zip(units, kinds, strict=True):
            if kind not in known:
                known[kind] = count_unit_activations(model, layout, name)
        chunks.append([known[kind] for kind in kinds])
    kept = [sum(unit[0] for unit in chunk) for chunk in chunks]
    again = [sum(unit[1] for unit in chunk) for chunk in chunks]
    return np.array(kept, np.int64), np.array(again, np.int64)


def _classify_unit(model: Model, layout: Layout, unit: str) -> str:
    """Return what is the same of units with as many activations: their name, of layers whether they have experts, unless routing differs."""
    if not unit.startswith("layer") or layout.expert_skew:
        return unit
    if unit.endswith(EXPERTS):
        return EXPERTS
    return "experts" if has_experts(model, int(unit.removeprefix("layer"))) else "dense"


def count_unit_activations(model: Model, layout: Layout, unit: str) -> tuple[int, int]:
    """Return the bytes that a unit of a stage keeps for a micro-batch, and those that its backward pass makes again."""
    share = layout.tp if layout.sequence_parallel else 1
    if unit == "embedding":
        return (layout.tokens * model.hidden // share if model.dropout else 0), 0
    if unit == "head":
        logits = layout.tokens * 4 * layout.vocabulary(model) // layout.tp
        return layout.tokens * 4 * model.hidden // share + logits, 0
    if unit.endswith(EXPERTS):
        # Counted with their layer.
        return 0, 0
    layer = int(unit.removeprefix("layer"))
    kept = count_kept_activations(model, layout, layer)
    again = count_layer_activations(model, layout, layer) - kept
    return (0 if layout.offloads_activations else kept), again


def count_stage_memory(model: Model, layout: Layout, stage: int) -> dict[str, int]:
    """Return the bytes on a rank of a stage, by part: parameters, gradients, optimizer, activations, buffers.

    Shards are whole parameters, as many on every replica, so that a unit may be padded. Buffers are the weights that ZeRO-3 has
    gathered, of the unit at work and of those ahead, and the gradients that ZeRO-2 and 3 have not scattered yet, of a bucket, copies
    of weights in fp8, gradients of a bucket in the type in which they are summed where it is another, and, where activations are in host
    memory, those of two layers: one at work and one on its way.
    """
    units = {name: held for chunk in list_chunk_units(model, layout, stage) for name, held in chunk.items()}
    held = {name: unit.parameters for name, unit in units.items()}
    sharded = sum(count_shard_parameters(layout, unit) for unit in units.values())
    whole = sum(held.values())
    zero = layout.zero
    largest = sorted(count_gathered_at_once(layout, units))[-1 - layout.prefetch :]
    buffers = WEIGHT_BYTES * sum(largest) if zero == 3 else 0
    if zero >= 2:
        buckets = group_gradient_buckets(model, layout, stage)
        summed = [bucket for bucket in buckets if count_shards(layout, units[bucket[0]]) > 1]
        sizes = (sum(held[name] for name in bucket) for bucket in summed)
        buffers += layout.reduced_bytes * max(sizes, default=0)
    elif layout.reduced_bytes != layout.gradient_bytes:
        buffers += layout.reduced_bytes * _find_largest_summed(model, layout, stage, units)
    if layout.offloads_activations:
        buffers += 2 * max(_list_stowed_bytes(model, layout, stage))
    if layout.dtype == "fp8":
        of_layers = (parameters for name, parameters in held.items() if name.startswith("layer"))
        buffers += FP8_COPIES * (sum(largest) if zero == 3 else sum(of_layers))
    return {
        "parameters": WEIGHT_BYTES * (sharded if zero == 3 else whole),
        "gradients": layout.gradient_bytes * (sharded if zero >= 2 else whole),
        "optimizer": 0
        if layout.offloads_optimizer
        else OPTIMIZER_BYTES[layout.optimizer] * (sharded if zero else whole),
        "activations": count_stage_activations(model, layout, stage),
        "buffers": buffers,
    }


def count_optimizer_traffic(layout: Layout, parameters: int) -> int:
    """Return the bytes that an optimizer of so many parameters reads and writes in a step.

    Gradients are read; the copy and what is kept besides are read and written, and so are weights written, and read where they have no copy.
    """
    weights = WEIGHT_BYTES * (2 if layout.optimizer in _WITHOUT_COPY else 1)
    return (layout.gradient_bytes + 2 * OPTIMIZER_BYTES[layout.optimizer] + weights) * parameters


def count_updated_parameters(model: Model, layout: Layout, stage: int) -> int:
    """Return how many parameters a rank of a stage updates."""
    units = [unit for chunk in list_chunk_units(model, layout, stage) for unit in chunk.values()]
    return sum(count_shard_parameters(layout, unit) if layout.zero else unit.parameters for unit in units)


def count_host_memory(model: Model, layout: Layout, stage: int) -> dict[str, int]:
    """Return the bytes that a rank of a stage has in host memory, by part: optimizer with a copy of the gradients, activations at the peak.

    Activations of all micro-batches that a stage holds, but for those of the layers at work, which are on their way.
    """
    optimizer = activations = 0
    if layout.offloads_optimizer:
        count = count_updated_parameters(model, layout, stage)
        optimizer = (OPTIMIZER_BYTES[layout.optimizer] + layout.gradient_bytes) * count
    if layout.offloads_activations:
        kept = [
            sum(count_kept_activations(model, layout, layer) for layer in layers)
            for layers in layout.chunk_layers(stage)
        ]
        activations = int((count_held_micro_batches(layout, stage)[0] @ np.array(kept, np.int64)).max())
    return {"optimizer": optimizer, "activations": activations}


def _list_stowed_bytes(model: Model, layout: Layout, stage: int) -> list[int]:
    """Return what each layer of a stage keeps of a micro-batch."""
    return [
        count_kept_activations(model, layout, layer)
        for layers in layout.chunk_layers(stage)
        for layer in layers
    ]


def _find_largest_summed(model: Model, layout: Layout, stage: int, units: Mapping[str, Held]) -> int:
    """Return the parameters of the largest bucket that is summed."""
    buckets = group_gradient_buckets(model, layout, stage)
    return max(
        (
            sum(units[name].parameters for name in bucket)
            for bucket in buckets
            if count_holders(layout, units[bucket[0]]) > 1
        ),
        default=0,
    )


def find_fullest_stage(model: Model, layout: Layout) -> tuple[int, dict[str, int]]:
    """Return the stage whose ranks hold most at their peak, and what they hold, in bytes by part."""
    stages = [count_stage_memory(model, layout, stage) for stage in range(layout.pp)]
    stage = max(range(layout.pp), key=lambda number: sum(stages[number].values()))
    return stage, stages[stage]
