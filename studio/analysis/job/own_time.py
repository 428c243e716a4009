"""When recorded calls ran themselves: the pieces of their time between the calls that they made.

A recording has when a node began, how long it took itself, and, of a call that called others, how long until it returned. Its own time
lies in pieces: before the first that it called, between these, and behind the last. `Timeline` draws it in one, from the start on;
accounts of time put it where it was. Who waited in between, for a thread or for the device, did so in what is left of the pieces
beyond the own time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.graph import kernel as k
from studio.analysis.graph.compiled import is_faster_compiled, load_kernel
from studio.columns import join_columns
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.timeline import NodeSpans, NodeTimes
from studio.trace import (
    NONE,
    Bool,
    Graph,
    Int32,
    Int64,
    Trace,
    are_device_waits,
    communicates,
    mark_steps,
    read_calls,
    read_dense_column,
    read_int_column,
)

KEPT, COLD = 20_000, 2_000_000
"""From so many nodes of threads on compiled code pays: when it has to be loaded, and when it has to be compiled before."""
_LACKING = 0.01
"""Share of its own time that the pieces of a call may lack: clocks that were corrected round each time by itself."""


@dataclass(frozen=True, slots=True)
class OwnPieces:
    """When calls of a graph ran themselves that did not do so in one piece from their start.

    P pieces, by row, then time.

    Attributes:
        row: (P,) the call.
        start_ns, end_ns: (P,) end exclusive. Those of a call add up to its duration.
    """

    row: Int64
    start_ns: Int64
    end_ns: Int64

    __repr__ = format_record

    def __len__(self) -> int:
        return len(self.row)


NO_PIECES = OwnPieces(*np.zeros((3, 0), np.int64))


def find_own_pieces(graph: Graph) -> OwnPieces:
    """Return when the calls of a recorded graph ran themselves.

    Left out are calls that did so in one piece from their start, and those of whose time the pieces lack some: what is recorded of
    these contradicts itself, and their time is taken to follow their start.
    """
    calls, lasted = read_calls(graph)
    if not len(calls):
        return NO_PIECES
    on_device = np.zeros(len(graph), np.bool_)
    on_device[graph.rows_with("stream")[0]] = True
    kept = ~(on_device | communicates(graph))[calls]
    calls, lasted = calls[kept], lasted[kept]
    if not len(calls):
        return NO_PIECES
    end = graph.start_ns + np.maximum(graph.duration_ns, 0)
    end[calls] = graph.start_ns[calls] + lasted
    row, start, until, waited = _cut_calls(graph, calls, end, on_device)
    # Where the wait stands before what waited, it took the end of the piece; elsewhere nothing tells, and it comes last.
    free = np.zeros(len(graph), np.int64)
    np.add.at(free, row, until - start)
    order = np.lexsort((-start, ~waited, row))
    length = (until - start)[order]
    before = np.cumsum(length) - length
    first = np.flatnonzero(np.append(True, row[order][1:] != row[order][:-1]))[: len(order)]
    before -= np.repeat(before[first], np.diff(np.append(first, len(order))))
    until[order] -= np.clip(free[row[order]] - graph.duration_ns[row[order]] - before, 0, length)
    lacking = graph.duration_ns - free > _LACKING * graph.duration_ns
    kept = (until > start) & ~lacking[row]
    # One piece from the start on is what everybody takes it to be.
    kept &= ~((start == graph.start_ns[row]) & (until - start == graph.duration_ns[row]))
    order = np.lexsort((start[kept], row[kept]))
    return OwnPieces(*(column[kept][order] for column in (row, start, until)))


def _cut_calls(graph: Graph, calls: Int32, end: Int64, on_device: Bool) -> tuple[Int64, Int64, Int64, Bool]:
    """Return the pieces of calls between what they called on their threads: row, start, end, and whether a wait ends there."""
    thread = _number_threads(graph)
    rows = np.flatnonzero((thread != NONE) & (graph.start_ns >= 0) & (end > graph.start_ns) & ~on_device)
    begin = graph.start_ns.copy()
    waits = are_device_waits(graph)
    begin[waits] -= read_dense_column(graph, "wait_ns", 0)[waits]
    rows = rows[np.lexsort((-end[rows], begin[rows], thread[rows]))]
    wanted = np.zeros(len(graph), np.bool_)
    wanted[calls] = True
    follows = np.zeros(len(graph), np.bool_)
    gaps, where = graph.rows_with("gap")
    follows[gaps] = graph.attrs.value[where] == graph.strings.find("thread")
    given = [
        column[rows].astype(np.int64) for column in (begin, end, thread, wanted, communicates(graph), follows)
    ]
    size = len(rows)
    lengths = (size, size, *[2 * size] * 4)
    if is_faster_compiled(size, KEPT, COLD):
        filled = [np.zeros(length, np.int64) for length in lengths]
        count = load_kernel().find_own_pieces(*map(np.ascontiguousarray, given), *filled)
    else:
        lists = [[0] * length for length in lengths]
        count = k.find_own_pieces(*(column.tolist() for column in given), *lists)
        filled = [np.array(values[:count], np.int64) for values in lists]
    of, since, until, waited = (column[:count] for column in filled[2:])
    return rows[of], since, until, waited != 0


def _number_threads(graph: Graph) -> Int64:
    """Return (N,) a number of the thread that each node names, -1 where it names none; annotations of steps are on none."""
    thread = np.full(len(graph), NONE, np.int64)
    rows, where = graph.rows_with("thread")
    thread[rows] = graph.attrs.value[where]
    rows, values = read_int_column(graph, "tid")
    # Profilers name the threads of what they timed; numbers stand behind all texts.
    others = (thread[rows] == NONE) & (graph.start_ns[rows] >= 0)
    rows, values = rows[others], values[others]
    thread[rows] = len(graph.strings) + np.searchsorted(find_distinct(values), values)
    thread[mark_steps(graph)] = NONE
    return thread


def list_busy_spans(trace: Trace, times: NodeTimes, ranks: Int64, pieces: tuple[OwnPieces, ...]) -> NodeSpans:
    """Return when the nodes of the ranks with the given indices were busy, those of which pieces are known in these.

    Args:
        trace: The job.
        times: When its nodes ran.
        ranks: Places in the trace of ranks with times.
        pieces: Of each graph; none where times are not recorded.
    """
    if not any(map(len, pieces)):
        return times.spans(trace, ranks)
    columns: list[list[Int64]] = [[], [], [], []]
    for rank in ranks.tolist():
        graph, first = trace.ranks[rank].graph, int(times.first[rank])
        own = pieces[graph]
        start, end = (
            column[first : first + len(trace.graphs[graph])] for column in (times.start_ns, times.end_ns)
        )
        whole = start >= 0
        whole[own.row] = False
        rows = np.flatnonzero(whole)
        at = np.full(len(rows) + len(own), rank)
        of_rank = (
            at,
            np.append(rows, own.row),
            np.append(start[rows], own.start_ns),
            np.append(end[rows], own.end_ns),
        )
        for column, values in zip(columns, of_rank, strict=True):
            column.append(values)
    return NodeSpans(*map(join_columns, columns))


def find_busy_within(
    trace: Trace, times: NodeTimes, place: int, pieces: tuple[OwnPieces, ...], low_ns: int, high_ns: int
) -> tuple[Int64, Int64, Int64]:
    """Return the nodes of a rank that were busy between two moments, as `list_busy_spans`: rows, starts, ends."""
    graph, first = trace.ranks[place].graph, int(times.first[place])
    start, end = (
        column[first : first + len(trace.graphs[graph])] for column in (times.start_ns, times.end_ns)
    )
    inside = (start >= 0) & (start < high_ns) & (end > low_ns)
    if not pieces:
        rows = np.flatnonzero(inside)
        return rows, start[rows], end[rows]
    own = pieces[graph]
    inside[own.row] = False
    rows = np.flatnonzero(inside)
    some = (own.start_ns < high_ns) & (own.end_ns > low_ns)
    return (
        np.append(rows, own.row[some]),
        np.append(start[rows], own.start_ns[some]),
        np.append(end[rows], own.end_ns[some]),
    )
