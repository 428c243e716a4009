"""Find the nodes on paths between two nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from studio.analysis.graph.digraph import build_network, find_reachable, find_shortest_path
from studio.analysis.graph.neighbours import Adjacency
from studio.trace import Int64

if TYPE_CHECKING:
    from studio.analysis.graph.digraph import Network


def build_walkable(near: Adjacency) -> Network:
    """Return a graph's dependencies, ready for `find_between`."""
    return build_network(len(near), near.edges.before, near.edges.after)


def find_between(network: Network, first: int, second: int, most: int) -> tuple[Int64, int]:
    """Return the nodes on all paths from one node to another, or the other way round; nothing where there is no path.

    Where these are more than `most`, only the nodes of a shortest path are returned; of one that is longer still as many
    of its beginning and of its end.

    Returns:
        (P,) rows, rising, and how many nodes are on any path.
    """
    for source, target in ((first, second), (second, first)):
        down = find_reachable(network, source)
        if target not in down:
            continue
        rows = np.intersect1d(down, find_reachable(network, target, backwards=True))
        if len(rows) <= most:
            return rows, len(rows)
        shortest = find_shortest_path(network, source, target)
        kept = shortest if len(shortest) <= most else shortest[: most // 2] + shortest[-(most // 2) :]
        return np.sort(np.array(kept, np.int64)), len(rows)
    return np.zeros(0, np.int64), 0
