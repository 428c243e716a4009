"""What each node of a rank waited for last: of its dependencies and of what ran before it in its lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.graph.digraph import order_topologically
from studio.analysis.graph.levels import find_thread_lanes
from studio.analysis.graph.neighbours import Edges, collect_edges
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.trace import NONE, Graph, Int64, NodeType, group_slots, is_flagged

_COMPUTE, _CPU, _MEMORY, _TALK = range(4)


@dataclass(frozen=True, slots=True)
class Order:
    """The dependencies of a graph, and an order of its nodes in which they rise.

    N nodes, E dependencies.

    Attributes:
        edges: The dependencies.
        place: (N,) positions that rise along dependencies; those of the file where there are cycles.
    """

    edges: Edges
    place: Int64


@dataclass(frozen=True, slots=True)
class Gates:
    """What the nodes of a rank waited for.

    N nodes, E pairs of nodes.

    Attributes:
        before, after: (E,) the second waited for the first, by a dependency or in a lane; nodes without times are left out.
        ready_ns: (N,) when the last that a node waited for had ended, its own start at most; -1 where it waited for nothing.
        gate: (N,) what that was; -1 where it waited for nothing.
    """

    before: Int64
    after: Int64
    ready_ns: Int64
    gate: Int64

    __repr__ = format_record


def order_of(graph: Graph) -> Order:
    """Return the dependencies of a graph with an order of its nodes."""
    pairs, count = collect_edges(graph), len(graph)
    place = np.arange(count)
    if not bool((pairs.before <= pairs.after).all()):
        other = pairs.before != pairs.after
        order = order_topologically(count, pairs.before[other], pairs.after[other])
        if len(order) == count:
            place = np.empty(count, np.int64)
            place[order] = np.arange(count)
    return Order(pairs, place)


def find_gates(graph: Graph, order: Order, start_ns: Int64, end_ns: Int64, *, is_recording: bool) -> Gates:
    """Return what the nodes of a rank waited for.

    A dependency on a node that began no earlier is none. One on a node that still ran is met when the other began.

    Args:
        graph: The rank's graph.
        order: Its dependencies.
        start_ns: (N,) when the nodes began, -1 where that is not known.
        end_ns: (N,) when they ended.
        is_recording: Whether lanes are threads and streams, else resources of a simulated rank.
    """
    before, after = [order.edges.before.astype(np.int64)], [order.edges.after.astype(np.int64)]
    lane = find_thread_lanes(graph)[0] if is_recording else _assign_resources(graph, start_ns, end_ns)
    for part, pair in zip((before, after), _find_previous(start_ns, end_ns, lane), strict=True):
        part.append(pair)
    this, other = np.concatenate(before), np.concatenate(after)
    begin, until = start_ns[this], start_ns[other]
    earlier = (begin < until) | ((begin == until) & (order.place[this] < order.place[other]))
    kept = (begin >= 0) & earlier
    this, other = this[kept], other[kept]
    ended = np.minimum(end_ns[this], start_ns[other])
    ready = np.full(len(graph), NONE, np.int64)
    np.maximum.at(ready, other, ended)
    gate = np.full(len(graph), NONE, np.int64)
    last = ended == ready[other]
    gate[other[last]] = this[last]
    return Gates(this, other, ready, gate)


def _assign_resources(graph: Graph, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return (N,) what a simulated node occupies: the NPU, its CPU, its memory, or its network; receives nothing.

    Where communication of a rank was under way at the same time, each comm group has a queue of its own.
    """
    lane = np.full(len(graph), NONE, np.int64)
    lane[graph.type == NodeType.COMP] = _COMPUTE
    lane[(graph.type == NodeType.MEM_LOAD) | (graph.type == NodeType.MEM_STORE)] = _MEMORY
    lane[is_flagged(graph, "is_cpu_op")] = _CPU
    talks = (graph.type == NodeType.COMM_SEND) | (graph.type == NodeType.COMM_COLL)
    rows = np.flatnonzero(talks & (start_ns >= 0))
    rows = rows[np.argsort(start_ns[rows], kind="stable")]
    together = (start_ns[rows[1:]] < np.maximum.accumulate(end_ns[rows])[:-1]).any()
    lane[talks] = _TALK + (1 + group_slots(graph)[talks] if together else 0)
    return lane


def _find_previous(start_ns: Int64, end_ns: Int64, lane: Int64) -> tuple[Int64, Int64]:
    """Return nodes, and for each the last to end before it in its lane, where there is one."""
    rows = np.flatnonzero((lane >= 0) & (start_ns >= 0))
    if not len(rows):
        return rows, rows
    by_end = rows[np.lexsort((end_ns[rows], lane[rows]))]
    by_start = rows[np.lexsort((start_ns[rows], lane[rows]))]
    if len(rows) > 1 and bool(
        (start_ns[by_start[1:]] >= end_ns[by_start[:-1]])[lane[by_start[1:]] == lane[by_start[:-1]]].all()
    ):
        # One at a time: the one before is the one that began before.
        same = lane[by_start[1:]] == lane[by_start[:-1]]
        return by_start[:-1][same], by_start[1:][same]
    bounds = np.searchsorted(lane[by_end], find_distinct(lane[rows]))
    previous = np.full(len(rows), NONE, np.int64)
    for low, high in zip(bounds.tolist(), [*bounds[1:].tolist(), len(rows)], strict=True):
        lane_rows = by_end[low:high]
        ended = np.searchsorted(end_ns[lane_rows], start_ns[by_start[low:high]], side="right") - 1
        previous[low:high] = np.where(ended >= 0, lane_rows[np.maximum(ended, 0)], NONE)
    is_known = (previous != NONE) & (previous != by_start)
    return previous[is_known], by_start[is_known]
