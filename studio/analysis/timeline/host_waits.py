"""Show a call of the host that waited for the device from when it was made: its wait, then what was left of it.

Such a node begins when the wait is over, since its time is the host's own from then on. What ran before it on its thread tells when
the call was made; in between the host did nothing but wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from studio.analysis.timeline.calls import GraphCalls
from studio.timeline import Timeline, collect_node_times
from studio.trace import Graph, Int64, Trace, are_device_waits, is_flagged


def with_host_waits(
    trace: Trace, timeline: Timeline, calls: Sequence[GraphCalls] = ()
) -> tuple[Timeline, Int64]:
    """Return the timeline with calls that waited for the device drawn from when they were made, and (S,) how long each waited.

    Args:
        trace: The job.
        timeline: When its nodes ran, a span for each.
        calls: Recorded calls of each graph, which ran in pieces.
    """
    marked = [are_device_waits(graph) for graph in trace.graphs]
    waits = np.zeros(len(timeline), np.int64)
    if not any(marks.any() for marks in marked):
        return timeline, waits
    times = collect_node_times(trace, timeline)
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    parents: dict[int, dict[int, Int64]] = {}
    for lane, (low, high) in enumerate(_split_lanes(timeline)):
        at = place[timeline.lanes[lane].rank]
        graph = trace.ranks[at].graph
        if graph not in parents:
            parents[graph] = _find_host_parents(trace.graphs[graph], np.flatnonzero(marked[graph]))
        first = int(times.first[at])
        for span in (low + np.flatnonzero(marked[graph][timeline.row[low:high]])).tolist():
            start = int(timeline.start_ns[span])
            rows = parents[graph][int(timeline.row[span])]
            before = times.end_ns[first + rows]
            if calls:
                before = _find_ends_before(calls[graph], rows, before, start)
            called = int(before.max(initial=-1))
            waits[span] = start - called if 0 <= called < start else 0
    if not waits.any():
        return timeline, waits
    start_ns = timeline.start_ns - waits
    order = np.lexsort((timeline.end_ns, start_ns, timeline.lane))
    moved = replace(
        timeline,
        lane=timeline.lane[order],
        row=timeline.row[order],
        start_ns=start_ns[order],
        end_ns=timeline.end_ns[order],
    )
    return moved, waits[order]


def _find_ends_before(calls: GraphCalls, rows: Int64, end_ns: Int64, time_ns: int) -> Int64:
    """Return when nodes last stopped before a moment: calls at the end of a piece, others at their own."""
    ends = end_ns.copy()
    for place, row in enumerate(rows.tolist()):
        stops = calls.pieces_of(row)[1]
        if len(stops):
            ends[place] = stops[stops <= time_ns].max(initial=-1)
    return ends


def _split_lanes(timeline: Timeline) -> list[tuple[int, int]]:
    """Return where the spans of each lane begin and end."""
    bounds = np.searchsorted(timeline.lane, np.arange(len(timeline.lanes) + 1)).tolist()
    return list(pairwise(bounds))


def _find_host_parents(graph: Graph, rows: Int64) -> dict[int, Int64]:
    """Return the nodes of the host that some nodes wait for."""
    on_host = is_flagged(graph, "is_cpu_op")
    parents = {}
    for row in rows.tolist():
        all_of = np.concatenate([graph.data.of(row), graph.ctrl.of(row)]).astype(np.int64)
        all_of = all_of[all_of >= 0]
        parents[row] = all_of[on_host[all_of]]
    return parents
