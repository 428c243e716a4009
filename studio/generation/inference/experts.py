"""The experts of a layer in a step of inference on a rank.

Every tensor parallel rank has all tokens of its replica and a part of each expert, as in vLLM: routed and shared experts are
summed on the rank, and one all-reduce follows. Expert parallel ranks exchange tokens by all-to-alls before and after, of the busier
direction of a rank, as in training. Of a rank's experts only those are read that a token goes to.
"""

from __future__ import annotations

from studio.generation.experts import append_token_exchange, compute_router_width
from studio.generation.inference.counts import ACTIVATION_BYTES, compute_experts_met
from studio.generation.inference.passes import StepPasses
from studio.generation.routing import count_given_tokens, count_received_tokens
from studio.generation.transformer import list_feed_forward_products

_NORM, _CHOICE = 5, 4
"""Operations of an element of a norm, and of an expert's score, as in training."""


def append_experts_forward(passes: StepPasses, at: str, layer: int, x: int) -> int:
    """Append a layer's router, experts, shared experts and residual; returns the node that makes its output."""
    model, layout = passes.model, passes.layout
    part, hidden, tokens, tp = f"{at}.moe", model.hidden, layout.tokens, layout.tp
    copied = count_given_tokens(model, layout) * hidden
    normed = passes.elementwise(f"{part}.norm.fwd", [x], passes.width, _NORM, 2)
    scores = passes.product(
        f"{part}.router.fwd", [normed], (tokens, hidden, compute_router_width(passes)), ACTIVATION_BYTES
    )
    chosen = passes.elementwise(f"{part}.choice.fwd", [scores], tokens * model.experts, _CHOICE, 2)
    node = passes.elementwise(f"{part}.permute.fwd", [normed, chosen], copied, 1, 2)
    node = append_token_exchange(passes, f"{part}.dispatch.all_to_all.fwd", layer, node)
    shared = [_append_shared(passes, part, normed)] if model.shared_width else []
    arrived = count_received_tokens(model, layout, layer, passes.place)
    met = compute_experts_met(model, layout, layer, passes.place)
    first, second = list_feed_forward_products(model, model.expert_width)
    node = _append_grouped(
        passes, f"{part}.experts.fc1.fwd", node, (arrived, first.rows, first.columns // tp), met
    )
    node = passes.activation(f"{part}.experts.act.fwd", node, arrived * second.rows // tp)
    node = _append_grouped(
        passes, f"{part}.experts.fc2.fwd", node, (arrived, second.rows // tp, second.columns), met
    )
    node = append_token_exchange(passes, f"{part}.combine.all_to_all.fwd", layer, node)
    node = passes.elementwise(f"{part}.unpermute.fwd", [node, *shared], copied, 2, 2)
    return passes.residual(part, [passes.leave(part, "fwd", node), x])


def _append_shared(passes: StepPasses, part: str, normed: int) -> int:
    """Append the experts that every token goes to; their sum over ranks is that of the others too."""
    tokens, tp, width = passes.layout.tokens, passes.layout.tp, passes.model.shared_width
    first, second = list_feed_forward_products(passes.model, width)
    node = passes.matmul(f"{part}.shared.fc1.fwd", [normed], tokens, first.rows, first.columns // tp)
    node = passes.activation(f"{part}.shared.act.fwd", node, tokens * width // tp)
    return passes.matmul(f"{part}.shared.fc2.fwd", [node], tokens, second.rows // tp, second.columns)


def _append_grouped(
    passes: StepPasses, name: str, after: int, shape: tuple[int, int, int], met: float
) -> int:
    """Append the products of a rank's experts: of so many tokens together, by a matrix of each expert that is met."""
    return passes.product(name, [after], shape, passes.precision.weight_bytes, matrices=met)
