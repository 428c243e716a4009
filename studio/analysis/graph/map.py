"""Draw a whole graph as a small picture: depth from left to right, nodes of equal depth stacked, by type.

The picture is as wide as the longest chain of dependencies and as high as the widest layer, on a logarithmic scale, so
that its outline tells how many nodes could run at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.graph.depth import Depths
from studio.trace import Float64, Int32, UInt8

WIDTH, HEIGHT = 1024, 48
_LOWEST = 0.25
"""Height of a layer of one node."""


@dataclass(frozen=True, slots=True)
class GraphMap:
    """A picture of a graph, with the position of its nodes.

    N nodes.

    Attributes:
        width, height: Pixels.
        layers: How many nodes the longest chain has.
        widest: Nodes of the widest layer.
        kind: (height * width,) for every pixel the type of the node that lies there, row by row.
        shown: (height * width,) 255 where there is a node, 0 elsewhere.
        x, y: (N,) where each node is, as parts of the whole.
    """

    width: int
    height: int
    layers: int
    widest: int
    kind: UInt8
    shown: UInt8
    x: Float64
    y: Float64

    def nearest(self, x: float, y: float) -> int:
        """Return the row of the node nearest to a position, -1 where there are no nodes."""
        if not len(self.x):
            return -1
        # What a person points at is a column first: as far sideways as high counts double.
        away = np.abs(self.x - x) * 2 * self.width / self.height + np.abs(self.y - y)
        return int(away.argmin())


def build_graph_map(depths: Depths, kinds: Int32) -> GraphMap:
    """Return the map of a graph.

    Args:
        depths: How deep its nodes lie.
        kinds: (N,) types of its nodes.
    """
    layer = depths.layer - int(depths.layer.min(initial=0))
    layers = int(layer.max(initial=-1)) + 1
    if not layers:
        nothing = np.zeros(HEIGHT * WIDTH, np.uint8)
        return GraphMap(WIDTH, HEIGHT, 0, 0, nothing, nothing, np.zeros(0), np.zeros(0))
    count = np.bincount(layer, minlength=layers)
    # Where there are fewer layers than pixels a layer takes several.
    columns = min(WIDTH, layers)
    column = layer * columns // layers
    widest = np.zeros(columns, np.int64)
    np.maximum.at(widest, np.arange(layers) * columns // layers, count)
    reach = np.maximum(np.log1p(widest) / np.log1p(int(widest.max())), _LOWEST)
    order = np.lexsort((depths.place, kinds, column))
    size = np.bincount(column, minlength=columns)
    first = np.cumsum(size) - size
    rank = np.empty(len(layer), np.int64)
    rank[order] = np.arange(len(layer)) - first[column[order]]
    y = 1 - (rank + 0.5) / size[column] * reach[column]
    # Every pixel shows the node that lies there when those of a column are piled up to its height.
    share = (HEIGHT - np.arange(HEIGHT)[:, None] - 0.5) / HEIGHT / reach
    filled = share < 1
    places = first + np.minimum((share * size).astype(np.int64), size - 1)
    kind = np.where(filled, kinds[order[places]].clip(0, 255), 0).astype(np.uint8)
    spread = np.arange(WIDTH) * columns // WIDTH
    shown = np.where(filled, 255, 0).astype(np.uint8)
    return GraphMap(
        WIDTH,
        HEIGHT,
        layers,
        int(widest.max()),
        kind[:, spread].ravel(),
        shown[:, spread].ravel(),
        (layer + 0.5) / layers,
        y,
    )
