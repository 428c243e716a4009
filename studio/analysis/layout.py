"""Places of nodes in a drawing: layers from top to bottom, folded into columns that fit a screen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from studio.trace import Int64

Float = NDArray[np.float64]

_SWEEPS = 6
_NARROWEST = 8
_COLUMN_GAP = 0.7
_LONG = 6
"""Dependencies over more layers than this do not decide who stands beside whom."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where nodes stand, in steps: neighbours in a layer are at least one apart, rows exactly one.

    N nodes.

    Attributes:
        x, y: (N,) middle of each node, y growing downwards.
        layer: (N,) every dependency that closes no cycle goes to a larger one.
        column: (N,) the column a node stands in; layers go on at the top of the next column.
    """

    x: Float
    y: Float
    layer: Int64
    column: Int64


def layered(count: int, before: Int64, after: Int64, *, aspect: float = 1.0) -> Layout:
    """Return a layered drawing of a graph.

    Nodes stand below everything they wait for, or in a later column. Cycles and loops are drawn too: one
    dependency of each goes upwards.

    Args:
        count: N, how many nodes.
        before: (E,) what is waited for, as numbers below N.
        after: (E,) what waits for it.
        aspect: Steps the drawing should be wide per step it is high.

    Example:
        >>> chain = layered(3, np.array([0, 1]), np.array([1, 2]))
        >>> chain.layer.tolist()
        [0, 1, 2]
    """
    if not count:
        nothing = np.empty(0, np.int64)
        return Layout(nothing.astype(float), nothing.astype(float), nothing, nothing)
    before, after = _acyclic(count, np.asarray(before, np.int64), np.asarray(after, np.int64))
    layer = _layers(count, before, after)
    rows = _rows(layer, _order(count, before, after, layer), aspect)
    columns = _columns([len(row) for row in rows], aspect)
    column, x, y = np.zeros(count, np.int64), np.zeros(count), np.zeros(count)
    left = 0.0
    for number, (start, end) in enumerate(pairwise(columns)):
        part = rows[start:end]
        members = np.concatenate(part)
        column[members] = number
        _straighten(part, before, after, x)
        x[members] += left - x[members].min()
        left = float(x[members].max()) + 1 + _COLUMN_GAP
        for place, row in enumerate(part):
            y[row] = place
    return Layout(x, y, layer, column)


def _acyclic(count: int, before: Int64, after: Int64) -> tuple[Int64, Int64]:
    """Return the dependencies without loops and without one of every cycle."""
    import igraph

    other = before != after
    before, after = before[other], after[other]
    graph = igraph.Graph(n=count, edges=np.column_stack((before, after)), directed=True)
    if graph.is_dag():
        return before, after
    keep = np.full(len(before), True)
    keep[graph.feedback_arc_set(method="eades")] = False
    return before[keep], after[keep]


def _layers(count: int, before: Int64, after: Int64) -> Int64:
    """Return (N,) layers: as high as dependencies allow, and what waits for nothing right above its first user."""
    import igraph

    graph = igraph.Graph(n=count, edges=np.column_stack((before, after)), directed=True)
    layer = np.zeros(count, np.int64)
    users = graph.get_adjlist("out")
    for row in graph.topological_sorting():
        if users[row]:
            layer[users[row]] = np.maximum(layer[users[row]], layer[row] + 1)
    waits = np.bincount(after, minlength=count)
    for row in np.flatnonzero(waits == 0).tolist():
        if users[row]:
            layer[row] = int(layer[users[row]].min()) - 1
    return layer


def _order(count: int, before: Int64, after: Int64, layer: Int64) -> Float:
    """Return (N,) places in the layers at which few dependencies cross."""
    import igraph

    near = layer[after] - layer[before] <= _LONG
    pairs = np.column_stack((before[near], after[near]))
    graph = igraph.Graph(n=count, edges=pairs, directed=True)
    placed = graph.layout_sugiyama(layers=layer.tolist(), maxiter=40)
    layout = placed[0] if isinstance(placed, tuple) else placed
    return np.array([point[0] for point in layout.coords[:count]])


def _rows(layer: Int64, order: Float, aspect: float) -> list[Int64]:
    """Return the nodes row by row, from left to right; a layer too wide for the drawing takes several rows."""
    widest = max(_NARROWEST, int(1.5 * (len(layer) * aspect) ** 0.5))
    rows: list[Int64] = []
    sequence = np.lexsort((order, layer))
    for members in np.split(sequence, np.flatnonzero(np.diff(layer[sequence])) + 1):
        rows += np.array_split(members, -(-len(members) // widest))
    return rows


def _columns(widths: list[int], aspect: float) -> list[int]:
    """Return the rows at which columns begin, and the number of rows: the fold that leaves nodes largest."""
    best, chosen = 0.0, [0, len(widths)]
    for count in range(1, len(widths) + 1):
        bounds = [round(at * len(widths) / count) for at in range(count + 1)]
        high = max(end - start for start, end in pairwise(bounds))
        wide = sum(max(widths[start:end]) + _COLUMN_GAP for start, end in pairwise(bounds))
        scale = min(aspect / wide, 1 / high)
        # A fold costs attention: another column has to be worth it.
        if scale > best * 1.08:
            best, chosen = scale, bounds
        if high < 4:
            break
    return chosen


def _straighten(rows: list[Int64], before: Int64, after: Int64, x: Float) -> None:
    """Move the nodes of a column sideways, order kept, so that dependencies run as straight down as they can."""
    place = {int(node): number for number, row in enumerate(rows) for node in row}
    above: dict[int, list[int]] = {node: [] for node in place}
    below: dict[int, list[int]] = {node: [] for node in place}
    for one, other in zip(before.tolist(), after.tolist(), strict=True):
        if one in place and other in place and place[other] - place[one] <= _LONG:
            above[other].append(one)
            below[one].append(other)
    for row in rows:
        x[row] = np.arange(len(row)) - (len(row) - 1) / 2
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        middle = float(np.mean(x[list(place)]))
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wish = np.array([np.mean(x[near[node]]) if near[node] else middle for node in row.tolist()])
            x[row] = _spread(wish)


def _spread(wish: Float) -> Float:
    """Return the places nearest to those wished for, in the same order and at least one apart.

    Example:
        >>> _spread(np.array([0.0, 0.0, 9.0])).tolist()
        [-0.5, 0.5, 9.0]
    """
    steps = np.arange(len(wish))
    blocks: list[tuple[float, int]] = []
    for value in (wish - steps).tolist():
        mean, size = value, 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean, size = (other * more + mean * size) / (more + size), size + more
        blocks.append((mean, size))
    return np.repeat([mean for mean, _ in blocks], [size for _, size in blocks]) + steps
