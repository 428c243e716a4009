"""How many tokens each expert parallel rank gets, when routing is even, skewed or padded to a capacity.

Sources: Lepikhin et al., GShard, 2020, and Fedus et al., Switch Transformers, 2021 (expert capacity: the even share × a capacity
factor, padded or dropped). The skew is a power law of the experts' popularity, drawn anew for each layer and the same in every step:
a model of hot experts, not a measurement of one.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache

from studio.generation.layout import Layout
from studio.generation.models import Model


def count_own_tokens(layout: Layout) -> int:
    """Return the tokens of a micro-batch that a rank routes: tensor parallel ranks divide them by sequence parallelism."""
    return layout.tokens // (layout.tp if layout.sequence_parallel else 1)


def count_given_tokens(model: Model, layout: Layout) -> int:
    """Return the copies of tokens that a rank sends to experts in a layer, its own among them."""
    return sum(count_tokens_by_rank(model, layout, 0))


def count_tokens_by_rank(model: Model, layout: Layout, layer: int) -> tuple[int, ...]:
    """Return the copies of tokens that a rank sends to the experts of each rank of its expert parallel group, (ep,).

    Example:
        >>> from studio.generation.wish import Wish, build_layout
        >>> from studio.generation.models import find_model
        >>> model = find_model("mixtral-8x7b")
        >>> count_tokens_by_rank(model, build_layout(model, Wish(8, ep=4, sequence=1_024)), 0)
        (512, 512, 512, 512)
    """
    own, held = count_own_tokens(layout), model.experts // layout.ep
    if layout.capacity_factor is not None:
        each = math.ceil(layout.capacity_factor * own * model.experts_per_token / model.experts)
        return (held * each,) * layout.ep
    # Without a skew all layers are alike.
    drawn = f"{layout.seed}/{layer}" if layout.expert_skew else ""
    return _count_shares(own, (model.experts, model.experts_per_token), layout.ep, layout.expert_skew, drawn)


@lru_cache(maxsize=4_096)
def _count_shares(own: int, choice: tuple[int, int], ranks: int, skew: float, seed: str) -> tuple[int, ...]:
    """Return the copies of tokens of a rank for each of so many ranks; `choice` is of how many experts each takes how many."""
    experts, chosen = choice
    weights = compute_popularity(experts, chosen, skew, seed) if skew else (1.0,) * experts
    held = experts // ranks
    return _round_shares(own * chosen, [sum(weights[at : at + held]) for at in range(0, experts, held)])


def count_received_tokens(model: Model, layout: Layout, layer: int, place: int) -> int:
    """Return the copies of tokens that a rank's experts work on in a layer.

    Args:
        model: The model.
        layout: The layout.
        layer: The layer.
        place: The rank's place in its expert parallel group.
    """
    return layout.ep * count_tokens_by_rank(model, layout, layer)[place]


def is_even(model: Model, layout: Layout) -> bool:
    """Return whether all ranks of an expert parallel group get as many tokens in every layer."""
    if not model.experts or layout.ep == 1 or layout.capacity_factor is not None:
        return True
    routed = count_own_tokens(layout) * model.experts_per_token
    return not layout.expert_skew and routed % layout.ep == 0


@lru_cache(maxsize=4_096)
def compute_popularity(experts: int, chosen: int, skew: float, seed: str) -> tuple[float, ...]:
    """Return the share of tokens that goes to each expert, in tokens of one: together `chosen`, none above 1, (experts,).

    The n-th most wanted expert has a share of n ^ -skew; one that would get a token twice gets it once, and others the rest.
    """
    wanted: list[float] = [(1 + number) ** -skew for number in range(experts)]
    random.Random(seed).shuffle(wanted)  # noqa: S311 (a reproducible draw, no secret)
    full: set[int] = set()
    while True:
        rest = sum(value for number, value in enumerate(wanted) if number not in full)
        scale = (chosen - len(full)) / rest if rest else 0.0
        over = {number for number, value in enumerate(wanted) if number not in full and value * scale > 1}
        if not over:
            return tuple(1.0 if number in full else value * scale for number, value in enumerate(wanted))
        full |= over


def _round_shares(total: int, weights: list[float]) -> tuple[int, ...]:
    """Return whole numbers in proportion to weights that add up to a total; those with the largest rests get one more."""
    every = sum(weights)
    exact = [total * weight / every for weight in weights]
    shares = [math.floor(value) for value in exact]
    by_rest = sorted(range(len(exact)), key=lambda number: shares[number] - exact[number])
    for number in by_rest[: total - sum(shares)]:
        shares[number] += 1
    return tuple(shares)
