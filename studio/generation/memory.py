"""What an NPU holds, by part, as closed forms.

Sources: Rajbhandari et al., "ZeRO", SC 2020 (mixed precision with Adam: 2 bytes of weights, 2 of gradients and 12 of optimizer a
parameter, divided among replicas by stage); Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
2022, without recomputation, but for attention, whose scores are never stored: equations 1, 2 and 4 without their term 5as/h. The
equations count a GPT; gated parts, grouped queries and models without dropout hold the tensors of their own shapes.
"""

from __future__ import annotations

from studio.generation.layout import Layout
from studio.generation.models import Model
from studio.generation.schedule import in_flight
from studio.generation.transformer import keys, queries, stage_units

WEIGHT_BYTES = GRADIENT_BYTES = ACTIVATION_BYTES = 2
OPTIMIZER_BYTES = 12


def layer_activations(model: Model, layout: Layout) -> int:
    """Return the bytes that the forward pass of a layer leaves on a rank for one micro-batch.

    Of a GPT: s b h (10 + 24 / t), with sequence parallelism 34 s b h / t.
    """
    # Both norms' inputs and the inputs of both first products; masks of dropout are a byte each.
    whole = 8 * model.hidden + (2 * model.hidden if model.dropout else 0)
    # Queries, keys, values, the input of the projection; what the activation function reads and what it makes.
    divided = 2 * (2 * queries(model) + 2 * keys(model)) + (6 if model.gated else 4) * model.feed_forward
    share = layout.tp if layout.sequence_parallel else 1
    return layout.tokens * (whole * layout.tp // share + divided) // layout.tp


def stage_activations(model: Model, layout: Layout, stage: int) -> int:
    """Return the bytes of activations on a rank of a stage at the peak of a step.

    Beside its layers, for each micro-batch in flight: of the first stage the mask of dropout after the embedding, of the last
    the inputs of the norm and of the output layer and the logits in 4 bytes (Korthikanti et al., section 4.3).
    """
    share = layout.tp if layout.sequence_parallel else 1
    each = layout.stage_layers[stage] * layer_activations(model, layout)
    if stage == 0 and model.dropout:
        each += layout.tokens * model.hidden // share
    if stage == layout.pp - 1:
        each += layout.tokens * 4 * model.hidden // share
        each += layout.tokens * 4 * layout.vocabulary(model) // layout.tp
    return each * in_flight(layout.schedule, stage, layout.pp, layout.micro_batches)


def stage_memory(model: Model, layout: Layout, stage: int) -> dict[str, int]:
    """Return the bytes on a rank of a stage, by part: parameters, gradients, optimizer, activations, buffers.

    Shards are whole parameters, as many on every replica, so that a unit may be padded. Buffers are the weights that ZeRO-3 has
    gathered: of the unit at work and of the next.
    """
    held = [unit.held(layout.tp) for unit in stage_units(model, layout, stage).values()]
    sharded = sum(-(-count // layout.dp) for count in held)
    largest = sorted(held)[-2:]
    whole = sum(held)
    zero = layout.zero
    return {
        "parameters": WEIGHT_BYTES * (sharded if zero == 3 else whole),
        "gradients": GRADIENT_BYTES * (sharded if zero == 3 else whole),
        "optimizer": OPTIMIZER_BYTES * (sharded if zero else whole),
        "activations": stage_activations(model, layout, stage),
        "buffers": WEIGHT_BYTES * sum(largest) if zero == 3 and layout.dp > 1 else 0,
    }
