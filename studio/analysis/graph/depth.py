"""Depth of every node: the longest chain of dependencies above it, for graphs of any size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.graph.digraph import order_topologically
from studio.analysis.graph.loops import find_layers
from studio.analysis.graph.neighbours import Edges
from studio.trace import Bool, Int64


@dataclass(frozen=True, slots=True)
class Depths:
    """The depths of a graph's nodes.

    N nodes, E edges.

    Attributes:
        layer: (N,) how many dependencies the longest chain to a node has; a node that waits for nothing stands right
            above the first that waits for it.
        place: (N,) a number per node that rises along every dependency that counts.
        forward: (E,) which edges count: all but loops and, in graphs with cycles, those against the order of the file.
    """

    layer: Int64
    place: Int64
    forward: Bool


def compute_depths(count: int, edges: Edges) -> Depths:
    """Return the depths of a graph of `count` nodes.

    Example:
        >>> chain = Edges(np.array([0, 1], np.int32), np.array([1, 2], np.int32), np.array([True, True]))
        >>> compute_depths(3, chain).layer.tolist()
        [0, 1, 2]
    """
    place = _compute_places(count, edges)
    forward = place[edges.before] < place[edges.after]
    before, after = edges.before[forward].astype(np.int64), edges.after[forward].astype(np.int64)
    reached = place[after]
    if (reached[1:] < reached[:-1]).any():
        order = np.argsort(reached, kind="stable")
        before, after = before[order], after[order]
    layer = find_layers(count, before, after)
    roots = np.full(count, True)
    roots[after] = False
    # What waits for nothing would crowd the first layer: it stands where it is needed.
    first_use = np.full(count, np.iinfo(np.int64).max)
    of_roots = roots[before]
    np.minimum.at(first_use, before[of_roots], layer[after[of_roots]])
    used = roots & (first_use < np.iinfo(np.int64).max)
    layer[used] = first_use[used] - 1
    return Depths(layer, place, forward)


def _compute_places(count: int, edges: Edges) -> Int64:
    """Return (N,) positions that rise along dependencies; file order where there are cycles."""
    rows = np.arange(count)
    if bool((edges.before <= edges.after).all()):
        return rows
    other = edges.before != edges.after
    order = order_topologically(count, edges.before[other], edges.after[other])
    if len(order) < count:
        return rows
    place = np.empty(count, np.int64)
    place[order] = rows
    return place
