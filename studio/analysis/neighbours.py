"""Who waits for whom, in both directions, and what lies near a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from studio.trace import Dependencies, Graph, Int32, Int64

Kind = Literal["data", "ctrl"]
Direction = Literal["up", "down", "both"]


@dataclass(frozen=True, slots=True)
class Edges:
    """Dependencies as pairs.

    E edges.

    Attributes:
        before, after: (E,) rows: `after` waits for `before`.
        is_data: (E,) whether it is a data dependency, else a control dependency.
    """

    before: Int32
    after: Int32
    is_data: np.ndarray


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a graph.

    Attributes:
        rows: Its nodes, rising.
        edges: The dependencies between them.
        left_out: Nodes that belong to it but were too many.
    """

    rows: Int64
    edges: Edges
    left_out: int = 0


def edges(graph: Graph, kinds: tuple[Kind, ...] = ("data", "ctrl")) -> Edges:
    """Return the dependencies of a graph, dangling ones left out."""
    before, after, is_data = [], [], []
    for kind in kinds:
        deps: Dependencies = getattr(graph, kind)
        there = deps.rows >= 0
        before.append(deps.rows[there])
        after.append(np.repeat(np.arange(len(graph), dtype=np.int32), np.diff(deps.offsets))[there])
        is_data.append(np.full(int(there.sum()), kind == "data"))
    if not kinds:
        return Edges(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, bool))
    return Edges(np.concatenate(before), np.concatenate(after), np.concatenate(is_data))


def successors(graph: Graph, row: int) -> list[tuple[int, bool]]:
    """Return the rows that wait for `row`, with whether they wait for data."""
    found = []
    for kind in ("data", "ctrl"):
        deps: Dependencies = getattr(graph, kind)
        at = np.flatnonzero(deps.rows == row)
        rows = np.searchsorted(deps.offsets, at, side="right") - 1
        found += [(int(one), kind == "data") for one in rows]
    return found


def predecessors(graph: Graph, row: int) -> list[tuple[int, bool]]:
    """Return the rows that `row` waits for, with whether it waits for data; dangling ones are negative."""
    return [(int(one), True) for one in graph.data.of(row)] + [(int(one), False) for one in graph.ctrl.of(row)]


def whole(graph: Graph, kinds: tuple[Kind, ...] = ("data", "ctrl")) -> Part:
    """Return the whole graph as a part."""
    return Part(np.arange(len(graph)), edges(graph, kinds))


def neighbourhood(
    graph: Graph,
    row: int,
    depth: int,
    *,
    direction: Direction = "both",
    kinds: tuple[Kind, ...] = ("data", "ctrl"),
    most: int = 1500,
) -> Part:
    """Return the nodes within `depth` dependencies of `row`, nearest first while they and their edges fit.

    Args:
        most: Nodes and edges together that the part may have.
    """
    all_edges = edges(graph, kinds)
    near = np.full(len(graph), False)
    near[row] = True
    frontier = np.array([row], np.int64)
    left_out = 0
    for _ in range(depth):
        steps = []
        if direction != "down":
            steps.append(all_edges.before[np.isin(all_edges.after, frontier)])
        if direction != "up":
            steps.append(all_edges.after[np.isin(all_edges.before, frontier)])
        found = np.unique(np.concatenate(steps)) if steps else np.empty(0, np.int64)
        found = found[~near[found]]
        if not len(found):
            break
        fits = _fitting(all_edges, near, found, most)
        near[found[:fits]] = True
        left_out += len(found) - fits
        if fits < len(found):
            break
        frontier = found
    inside = near[all_edges.before] & near[all_edges.after]
    kept = Edges(all_edges.before[inside], all_edges.after[inside], all_edges.is_data[inside])
    return Part(np.flatnonzero(near), kept, left_out)


def _fitting(all_edges: Edges, near: np.ndarray, found: np.ndarray, most: int) -> int:
    """Return how many of `found` can join `near` before nodes and edges exceed `most`."""
    low, high = 0, len(found)
    while low < high:
        middle = (low + high + 1) // 2
        trial = near.copy()
        trial[found[:middle]] = True
        size = int(trial.sum()) + int((trial[all_edges.before] & trial[all_edges.after]).sum())
        low, high = (middle, high) if size <= most else (low, middle - 1)
    return low
