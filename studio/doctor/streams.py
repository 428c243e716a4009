"""Find kernels of one device stream that no dependency keeps in recorded order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.matching import compute_issue_order
from studio.analysis.graph.issuing import find_last_before, is_worth_compiling
from studio.trace import NONE, Bool, Graph, Int64, read_dense_column, read_int_column

_EXACT_NODES = 300_000
"""Graphs up to this size are searched for indirect order."""


@dataclass(frozen=True, slots=True)
class StreamOrder:
    """Consecutive kernels on the streams of a graph.

    P pairs of operations that ran one after another on a stream.

    Attributes:
        before, after: (P,) rows.
        ordered: (P,) whether `after` waits for `before`, directly or through others.
        streams: How many streams there are.
        recorded: Whether start times tell the order; else it is that of issue, if nodes took no time.
        direct_only: Whether only direct dependencies were looked at, the graph being large.
    """

    before: Int64
    after: Int64
    ordered: Bool
    streams: int
    recorded: bool = True
    direct_only: bool = False


def find_stream_order(
    graph: Graph, pairs: tuple[Int64, Int64], *, on_cpu: Bool, communicates: Bool
) -> StreamOrder:
    """Return consecutive kernels and whether they are kept in order; untimed ones are left out if some have times.

    Args:
        graph: The graph.
        pairs: (D,) rows that wait, and (D,) rows that they wait for.
        on_cpu: (N,) which nodes are operations of the processor.
        communicates: (N,) which nodes communicate.
    """
    every, stream = read_int_column(graph, "stream")
    recorded = bool((~on_cpu[every] & (graph.start_ns[every] >= 0)).any())
    keep = ~on_cpu[every] & ((graph.start_ns[every] >= 0) | (not recorded))
    rows, stream = every[keep].astype(np.int64), stream[keep]
    device = read_dense_column(graph, "device", 0)[rows]
    when = graph.start_ns if recorded or not len(rows) else compute_issue_order(graph)
    order = np.lexsort((rows, when[rows], stream, device))
    rows, stream, device = rows[order], stream[order], device[order]
    same = (stream[1:] == stream[:-1]) & (device[1:] == device[:-1])
    # One kernel that carries several messages stands as several nodes of the same time, which wait for nothing of each other.
    together = same & recorded & communicates[rows[1:]] & communicates[rows[:-1]]
    for times in (graph.start_ns[rows], graph.duration_ns[rows]):
        together &= times[1:] == times[:-1]
    before, after = rows[:-1][same & ~together], rows[1:][same & ~together]
    if not len(after):
        return StreamOrder(before, after, np.zeros(0, np.bool_), 0, recorded)
    size = len(graph)
    direct = np.sort(pairs[0] * size + pairs[1])
    wanted = after * size + before
    ordered = np.searchsorted(direct, wanted, side="left") < np.searchsorted(direct, wanted, side="right")
    streams = 1 + int((~same).sum())
    if ordered.all() or len(graph) > _EXACT_NODES:
        return StreamOrder(before, after, ordered, streams, recorded, not ordered.all())
    lane = np.cumsum(np.append(True, ~same)).astype(np.int64) - 1
    place = np.full(len(graph), NONE, np.int64)
    place[rows] = np.arange(len(rows))
    last = find_last_on_stream(graph, pairs, rows, lane)
    reached = last[place[after]] >= place[before]
    return StreamOrder(before, after, ordered | reached, streams, recorded)


def find_last_on_stream(graph: Graph, pairs: tuple[Int64, Int64], rows: Int64, lane: Int64) -> Int64:
    """Return (K,) the last predecessor of each operation on its own stream, -1 where there is none.

    Args:
        graph: The graph.
        pairs: (D,) rows that wait, and (D,) rows that they wait for.
        rows: (K,) operations, stream after stream, in the order they ran.
        lane: (K,) number of the stream.
    """
    # What lies on a circle, or behind one, comes last and sees what is known by then.
    order = np.argsort(compute_issue_order(graph), kind="stable")
    find = find_last_before if is_worth_compiling(len(graph)) else _find_last_before
    return find(pairs, order, rows, lane)


def _find_last_before(pairs: tuple[Int64, Int64], order: Int64, rows: Int64, lane: Int64) -> Int64:
    """Do what `find_last_before` does, not compiled: with lists of Python, which nodes share."""
    of, waited = pairs
    sorting = np.argsort(of, kind="stable")
    bounds = np.searchsorted(of[sorting], np.arange(len(order) + 1)).tolist()
    parents = waited[sorting].tolist()
    own = dict(zip(rows.tolist(), zip(lane.tolist(), range(len(rows)), strict=True), strict=True))
    nothing = [NONE] * (int(lane.max(initial=-1)) + 1)
    # For every node and stream, the last place on it that is the node or comes before it.
    seen = [nothing] * len(order)
    previous = np.full(len(rows), NONE, np.int64)
    for row in order.tolist():
        known = [seen[parent] for parent in parents[bounds[row] : bounds[row + 1]]]
        latest = nothing if not known else known[0] if len(known) == 1 else list(map(max, *known))
        if row in own:
            own_place, position = own[row]
            previous[position] = latest[own_place]
            latest = latest.copy()
            latest[own_place] = max(latest[own_place], position)
        seen[row] = latest
    return previous
