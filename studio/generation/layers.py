"""Forward and backward passes of a layer on a rank: attention, then its feed-forward part or its experts."""

from __future__ import annotations

from studio.generation.experts import append_experts_backward, append_experts_forward
from studio.generation.passes import Passes
from studio.generation.transformer import EXPERTS, has_experts


def append_layer_forward(passes: Passes, at: str, x: int, ready: int) -> int:
    """Append the forward pass of a layer; returns the node that makes its output.

    Args:
        passes: Where nodes go to.
        at: Step, micro-batch and layer, such as `step0.mb1.layer2`, or that and what is done `again`.
        x: The node that makes its input.
        ready: The node that its weights wait for.
    """
    layer = parse_layer(at)
    x = passes.attention_forward(at, layer, x, ready)
    if has_experts(passes.model, layer):
        return append_experts_forward(passes, at, layer, x)
    return passes.feed_forward_forward(at, x)


def append_layer_backward(passes: Passes, at: str, grad: int, ready: int) -> int:
    """Append the backward pass of a layer; returns the node that makes the gradient of its input.

    Args:
        passes: Where nodes go to.
        at: Step, micro-batch and layer.
        grad: The node that makes the gradient of its output.
        ready: The node that its weights, or what is computed again, wait for.
    """
    layer, unit = parse_layer(at), at.rpartition(".")[2]
    passes.weights[unit] = []
    if has_experts(passes.model, layer):
        passes.weights[f"{unit}{EXPERTS}"] = []
        grad = append_experts_backward(passes, at, unit, layer, [grad, ready])
    else:
        grad = passes.feed_forward_backward(at, unit, grad, ready)
    return passes.attention_backward(at, unit, layer, grad, 0)


def parse_layer(at: str) -> int:
    """Return the layer that a place names.

    Example:
        >>> parse_layer("step0.mb1.layer12.again")
        12
    """
    return int(at.partition(".layer")[2].partition(".")[0])
