"""Forward and backward passes of a layer's experts on a rank.

Sources: Lepikhin et al., GShard, 2020 (dispatch and combination by all-to-alls in both passes); Megatron-LM's all-to-all dispatcher:
every rank routes its own tokens, tokens that arrived are gathered among tensor parallel ranks, which divide each expert, and the sum is
scattered. Shared experts are computed while tokens are on their way, as with its --moe-shared-expert-overlap. The size of an
all-to-all is that of the busier direction of a rank, since that is what its link carries: what a rank with hot experts receives.
"""

from __future__ import annotations

from collections.abc import Sequence

from studio.generation.context import ELEMENT_BYTES
from studio.generation.layout import OPERAND_BYTES
from studio.generation.passes import Passes
from studio.generation.routing import count_given_tokens, count_own_tokens, count_received_tokens
from studio.generation.transformer import EXPERTS, list_feed_forward_products
from studio.trace import CollectiveType

_NORM, _CHOICE = 5, 4
"""Operations of an element of a norm, and of an expert's score: softmax and choice."""


def count_exchanged_bytes(passes: Passes, layer: int) -> int:
    """Return the bytes of a rank's all-to-all: of the copies of tokens that it gives, or gets where those are more."""
    model, layout = passes.model, passes.layout
    tokens = max(count_given_tokens(model, layout), count_received_tokens(model, layout, layer, passes.place))
    return ELEMENT_BYTES * tokens * model.hidden


