"""The columns of the list of nodes: their names, and the values that no run changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.groups import collect_comm_nodes
from studio.analysis.job.kinds import infer_counted_types, label_counted_type
from studio.analysis.job.names import JobNames
from studio.analysis.job.number_filter import Quantity
from studio.trace import (
    NONE,
    Graph,
    Int32,
    Int64,
    NodeType,
    Trace,
    UInt64,
    compute_recorded_ends,
    label_collective,
    read_dense_column,
)

TEXT_COLUMNS = ("name", "type", "collective", "group")
TIME_COLUMNS = ("start_ns", "end_ns", "duration_ns")
"""Times of what is shown: the recording, or a run."""
RECORDED_COLUMNS = {"recorded_start_ns": "start_ns", "recorded_duration_ns": "duration_ns"}
"""What is recorded, whatever is shown, and what it is called where nothing else is."""
NUMBER_COLUMNS = ("rank", "id", "bytes", "operations", *TIME_COLUMNS, *RECORDED_COLUMNS, "waits_for")
COLUMNS = (*TEXT_COLUMNS, *NUMBER_COLUMNS)
QUANTITIES: dict[str, Quantity] = {
    "bytes": "bytes",
    "operations": "count",
    **dict.fromkeys((*TIME_COLUMNS, *RECORDED_COLUMNS), "time"),
}
"""Number columns whose filters take units."""


@dataclass(frozen=True, slots=True)
class GraphColumns:
    """Columns of the list that are computed from one graph.

    N nodes. Numbers are -1 where a node has none.

    Attributes:
        collective, bytes, operations, start_ns, end_ns, duration_ns, waits_for: (N,) as in `Node`, times recorded.
        type: (N,) as it is shown.
        group_slot: (N,) slot that holds the comm group's name.
        again: (N,) how many nodes before have the same id; None where no id repeats.
    """

    type: Int32
    collective: Int64
    bytes: Int64
    operations: Int64
    start_ns: Int64
    end_ns: Int64
    duration_ns: Int64
    waits_for: Int64
    group_slot: Int64
    again: Int64 | None


class JobColumns:
    """Columns that are the same for all runs, computed when first asked for. Safe to share between threads.

    Attributes:
        names: The nodes' names.
        offsets: (R + 1,) where the nodes of each rank begin in the list of all nodes, and the end.
        origin_ns: First recorded start of all ranks, 0 where there is none.
        end_ns: Last recorded end, counted from it.
        holds_own_times: Whether recorded durations of nodes that called others are without these, as linking writes them.
    """

    def __init__(self, trace: Trace) -> None:
        self._graphs = trace.graphs
        self._lock = threading.Lock()
        self._columns: dict[int, GraphColumns] = {}
        self.names = JobNames(trace.graphs)
        sizes = np.array([len(trace.graphs[rank.graph]) for rank in trace.ranks], np.int64)
        self.offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        started = [graph.start_ns >= 0 for graph in trace.graphs]
        pairs = list(zip(trace.graphs, started, strict=True))
        starts = [int(graph.start_ns[some].min()) for graph, some in pairs if some.any()]
        ends = [int(compute_recorded_ends(graph)[some].max()) for graph, some in pairs if some.any()]
        self.origin_ns = min(starts, default=0)
        self.end_ns = max(ends, default=0) - self.origin_ns
        # The texts of a graph are those that it uses: whether one is there takes no look at the attributes.
        self.holds_own_times = any(graph.strings.find("inclusive_ns") != NONE for graph in trace.graphs)

    def columns_of(self, index: int) -> GraphColumns:
        """Return the computed columns of a graph."""
        columns = self._columns.get(index)
        if columns is None:
            with self._lock:
                columns = self._columns.setdefault(index, _build_columns(self._graphs[index], self.origin_ns))
        return columns


def _build_columns(graph: Graph, origin_ns: int) -> GraphColumns:
    nodes = collect_comm_nodes(graph)
    group_slot = np.full(len(graph), NONE, np.int64)
    group_slot[nodes.rows] = nodes.group_slot
    start_ns = np.where(graph.start_ns >= 0, graph.start_ns - origin_ns, NONE)
    return GraphColumns(
        type=infer_counted_types(graph),
        collective=np.where(
            graph.type == NodeType.COMM_COLL, read_dense_column(graph, "comm_type", NONE), NONE
        ),
        bytes=read_dense_column(graph, "comm_size", NONE),
        operations=read_dense_column(graph, "num_ops", NONE),
        start_ns=start_ns,
        end_ns=np.where(
            (start_ns >= 0) & (graph.duration_ns != 0), compute_recorded_ends(graph) - origin_ns, NONE
        ),
        duration_ns=np.where(graph.duration_ns == 0, NONE, graph.duration_ns),
        waits_for=np.diff(graph.ctrl.offsets) + np.diff(graph.data.offsets),
        group_slot=group_slot,
        again=_count_earlier(graph.id),
    )


def _count_earlier(ids: UInt64) -> Int64 | None:
    """Return how many earlier nodes have the same id, None where all ids differ."""
    if bool((ids[1:] > ids[:-1]).all()):
        return None
    order = np.argsort(ids, kind="stable")
    first = np.append(True, ids[order][1:] != ids[order][:-1])
    if first.all():
        return None
    places = np.arange(len(ids))
    again = np.empty(len(ids), np.int64)
    again[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return again


def label_named_collective(number: int) -> str:
    """Return the name of a collective, nothing for -1."""
    return "" if number == NONE else label_collective(number)


LABELS: dict[str, Callable[[int], str]] = {"type": label_counted_type, "collective": label_named_collective}
