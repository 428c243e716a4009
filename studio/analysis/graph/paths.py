"""Find the nodes on paths between two nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from studio.analysis.graph.neighbours import Adjacency
from studio.trace import Int64

if TYPE_CHECKING:
    import igraph


def walkable(near: Adjacency) -> igraph.Graph:
    """Return a graph's dependencies as an igraph graph."""
    import igraph

    pairs = np.column_stack((near.edges.before, near.edges.after))
    return igraph.Graph(n=len(near), edges=pairs, directed=True)


def between(network: igraph.Graph, this: int, other: int, most: int) -> tuple[Int64, int]:
    """Return the nodes on all paths between two nodes, in either direction; none where there is no path.

    Where these are more than `most`, only the nodes of a shortest path are returned; of one that is longer still as many
    of its beginning and of its end.

    Returns:
        (P,) rows, rising, and how many nodes are on any path.
    """
    for source, target in ((this, other), (other, this)):
        down = network.subcomponent(source, mode="out")
        inside = np.zeros(network.vcount(), np.bool_)
        inside[down] = True
        if not inside[target]:
            continue
        up = np.array(network.subcomponent(target, mode="in"), np.int64)
        rows = np.sort(up[inside[up]])
        if len(rows) <= most:
            return rows, len(rows)
        shortest = network.get_shortest_paths(source, to=target, mode="out", output="vpath")[0]
        kept = shortest if len(shortest) <= most else shortest[: most // 2] + shortest[-(most // 2) :]
        return np.sort(np.array(kept, np.int64)), len(rows)
    return np.zeros(0, np.int64), 0
