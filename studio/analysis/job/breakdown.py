"""Where the time of each rank goes, by kind of work; nothing is counted twice, gaps are idle time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from studio.notebook import one_line, table
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, Graph, Int64, NodeType, Trace, copies, idles, int_column
from studio.units import format_ns

COMPUTE, COMMUNICATION, MEMORY, CPU, NOTHING, COPY = range(6)
"""What a node occupies: the accelerator, the network, remote memory, the host, nothing, or a device's memory."""
_MOST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Spans:
    """When nodes were busy.

    S spans.

    Attributes:
        start_ns, end_ns: (S,) end exclusive.
        rank: (S,) index of the rank.
        kind: (S,) COMPUTE, COMMUNICATION, MEMORY, CPU, NOTHING or COPY.
    """

    start_ns: Int64
    end_ns: Int64
    rank: Int64
    kind: Int64

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Time per rank in ns; each figure is the length of a union of intervals.

    R ranks.

    Attributes:
        compute_ns: (R,) some compute node was under way beside the CPU, copies left out.
        communication_ns: (R,) some collective, send or receive was, waiting for the other side included.
        exposed_communication_ns: (R,) communication was under way and no compute was.
        copy_ns: (R,) some copy was: memcpy or memset.
        exposed_copy_ns: (R,) a copy was under way, and neither compute nor communication was.
        memory_ns: (R,) some load or store was.
        cpu_ns: (R,) some node of the CPU was.
        idle_ns: (R,) nothing was, before the rank finished.
    """

    compute_ns: Int64
    communication_ns: Int64
    exposed_communication_ns: Int64
    copy_ns: Int64
    exposed_copy_ns: Int64
    memory_ns: Int64
    cpu_ns: Int64
    idle_ns: Int64

    __repr__ = one_line


def node_kinds(graph: Graph) -> Int64:
    """Return (N,) the kind of work of each node of a graph."""
    kinds = np.full(len(graph), NOTHING, np.int64)
    kinds[graph.type == NodeType.COMP] = COMPUTE
    kinds[copies(graph)] = COPY
    kinds[idles(graph)] = NOTHING
    kinds[(graph.type >= NodeType.COMM_SEND) & (graph.type <= NodeType.COMM_COLL)] = COMMUNICATION
    kinds[(graph.type == NodeType.MEM_LOAD) | (graph.type == NodeType.MEM_STORE)] = MEMORY
    rows, values = int_column(graph, "is_cpu_op")
    kinds[rows[values != 0]] = CPU
    return kinds


def breakdown(spans: Spans, finish_ns: Int64) -> Breakdown:
    """Return where the time of each rank goes.

    Args:
        spans: What ran when.
        finish_ns: (R,) when each rank finished; nothing ends later.
    """
    spans = _sort_spans(spans)

    def covered(*kinds: int) -> Int64:
        return _covered_sorted(spans, np.isin(spans.kind, kinds), len(finish_ns))

    compute = covered(COMPUTE)
    both = covered(COMPUTE, COMMUNICATION)
    return Breakdown(
        compute_ns=compute,
        communication_ns=covered(COMMUNICATION),
        exposed_communication_ns=both - compute,
        copy_ns=covered(COPY),
        exposed_copy_ns=covered(COMPUTE, COMMUNICATION, COPY) - both,
        memory_ns=covered(MEMORY),
        cpu_ns=covered(CPU),
        idle_ns=finish_ns - covered(COMPUTE, COMMUNICATION, COPY, MEMORY, CPU),
    )


@dataclass(frozen=True, slots=True)
class RankUse:
    """Where the time of ranks goes, for ranks that have times.

    K ranks.

    Attributes:
        numbers: (K,) their numbers.
        finish_ns: (K,) how long each took from the beginning of the run.
        times: Where it goes.
    """

    numbers: list[int]
    finish_ns: Int64
    times: Breakdown

    __repr__ = one_line

    def _repr_html_(self) -> str:
        """Return a row for each rank."""
        columns = [getattr(self.times, spec.name) for spec in fields(self.times)]
        head = [
            "rank",
            "finish",
            *(spec.name.removesuffix("_ns").replace("_", " ") for spec in fields(self.times)),
        ]
        rows = zip(
            self.numbers,
            *(map(format_ns, column.tolist()) for column in (self.finish_ns, *columns)),
            strict=True,
        )
        return table("Where the time of each rank goes", head, rows)


def rank_use(trace: Trace, times: NodeTimes, finish_ns: Int64, origin_ns: int) -> RankUse:
    """Return where the time of each rank with times goes.

    Args:
        trace: The job.
        times: When its nodes ran.
        finish_ns: (R,) how long each rank took from the beginning of the run.
        origin_ns: When the run began.
    """
    known = np.flatnonzero(times.first != NONE)
    spans = times.spans(trace, known)
    graph_of = np.array([rank.graph for rank in trace.ranks], np.int64)[spans.rank]
    kind = np.zeros(len(spans.row), np.int64)
    for index in np.unique(graph_of).tolist():
        mine = graph_of == index
        kind[mine] = node_kinds(trace.graphs[index])[spans.row[mine]]
    place = np.searchsorted(known, spans.rank)
    begin, end, finish = spans.start_ns - origin_ns, spans.end_ns - origin_ns, finish_ns[known]
    numbers = [trace.ranks[index].number for index in known.tolist()]
    return RankUse(numbers, finish, breakdown(Spans(begin, end, place, kind), finish))


def covered_ns(spans: Spans, chosen: Bool, ranks: int) -> Int64:
    """Return (R,) the length of the union of the chosen spans of each rank.

    Example:
        >>> times = np.array([0, 5, 20]), np.array([10, 12, 21]), np.array([0, 0, 0]), np.zeros(3, np.int64)
        >>> covered_ns(Spans(*times), np.ones(3, bool), 2).tolist()
        [13, 0]
    """
    return _covered_sorted(_sort_spans(spans), chosen[_order(spans)], ranks)


def layered_ns(spans: Spans, layer: Int64, ranks: int, layers: int) -> Int64:
    """Return (ranks, layers) the time that each layer of spans adds to the union of those before it.

    Args:
        spans: What ran when; kinds do not count.
        layer: (S,) the layer of each span; those from `layers` on are left out.
        ranks: How many there are.
        layers: Likewise.

    Example:
        >>> times = np.array([0, 5]), np.array([10, 12]), np.array([0, 0]), np.zeros(2, np.int64)
        >>> layered_ns(Spans(*times), np.array([0, 1]), 1, 2).tolist()
        [[10, 2]]
    """
    order = _order(spans)
    layer, spans = layer[order], _sort_spans(spans)
    until = [_covered_sorted(spans, layer <= level, ranks) for level in range(layers)]
    return np.diff(np.stack([np.zeros(ranks, np.int64), *until], axis=1), axis=1)


def _order(spans: Spans) -> Int64:
    return np.lexsort((spans.start_ns, spans.rank))


def _sort_spans(spans: Spans) -> Spans:
    """Sort spans by rank and start."""
    order = _order(spans)
    return Spans(spans.start_ns[order], spans.end_ns[order], spans.rank[order], spans.kind[order])


def _covered_sorted(spans: Spans, chosen: Bool, ranks: int) -> Int64:
    """Return `covered_ns` of sorted spans."""
    rank, start, end = spans.rank[chosen], spans.start_ns[chosen], spans.end_ns[chosen]
    if not len(rank):
        return np.zeros(ranks, np.int64)
    bounds = np.searchsorted(rank, np.arange(ranks + 1))
    origin, apart = int(start.min()), int(end.max()) - int(start.min()) + 1
    if apart * ranks > _MOST_NS:
        one_by_one = (
            _added_to_union(start[low:high], end[low:high]).sum() for low, high in pairwise(bounds.tolist())
        )
        return np.fromiter(one_by_one, np.int64, ranks)
    # Each rank's times are moved beyond those of the rank before, so that one running maximum serves all.
    moved = rank * apart - origin
    total = np.concatenate([[0], np.cumsum(_added_to_union(start + moved, end + moved))])
    covered: Int64 = np.diff(total[bounds])
    return covered


def _added_to_union(start: Int64, end: Int64) -> Int64:
    """Return what each span, sorted by start, adds to the union of those before it."""
    end = np.maximum.accumulate(end)
    added: Int64 = np.maximum(end - np.maximum(start, np.concatenate([start[:1], end[:-1]])), 0)
    return added
