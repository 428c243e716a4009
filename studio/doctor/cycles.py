"""Find a smallest set of dependencies whose removal opens all cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from studio.analysis.graph.digraph import build_network, find_feedback_edges
from studio.doctor.diagnosis import GraphCase
from studio.trace import NONE, Graph, Int64

_EXACT_NODES = 12
"""Circles of up to this many nodes are solved exactly, by looking at every order of them."""
_EXACT_STEPS = 2_000_000
"""Steps that exact solutions may take in all; what is left then is solved like larger cycles."""
_TRIED = 20_000_000
"""Dependencies looked at while trying which of those removed can stay."""
_ONE = 1000
"""The weight of a dependency; preferences between sets of equal size stay below it."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Dependencies to remove.

    E of them.

    Attributes:
        of, waited: (E,) rows: `of` no longer waits for `waited`.
        exact: Whether no smaller set opens all cycles; else it is the outcome of a heuristic, of which none can be left out.
    """

    of: Int64
    waited: Int64
    exact: bool


def find_removal(case: GraphCase) -> Removal:
    """Return a smallest set of dependencies without which a graph has no cycles, self-loops apart.

    Of sets of equal size it prefers dependencies that the recorded times contradict, then such on later ids.
    """
    of, waited, weight, circle = _list_cycle_edges(case)
    chosen = np.zeros(len(of), bool)
    exact, steps = True, _EXACT_STEPS
    for places in _split_by_cycle(circle):
        names, ends = np.unique(np.stack([of[places], waited[places]]), return_inverse=True)
        left, right = ends.reshape(2, -1)
        count = len(names)
        steps -= count << count if count <= _EXACT_NODES else 0
        if count <= _EXACT_NODES and steps >= 0:
            violated = _find_lightest_removal(count, left, right, weight[places])
        else:
            violated = _find_light_removal(count, left, right, weight[places])
            # One has to go in any case.
            exact = exact and len(violated) == 1
        chosen[places[violated]] = True
    return Removal(of[chosen], waited[chosen], exact)


def _list_cycle_edges(case: GraphCase) -> tuple[Int64, Int64, Int64, Int64]:
    """Return the distinct dependencies on cycles: waiting node, node waited for, weight, and cycle number."""
    of, waited = case.pairs
    number = case.circles
    is_inside = (number[of] != NONE) & (number[of] == number[waited]) & (of != waited)
    keys, entries = np.unique(of[is_inside] * len(number) + waited[is_inside], return_counts=True)
    of, waited = np.divmod(keys, max(len(number), 1))
    return of, waited, _ONE * entries + _weigh_edges(case.graph, of, waited), number[of]


def _weigh_edges(graph: Graph, of: Int64, waited: Int64) -> Int64:
    """Return (E,) how plausible each dependency is: 0 where recorded times contradict it."""
    start = graph.start_ns
    against = (start[of] >= 0) & (start[waited] >= 0) & (start[of] < start[waited])
    return np.where(against, 0, np.where(graph.id[waited] > graph.id[of], 1, 2)).astype(np.int64)


def _split_by_cycle(circle: Int64) -> Iterator[Int64]:
    order = np.argsort(circle, kind="stable")
    bounds = np.flatnonzero(np.diff(circle[order])) + 1
    yield from (places for places in np.split(order, bounds) if len(places))


def _find_lightest_removal(count: int, of: Int64, waited: Int64, weight: Int64) -> Int64:
    """Return the indices of a lightest set of dependencies that opens all cycles of a few nodes.

    The best order of every set of nodes is that of the set without its last node, which pays for whom it waits
    for outside.
    """
    waits: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for node, other, cost in zip(of.tolist(), waited.tolist(), weight.tolist(), strict=True):
        waits[node].append((1 << other, cost))
    full = (1 << count) - 1
    best = [0] * (full + 1)
    last = [0] * (full + 1)
    for chosen in range(1, full + 1):
        least = -1
        for node in range(count):
            bit = 1 << node
            if not chosen & bit:
                continue
            before = chosen ^ bit
            cost = best[before] + sum(weight for other, weight in waits[node] if not chosen & other)
            if least < 0 or cost < least:
                least, last[chosen] = cost, node
        best[chosen] = least
    place = np.zeros(count, np.int64)
    left = full
    for position in range(count - 1, -1, -1):
        place[last[left]] = position
        left ^= 1 << last[left]
    return np.flatnonzero(place[of] < place[waited])


def _find_light_removal(count: int, of: Int64, waited: Int64, weight: Int64) -> Int64:
    """Return the places of a light set of dependencies that opens all circles: Eades', less what is not needed."""
    from rustworkx import has_path

    removed = find_feedback_edges(count, of, waited, weight)
    if len(removed) * len(of) > _TRIED:
        return removed
    kept = np.ones(len(of), bool)
    kept[removed] = False
    network = build_network(count, of[kept], waited[kept])
    for place in sorted(removed.tolist(), key=lambda place: -int(weight[place])):
        start, end = int(of[place]), int(waited[place])
        if not has_path(network, end, start):
            network.add_edge(start, end, None)
            kept[place] = True
    return np.flatnonzero(~kept)
