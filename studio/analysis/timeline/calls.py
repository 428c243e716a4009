"""Draw recorded calls where they ran themselves: a span for each piece of their own time, of one node all the same.

A `Timeline` has one span per node, from its start on for its own time. Only calls that called others have several pieces, so what else
there is of a node is kept for these alone: when it began, when it was over, and its own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.job.own_time import OwnPieces, find_own_pieces
from studio.columns import join_columns, join_ranges
from studio.timeline import Timeline
from studio.trace import Bool, Graph, Int64, Trace, compute_recorded_ends


@dataclass(frozen=True, slots=True)
class GraphCalls:
    """The recorded calls of a graph.

    K calls by row; P pieces by row, then time.

    Attributes:
        row: (K,) nodes that were not over after their own time, or ran in pieces.
        start_ns, over_ns, own_ns: (K,) when each began and was over, and what of that was its own.
        pieces: When those ran that did not do so in one piece from their start.
    """

    row: Int64
    start_ns: Int64
    over_ns: Int64
    own_ns: Int64
    pieces: OwnPieces

    def __len__(self) -> int:
        return len(self.row)

    def places(self, rows: Int64) -> tuple[Int64, Bool]:
        """Return (R,) where nodes stand among the calls, and which of them are calls."""
        place = np.minimum(np.searchsorted(self.row, rows), len(self.row) - 1)
        return place, self.row[place] == rows if len(self.row) else np.zeros(len(rows), np.bool_)

    def bounds(self, rows: Int64) -> tuple[Int64, Int64]:
        """Return where the pieces of nodes begin, and where they end: (R,) each, the same where a node ran in one from its start on."""
        low: Int64 = np.searchsorted(self.pieces.row, rows)
        high: Int64 = np.searchsorted(self.pieces.row, rows, side="right")
        return low, high

    def counts(self, rows: Int64) -> Int64:
        """Return (R,) in how many pieces nodes ran, at least 1."""
        low, high = self.bounds(rows)
        counts: Int64 = np.maximum(high - low, 1)
        return counts

    def pieces_of(self, row: int) -> tuple[Int64, Int64]:
        """Return when a node ran itself: (P,) start and end of each piece; none where it did so in one from its start on."""
        low, high = np.searchsorted(self.pieces.row, (row, row + 1)).tolist()
        return self.pieces.start_ns[low:high], self.pieces.end_ns[low:high]


def find_calls(trace: Trace) -> tuple[GraphCalls, ...]:
    """Return the calls of each graph of a recording; () where there are none."""
    calls = tuple(_find_graph_calls(graph) for graph in trace.graphs)
    return calls if any(map(len, calls)) else ()


def _find_graph_calls(graph: Graph) -> GraphCalls:
    pieces, over = find_own_pieces(graph), compute_recorded_ends(graph)
    own = np.maximum(graph.duration_ns, 0)
    is_call = (graph.start_ns >= 0) & (over > graph.start_ns + own)
    is_call[pieces.row] = True
    row = np.flatnonzero(is_call)
    return GraphCalls(row, graph.start_ns[row], over[row], own[row], pieces)


def cut_calls(
    trace: Trace, timeline: Timeline, waits: Int64, calls: Sequence[GraphCalls]
) -> tuple[Timeline, Int64, Bool | None]:
    """Return a timeline with a span for each piece of a call.

    Args:
        trace: The job.
        timeline: Its recorded times, a span for each node.
        waits: (S,) how long each of them waited from its start.
        calls: Those of each graph.

    Returns:
        The timeline, what its spans waited, and which of them go on with a node that an earlier one began; None where none does.
    """
    if not any(len(of_graph.pieces) for of_graph in calls):
        return timeline, waits, None
    sizes = np.array([len(graph) for graph in trace.graphs], np.int64)
    base = np.cumsum(sizes) - sizes
    row = join_columns([of.pieces.row + first for of, first in zip(calls, base.tolist(), strict=True)])
    start, end = (join_columns([getattr(of.pieces, name) for of in calls]) for name in ("start_ns", "end_ns"))
    count = np.bincount(row, minlength=int(sizes.sum()))
    first = np.cumsum(count) - count
    graph_of = {rank.number: rank.graph for rank in trace.ranks}
    of_lane = base[np.array([graph_of[lane.rank] for lane in timeline.lanes], np.int64)]
    node = of_lane[timeline.lane] + timeline.row
    span, nth, is_cut, piece = spread_pieces(first[node], count[node])
    start_ns, end_ns, waited = timeline.start_ns[span], timeline.end_ns[span], waits[span]
    start_ns[is_cut], end_ns[is_cut], waited[is_cut] = start[piece], end[piece], 0
    lane = timeline.lane[span]
    order = np.lexsort((end_ns, start_ns, lane))
    cut = replace(
        timeline,
        lane=lane[order],
        row=timeline.row[span][order],
        start_ns=start_ns[order],
        end_ns=end_ns[order],
    )
    return cut, waited[order], nth[order] > 0


def spread_pieces(first: Int64, count: Int64) -> tuple[Int64, Int64, Bool, Int64]:
    """Return which piece of which span each part is of spans that are cut.

    P parts, by span, then time; C of them are pieces.

    Args:
        first: (S,) where the pieces of each span's node begin.
        count: (S,) how many there are, 0 where the node ran in one from its start on.

    Returns:
        (P,) the span; (P,) which of its parts this is, from 0 on; (P,) whether it is a piece; and (C,) the place of each piece.
    """
    parts = np.maximum(count, 1)
    span = np.repeat(np.arange(len(parts)), parts)
    is_cut = count[span] > 0
    return span, join_ranges(0, parts), is_cut, join_ranges(first[count > 0], count[count > 0])
