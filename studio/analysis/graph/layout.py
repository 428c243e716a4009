"""Lay out a graph: layers from top to bottom, folded into columns that fit a screen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from studio.analysis.graph.digraph import find_feedback_edges, order_topologically
from studio.trace import Int64

Float = NDArray[np.float64]

_SWEEPS = 8
_NARROWEST = 8
_COLUMN_GAP = 0.7
_UNFOLDED = 16
"""Rows that fit on a screen in full size: fewer are never folded."""
_LONG = 6
"""Dependencies over more layers than this do not affect the order within layers."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of nodes, in steps: neighbours in a layer are at least one apart, rows exactly one.

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


def compute_layered_layout(count: int, before: Int64, after: Int64, *, aspect: float = 1.0) -> Layout:
    """Return a layered layout of a graph.

    Nodes stand below everything they wait for, or in a later column. Cycles and loops are drawn too: one
    dependency of each goes upwards.

    Args:
        count: N, how many nodes.
        before: (E,) what is waited for, as numbers below N.
        after: (E,) what waits for it.
        aspect: Steps the drawing should be wide per step it is high.

    Example:
        >>> chain = compute_layered_layout(3, np.array([0, 1]), np.array([1, 2]))
        >>> chain.layer.tolist()
        [0, 1, 2]
    """
    if not count:
        nothing = np.empty(0, np.int64)
        return Layout(nothing.astype(float), nothing.astype(float), nothing, nothing)
    before, after = _drop_cycles(count, np.asarray(before, np.int64), np.asarray(after, np.int64))
    layer = _compute_layers(count, before, after)
    rows = _arrange_rows(layer, _order_layers(count, before, after, layer), aspect)
    drawings = [_place_nodes(rows, bounds, before, after) for bounds in _find_folds(rows, aspect)]
    best = drawings[0]
    for other in drawings[1:]:
        # A fold costs attention: another column has to be worth it.
        if _compute_node_size(other[0], other[1], aspect) > 1.1 * _compute_node_size(
            best[0], best[1], aspect
        ):
            best = other
    x, y, column = best
    return Layout(x, y, layer, column)


def _place_nodes(
    rows: list[Int64], bounds: list[int], before: Int64, after: Int64
) -> tuple[Float, Float, Int64]:
    """Return (N,) x, y and column of every node; columns begin at the rows `bounds`."""
    count = sum(len(row) for row in rows)
    x, y, column = np.zeros(count), np.zeros(count), np.zeros(count, np.int64)
    left = 0.0
    for number, (start, end) in enumerate(pairwise(bounds)):
        part = rows[start:end]
        members = np.concatenate(part)
        column[members] = number
        _straighten(part, before, after, x)
        x[members] += left - x[members].min()
        left = float(x[members].max()) + 1 + _COLUMN_GAP
        for place, row in enumerate(part):
            y[row] = place
    return x, y, column


def _compute_node_size(x: Float, y: Float, aspect: float) -> float:
    """Return the size of nodes when the drawing fills a screen."""
    return min(aspect / (np.ptp(x) + 1), 1 / (np.ptp(y) + 1))


def _drop_cycles(count: int, before: Int64, after: Int64) -> tuple[Int64, Int64]:
    """Return the dependencies without loops and without one of every cycle."""
    other = before != after
    before, after = before[other], after[other]
    if len(order_topologically(count, before, after)) == count:
        return before, after
    keep = np.full(len(before), True)
    keep[find_feedback_edges(count, before, after)] = False
    return before[keep], after[keep]


def _compute_layers(count: int, before: Int64, after: Int64) -> Int64:
    """Return (N,) layers: as high as dependencies allow, and what waits for nothing right above its first user."""
    users: list[list[int]] = [[] for _ in range(count)]
    for row, user in zip(before.tolist(), after.tolist(), strict=True):
        users[row].append(user)
    layer = np.zeros(count, np.int64)
    for row in order_topologically(count, before, after).tolist():
        if users[row]:
            layer[users[row]] = np.maximum(layer[users[row]], layer[row] + 1)
    waits = np.bincount(after, minlength=count)
    for row in np.flatnonzero(waits == 0).tolist():
        if users[row]:
            layer[row] = int(layer[users[row]].min()) - 1
    return layer


