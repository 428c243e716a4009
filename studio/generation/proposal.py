"""Propose a layout that fits an NPU's memory, by the closed forms of what an NPU holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from studio.errors import ConfigError
from studio.generation.fitting import count_held_within
from studio.generation.models import Model, find_model
from studio.generation.options import BY_KEY
from studio.generation.workload import CUSTOM, build_workload

PROPOSED = ("tp", "pp", "ep", "zero", "recompute")
"""Options that are proposed where nothing is said of them, as far as there are such."""
_DEGREES = ("tp", "pp", "ep")
_TRIED = {"zero": (0, 1, 3), "recompute": ("none", "full")}
_MOST_STAGES = 64

Given = Mapping[str, Any]


def propose(
    model: str | Model, ranks: int, given: Given, memory_bytes: float, node: int = 8
) -> dict[str, Any]:
    """Return what to take where nothing is said, so that the job fits: the smallest tensor × pipeline that does.

    Weights and optimizer are divided among replicas, and activations computed again, only where nothing fits without.

    Args:
        model: As `build_workload` takes it.
        ranks: How many ranks.
        given: What is said, by the keys of `options.OPTIONS`; None or missing is nothing.
        memory_bytes: Memory of an NPU.
        node: NPUs of a machine: tensor parallel ranks stay within one.

    Returns:
        Values of `PROPOSED` that differ from the defaults; empty where the defaults fit, and where nothing does.

    Example:
        >>> propose("llama3-8b", 8, {}, 80e9), propose("llama3-8b", 8, {"tp": 8}, 80e9)
        ({'tp': 4}, {})
    """
    for change in _iterate_changes(model, ranks, given, node):
        if _fits(model, ranks, {**given, **change}, memory_bytes):
            return {key: value for key, value in change.items() if value != BY_KEY[key].default}
    return {}


def _iterate_changes(model: str | Model, ranks: int, given: Given, node: int) -> Iterator[dict[str, Any]]:
    """Yield values of the options that are proposed: without sharding and recomputation first, there the smallest first."""
    keys = [key for key in PROPOSED if key in BY_KEY and given.get(key) is None]
    values = [_list_values(key, model, ranks, node, given) for key in keys]
    at = {key: place for place, key in enumerate(keys)}
    ways = [key for key in keys if key not in _DEGREES]

    def build_change_key(chosen: tuple[tuple[int, Any], ...]) -> tuple[int, ...]:
        degrees = [int(chosen[at[key]][1]) if key in at else 1 for key in _DEGREES]
        steps = [chosen[at[key]][0] for key in ways]
        return sum(step > 0 for step in steps), sum(steps), degrees[0] * degrees[1], *degrees[1:]

    for chosen in sorted(product(*map(enumerate, values)), key=build_change_key):
        change = {key: value for key, (_, value) in zip(keys, chosen, strict=True)}
        whole = {**given, **change}
        if ranks % ((whole.get("tp") or 1) * (whole.get("pp") or 1)) == 0:
            yield change


def _list_values(key: str, model: str | Model, ranks: int, node: int, given: Given) -> list[Any]:
    """Return the values of an option that are tried, the one that changes least first."""
    if key in _TRIED:
        return [choice for choice in _TRIED[key] if choice in BY_KEY[key].choices]
    if key == "ep":
        # All experts of a layer on one rank, on those of a machine, or on as many as there can be.
        experts = _count_experts(model, given)
        return sorted({math.gcd(experts, 1), math.gcd(experts, min(node, ranks)), math.gcd(experts, ranks)})
    most = min(node, ranks) if key == "tp" else min(_MOST_STAGES, ranks)
    return [1 << power for power in range(most.bit_length())]


def _count_experts(model: str | Model, given: Given) -> int:
    """Return the experts of a layer; 1 where there are none, or no such model."""
    try:
        known = find_model(model) if isinstance(model, str) and model != CUSTOM else model
    except ConfigError:
        return 1
    return given.get("experts") or (0 if isinstance(known, str) else known.experts) or 1


def _fits(model: str | Model, ranks: int, given: Given, memory_bytes: float) -> bool:
    try:
        workload = build_workload(model, ranks, given)
    except ConfigError:
        return False
    return count_held_within(workload.model, workload.layout, memory_bytes) is not None