def append_experts_forward(passes: Passes, at: str, layer: int, x: int) -> int:
    """Append the forward pass of a layer's router, experts, shared experts and residual."""
    model, layout = passes.model, passes.layout
    part, hidden, own = f"{at}.moe", model.hidden, count_own_tokens(layout)
    copied = count_given_tokens(model, layout) * hidden
    normed = passes.elementwise(f"{part}.norm.fwd", [x], passes.own, _NORM, 2)
    scores = passes.matmul(f"{part}.router.fwd", [normed], own, hidden, compute_router_width(passes))
    chosen = passes.elementwise(f"{part}.choice.fwd", [scores], own * model.experts, _CHOICE, 2)
    sent = passes.elementwise(f"{part}.permute.fwd", [normed, chosen], copied, 1, 2)
    arrived = append_token_exchange(passes, f"{part}.dispatch.all_to_all.fwd", layer, sent)
    shared = (
        [passes.dense_forward(f"{part}.shared", normed, model.shared_width)] if model.shared_width else []
    )
    tokens = count_received_tokens(model, layout, layer, passes.place)
    whole = _append_gather(passes, f"{part}.experts.all_gather.fwd", arrived, tokens)
    first, second = list_feed_forward_products(model, model.expert_width)
    wide = _append_grouped(
        passes, f"{part}.experts.fc1.fwd", [whole], tokens, (first.rows, first.columns // layout.tp)
    )
    active = passes.activation(
        f"{part}.experts.act.fwd", wide, tokens * _count_gathering_ranks(passes) * second.rows // layout.tp
    )
    out = _append_grouped(
        passes, f"{part}.experts.fc2.fwd", [active], tokens, (second.rows // layout.tp, second.columns)
    )
    out = _append_scatter(passes, f"{part}.experts.reduce_scatter.fwd", out, tokens)
    back = append_token_exchange(passes, f"{part}.combine.all_to_all.fwd", layer, out)
    summed = passes.elementwise(f"{part}.unpermute.fwd", [back], copied, 2, 2)
    return passes.residual(part, [summed, *shared, x])


def append_experts_backward(passes: Passes, at: str, unit: str, layer: int, grads: Sequence[int]) -> int:
    """Append the backward pass of all that `append_experts_forward` appends; returns the node that makes its input's gradient.

    Args:
        passes: Where nodes go to.
        at: Step, micro-batch and layer.
        unit: The layer's unit of weights.
        layer: The layer.
        grads: The node that makes the gradient of its output, and what else has to be there.
    """
    model, layout = passes.model, passes.layout
    part, hidden, own, tp = f"{at}.moe", model.hidden, count_own_tokens(layout), layout.tp
    copied = count_given_tokens(model, layout) * hidden
    inner = passes.residual_backward(part, unit, grads[0])
    sent = passes.elementwise(f"{part}.unpermute.bwd", [inner, *grads[1:]], copied, 2, 3)
    arrived = append_token_exchange(passes, f"{part}.combine.all_to_all.bwd", layer, sent)
    shared = []
    if model.shared_width:
        shared = [passes.dense_backward(f"{part}.shared", unit, [inner, *grads[1:]], model.shared_width)]
    tokens = count_received_tokens(model, layout, layer, passes.place)
    whole = _append_gather(passes, f"{part}.experts.all_gather.bwd", arrived, tokens)
    first, second = list_feed_forward_products(model, model.expert_width)
    grad = _append_grouped(
        passes, f"{part}.experts.fc2.dgrad", [whole], tokens, (second.columns, second.rows // tp)
    )
    held = f"{unit}{EXPERTS}"
    shape = second.rows // tp, second.columns
    passes.weight(
        held, lambda: [_append_grouped(passes, f"{part}.experts.fc2.wgrad", [whole], tokens, shape)]
    )
    wide = passes.activation(
        f"{part}.experts.act.bwd", grad, tokens * _count_gathering_ranks(passes) * second.rows // tp
    )
    grad = _append_grouped(
        passes, f"{part}.experts.fc1.dgrad", [wide], tokens, (first.columns // tp, first.rows)
    )
    grad = _append_scatter(passes, f"{part}.experts.reduce_scatter.bwd", grad, tokens)
    back = append_token_exchange(passes, f"{part}.dispatch.all_to_all.bwd", layer, grad)
    wider = first.rows, first.columns // tp
    passes.weight(held, lambda: [_append_grouped(passes, f"{part}.experts.fc1.wgrad", [wide], tokens, wider)])
    summed = passes.elementwise(f"{part}.permute.bwd", [back], copied, 1, 2)
    scores = passes.elementwise(f"{part}.choice.bwd", [sent], own * model.experts, _CHOICE, 3)
    routed = passes.matmul(f"{part}.router.dgrad", [scores], own, compute_router_width(passes), hidden)
    router = hidden, own, compute_router_width(passes)
    passes.weight(unit, lambda: [passes.matmul(f"{part}.router.wgrad", [scores], *router)])
    return passes.norm_backward(part, unit, [summed, routed, *shared, grads[0]])


def compute_router_width(passes: Passes) -> int:
    """Return the columns of the router's matrix: a score of each expert, and the gate of shared ones where a model has it."""
    return passes.model.experts + (1 if passes.model.shared_gate else 0)


def _count_gathering_ranks(passes: Passes) -> int:
    """Return how many ranks' tokens tensor parallel ranks gather."""
    return passes.layout.tp if passes.layout.sequence_parallel else 1


def append_token_exchange(passes: Passes, name: str, layer: int, after: int) -> int:
    """Append the all-to-all that brings tokens to their experts or back, if experts lie on several ranks; returns the last node."""
    if passes.layout.ep == 1:
        return after
    size = count_exchanged_bytes(passes, layer)
    return passes.program.collective(name, "ep", CollectiveType.ALL_TO_ALL, [after], size)


def _append_gather(passes: Passes, name: str, after: int, tokens: int) -> int:
    if _count_gathering_ranks(passes) == 1:
        return after
    size = ELEMENT_BYTES * tokens * passes.model.hidden
    return passes.program.collective(name, "tp", CollectiveType.ALL_GATHER, [after], size)


def _append_scatter(passes: Passes, name: str, after: int, tokens: int) -> int:
    if _count_gathering_ranks(passes) == 1:
        return after
    size = ELEMENT_BYTES * _count_gathering_ranks(passes) * tokens * passes.model.hidden
    return passes.program.collective(name, "tp", CollectiveType.REDUCE_SCATTER, [after], size)


def _append_grouped(
    passes: Passes, name: str, after: Sequence[int], tokens: int, shape: tuple[int, int]
) -> int:
    """Append the products of all experts of a rank: of so many tokens together, by a matrix (rows, columns) of each."""
    held = passes.model.experts // passes.layout.ep
    every = tokens * _count_gathering_ranks(passes)
    dtype = passes.dtype(name)
    size = OPERAND_BYTES[dtype]
    moved = size * (every * shape[0] + held * shape[0] * shape[1]) + ELEMENT_BYTES * every * shape[1]
    return passes.program.compute(name, after, 2 * every * shape[0] * shape[1], moved, "matmul", dtype=dtype)
