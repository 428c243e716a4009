"""Questions about directed graphs of millions of edges: order, reach, cycles.

Rows are numbered from 0, edges are two arrays of rows. All answers are fixed by the edges alone: where several are equally
right, lower rows come first.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from studio.analysis.graph.loops import find_order
from studio.trace import Bool, Int64

if TYPE_CHECKING:
    from rustworkx import PyDiGraph

    Network = PyDiGraph[None, None]

Rows = NDArray[np.integer[Any]]


def build_network(count: int, before: Rows, after: Rows) -> Network:
    """Return a graph of `count` nodes, whose edges lead from `before` to `after`, for several questions."""
    from rustworkx import PyDiGraph

    network: Network = PyDiGraph()
    network.add_nodes_from([None] * count)
    network.extend_from_edge_list(list(zip(before.tolist(), after.tolist(), strict=True)))
    return network


def find_reachable(network: Network, start: int, *, backwards: bool = False) -> Int64:
    """Return the rows, in no order, that can be reached from `start`, itself among them.

    Args:
        network: The graph.
        start: A row.
        backwards: Whether edges are followed from their end to their beginning.
    """
    from rustworkx import ancestors, descendants

    rows = ancestors(network, start) if backwards else descendants(network, start)
    return np.append(np.fromiter(rows, np.int64, len(rows)), start)


def find_shortest_path(network: Network, start: int, end: int) -> list[int]:
    """Return the rows on a path from `start` to `end` with the fewest edges; empty where there is none."""
    came_from = {start: start}
    waiting = deque([start])
    while waiting and end not in came_from:
        row = waiting.popleft()
        for following in sorted(network.successor_indices(row)):
            if following not in came_from:
                came_from[following] = row
                waiting.append(following)
    return _follow_back(came_from, end) if end in came_from else []


def order_topologically(count: int, before: Rows, after: Rows) -> Int64:
    """Return the rows so that every edge leads to a later one; rows on cycles and behind them are left out.

    Example:
        >>> order_topologically(4, np.array([2, 3, 1]), np.array([0, 1, 3])).tolist()
        [2, 0]
    """
    order = np.lexsort((after, before))
    first = np.searchsorted(before[order], np.arange(count + 1))
    return find_order(first, after[order].astype(np.int64), np.bincount(after, minlength=count))


def find_strong_components(count: int, before: Rows, after: Rows) -> Int64:
    """Return (N,) the number of the strongly connected component of each row, rising along edges between them.

    Example:
        >>> find_strong_components(4, np.array([0, 1, 2, 2]), np.array([1, 2, 1, 3])).tolist()
        [0, 1, 1, 2]
    """
    return _number_components(count, _reverse_graph(count, before, after))


def _reverse_graph(count: int, before: Rows, after: Rows) -> Network:
    """Return a graph turned round and sorted, so that components come in one order and in no other."""
    order = np.lexsort((after, before))
    return build_network(count, after[order], before[order])


def _number_components(count: int, turned: Network) -> Int64:
    from rustworkx import strongly_connected_components

    component = np.empty(count, np.int64)
    for number, rows in enumerate(strongly_connected_components(turned)):
        component[rows] = number
    return component


def find_cycle_components(count: int, before: Rows, after: Rows, *keys: Rows) -> Int64:
    """Return (N,) the number of the cycle, or cycles that meet, each row is on, -1 where it is on none; loops do not count.

    Args:
        count: N, how many rows.
        before: (E,) where edges begin.
        after: (E,) where they end.
        keys: (N,) values that should rise along edges. A cycle runs against them somewhere, and lies within what such
            edges span; only that is searched, by the values that leave least.

    Example:
        >>> find_cycle_components(5, np.array([0, 1, 2, 4]), np.array([1, 2, 1, 3]), np.arange(5)).tolist()
        [-1, 0, 0, -1, -1]
    """
    from rustworkx import is_directed_acyclic_graph

    number = np.full(count, -1, np.int64)
    against = []
    for key in keys:
        against.append(key[before] >= key[after])
        if not against[-1].any():
            return number
    near = np.ones(count, bool)
    for key, edges in zip(keys, against, strict=True):
        spanned = _find_spanned(key, key[after][edges], key[before][edges])
        near = spanned if spanned.sum() < near.sum() else near
    inside = near[before] & near[after] & (before != after)
    if not inside.any():
        return number
    # Rows at the end of no inner edge, or the beginning of none, are on no cycle.
    begins, ends = np.zeros(count, bool), np.zeros(count, bool)
    begins[before[inside]] = True
    ends[after[inside]] = True
    rows = np.flatnonzero(begins & ends)
    place = np.full(count, -1, np.int64)
    place[rows] = np.arange(len(rows))
    start, end = place[before[inside]], place[after[inside]]
    kept = (start >= 0) & (end >= 0)
    turned = _reverse_graph(len(rows), start[kept], end[kept])
    if is_directed_acyclic_graph(turned):
        return number  # as nearly always; millions of components of one row each would take most of the time
    component = _number_components(len(rows), turned)
    large = np.bincount(component, minlength=1)[component] > 1
    _, number[rows[large]] = np.unique(component[large], return_inverse=True)
    return number


def _find_spanned(key: Rows, low: Rows, high: Rows) -> Bool:
    """Return (N,) which rows lie within any of some spans of their values: (S,) from `low` to `high`."""
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    place = np.searchsorted(low[order], key, side="right") - 1
    return np.asarray((place >= 0) & (key <= reach[np.maximum(place, 0)]))


def find_shortest_cycle(count: int, before: Rows, after: Rows, *, starts: int) -> list[int]:
    """Return the rows of a cycle with the fewest edges, each leading to the next; empty where there is none.

    Args:
        count: N, how many rows.
        before: (E,) where edges begin.
        after: (E,) where they end; loops are left out of account.
        starts: Through how many rows on cycles, the lowest, a cycle is looked for.

    Example:
        >>> find_shortest_cycle(5, np.array([0, 1, 2, 3, 4]), np.array([1, 2, 0, 4, 3]), starts=9)
        [3, 4]
    """
    component = find_strong_components(count, before, after)
    inside = (component[before] == component[after]) & (before != after)
    out: dict[int, set[int]] = {}
    into: dict[int, set[int]] = {}
    for start, end in zip(before[inside].tolist(), after[inside].tolist(), strict=True):
        out.setdefault(start, set()).add(end)
        into.setdefault(end, set()).add(start)
    best: list[int] = []
    for start in sorted(out)[:starts]:
        if start in out:
            best = _find_cycle_through(start, out, len(best)) or best
            # No shorter cycle leads through this row, nor through those that only led to it.
            _remove(start, out, into)
    return best


def _find_cycle_through(start: int, out: Mapping[int, set[int]], below: int) -> list[int]:
    """Return a shortest cycle from `start`; empty where it has `below` rows or more, unless this is 0."""
    came_from = {start: start}
    ring, length = [start], 1
    while ring and (not below or length < below):
        closing = min((row for row in ring if start in out[row]), default=None)
        if closing is not None:
            return _follow_back(came_from, closing)
        following = []
        for row in ring:
            for other in sorted(out[row]):
                if other not in came_from:
                    came_from[other] = row
                    following.append(other)
        ring, length = following, length + 1
    return []


def _remove(row: int, out: dict[int, set[int]], into: Mapping[int, set[int]]) -> None:
    """Remove a row, and every row from which no edge leads on then."""
    ended = [row]
    while ended:
        row = ended.pop()
        del out[row]
        for other in into[row]:
            if other in out:
                out[other].discard(row)
                if not out[other]:
                    ended.append(other)


def _follow_back(came_from: Mapping[int, int], end: int) -> list[int]:
    """Return the rows from the one that came from itself to `end`."""
    path = [end]
    while came_from[path[-1]] != path[-1]:
        path.append(came_from[path[-1]])
    return path[::-1]


def find_feedback_edges(count: int, before: Rows, after: Rows, weight: Rows | None = None) -> Int64:
    """Return the edges, rising, without which a graph has no cycles: a light set, though seldom the lightest.

    This is the heuristic of Eades, Lin and Smyth (1993): rows are put in an order from both ends, sources first, sinks
    last, and of the rest the one next from which most leads away; edges against this order are returned, and loops.

    Args:
        count: N, how many rows.
        before: (E,) where edges begin.
        after: (E,) where they end.
        weight: (E,) what it costs to lose an edge; 1 where it is not given.

    Example:
        >>> find_feedback_edges(3, np.array([0, 1, 2]), np.array([1, 2, 0])).tolist()
        [2]
    """
    weights = np.ones(len(before), np.int64) if weight is None else weight
    place = _order_by_eades(count, before, after, weights)
    return np.flatnonzero(place[before] >= place[after])


def _order_by_eades(count: int, before: Rows, after: Rows, weight: Rows) -> Int64:
    """Return (N,) the place of each row in an order against which only light edges lead."""
    out, into = _list_weighted_neighbours(count, before, after, weight)
    leaving, entering = [len(edges) for edges in out], [len(edges) for edges in into]
    surplus = [sum(cost for _, cost in out[row]) - sum(cost for _, cost in into[row]) for row in range(count)]
    sinks = [row for row in range(count) if not leaving[row]]
    sources = [row for row in range(count) if not entering[row]]
    # A row is queued anew whenever its surplus changes; entries that are out of date are passed over.
    richest = [(-surplus[row], row) for row in range(count)]
    heapq.heapify(richest)
    front: list[int] = []
    back: list[int] = []
    placed = [False] * count
    while len(front) + len(back) < count:
        if sinks or sources:
            row = (sinks or sources).pop()
        else:
            value, row = heapq.heappop(richest)
            if value != -surplus[row]:
                continue
        if placed[row]:
            continue
        placed[row] = True
        (front if leaving[row] else back).append(row)
        for neighbours, sign, still, free in ((out, 1, entering, sources), (into, -1, leaving, sinks)):
            for other, cost in neighbours[row]:
                still[other] -= 1
                surplus[other] += sign * cost
                if not still[other]:
                    free.append(other)
                if not placed[other]:
                    heapq.heappush(richest, (-surplus[other], other))
    place = np.empty(count, np.int64)
    place[front + back[::-1]] = np.arange(count)
    return place


def _list_weighted_neighbours(
    count: int, before: Rows, after: Rows, weight: Rows
) -> tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]:
    """Return the weighted successors and the predecessors of each row, without self-loops."""
    out: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    into: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for start, end, cost in zip(before.tolist(), after.tolist(), weight.tolist(), strict=True):
        if start != end:
            out[start].append((end, cost))
            into[end].append((start, cost))
    return out, into