def _order_layers(count: int, before: Int64, after: Int64, layer: Int64) -> Float:
    """Return (N,) positions in the layers with few crossings: each near the mean of its neighbours."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    near = layer[after] - layer[before] <= _LONG
    for this, other in zip(before[near].tolist(), after[near].tolist(), strict=True):
        above[other].append(this)
        below[this].append(other)
    order = _compute_first_order(layer, above, below)
    layers: list[list[int]] = [[] for _ in range(int(layer.max()) + 1)]
    for node in sorted(range(count), key=order.__getitem__):
        layers[layer[node]].append(node)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for members in layers if downwards else reversed(layers):
            wish = _compute_means(members, above if downwards else below, order)
            members.sort(key=dict(zip(members, wish, strict=True)).__getitem__)
            middle = (len(members) - 1) / 2
            for place, node in enumerate(members):
                order[node] = place - middle
    return np.array(order)


def _compute_means(
    nodes: list[int], near: list[list[int]], x: list[float], alone: float | None = None
) -> list[float]:
    """Return the mean position of each node's neighbours; a node without any stays, or goes to `alone`."""
    # Lists, not arrays: most nodes have one or two neighbours, and a call of numpy costs more than adding them.
    means = []
    for node in nodes:
        places = [x[neighbour] for neighbour in near[node]]
        still = x[node] if alone is None else alone
        means.append(sum(places) / len(places) if places else still)
    return means


def _compute_first_order(layer: Int64, above: list[list[int]], below: list[list[int]]) -> list[float]:
    """Return initial positions that keep connected nodes together."""
    order = [0.0] * len(layer)
    seen: set[int] = set()
    for root in np.argsort(layer, kind="stable").tolist():
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in seen:
                order[node] = len(seen)
                seen.add(node)
                stack += above[node][::-1] + below[node][::-1]
    return order


def _arrange_rows(layer: Int64, order: Float, aspect: float) -> list[Int64]:
    """Return the nodes row by row from left to right; wide layers take several rows."""
    widest = max(_NARROWEST, int(1.5 * (len(layer) * aspect) ** 0.5))
    rows: list[Int64] = []
    sequence = np.lexsort((order, layer))
    for members in np.split(sequence, np.flatnonzero(np.diff(layer[sequence])) + 1):
        rows += np.array_split(members, -(-len(members) // widest))
    return rows


def _find_folds(rows: list[Int64], aspect: float) -> list[list[int]]:
    """Return the best ways to fold rows into columns, each as the first rows of the columns."""
    if len(rows) <= _UNFOLDED:
        return [[0, len(rows)]]
    folds = []
    for count in range(1, len(rows) // 4 + 1):
        bounds = [round(number * len(rows) / count) for number in range(count + 1)]
        high = max(end - start for start, end in pairwise(bounds))
        wide = sum(max(map(len, rows[start:end])) + _COLUMN_GAP for start, end in pairwise(bounds))
        folds.append((-min(aspect / wide, 1 / high), bounds))
    # Columns get wider than their widest row, so fewer than seem best may be best.
    best = min(range(len(folds)), key=lambda index: folds[index][0])
    return [bounds for _, bounds in folds[max(0, best - 1) : best + 1]]


def _straighten(rows: list[Int64], before: Int64, after: Int64, x: Float) -> None:
    """Shift the nodes of a column sideways, keeping their order, to straighten dependencies."""
    place = {node: number for number, row in enumerate(rows) for node in row.tolist()}
    above: list[list[int]] = [[] for _ in x]
    below: list[list[int]] = [[] for _ in x]
    for this, other in zip(before.tolist(), after.tolist(), strict=True):
        if this in place and other in place and place[other] - place[this] <= _LONG:
            above[other].append(this)
            below[this].append(other)
    places = x.tolist()
    for row in rows:
        for node, place_x in zip(row.tolist(), _spread([0.0] * len(row)), strict=True):
            places[node] = place_x
    for sweep in range(_SWEEPS):
        middle = sum(places[node] for node in place) / len(place)
        for row in rows if sweep % 2 == 0 else reversed(rows):
            nodes = row.tolist()
            wish = _compute_means(nodes, above if sweep % 2 == 0 else below, places, middle)
            for node, place_x in zip(nodes, _spread(wish), strict=True):
                places[node] = place_x
    x[list(place)] = [places[node] for node in place]


def _spread(wish: list[float]) -> list[float]:
    """Return the positions nearest to the wishes, in the same order and at least one apart.

    Example:
        >>> _spread([0.0, 0.0, 9.0])
        [-0.5, 0.5, 9.0]
    """
    blocks: list[tuple[float, int]] = []
    for step, value in enumerate(wish):
        mean, size = value - step, 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean, size = (other * more + mean * size) / (more + size), size + more
        blocks.append((mean, size))
    means = [mean for mean, size in blocks for _ in range(size)]
    return [mean + step for step, mean in enumerate(means)]
