"""What a collective was to one of its ranks, or a message to its receiver: how long it waited for the last to come, and how fast it went then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.arrivals import Arrivals
from studio.analysis.collectives.group_sizes import find_group_size, settle_members
from studio.analysis.collectives.groups import find_group_name
from studio.analysis.collectives.nccl_tests import compute_bus_factors, compute_whole_bytes
from studio.timeline import NodeTimes
from studio.trace import NONE, WORLD, Bool, Graph, Int64, NodeType, Rank, Trace, read_int_column

MEETS = (NodeType.COMM_COLL, NodeType.COMM_RECV)
"""Types of nodes in which a rank waits for others."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A collective as one rank ran it, or a message as its receiver did.

    Attributes:
        waited_ns: How long the rank was in it before all had begun.
        last_rank: The rank that began last; the rank itself where that was it.
        last_row: Its node there.
        took_ns: From then to its end on this rank.
        members: Ranks that take part; where `is_open`, those that are known.
        is_open: Whether there may be more of them: what depends on their number is NaN.
        algorithm_bytes_per_ns: Of a collective the size of its array by `took_ns`, as NCCL's tests count it and by the largest
            of its members, of a message its bytes; NaN where it moves nothing or took no time.
        bus_bytes_per_ns: The same, made comparable with the bandwidth of links; NaN for messages too.
    """

    waited_ns: int
    last_rank: int
    last_row: int
    took_ns: int
    members: int
    is_open: bool
    algorithm_bytes_per_ns: float
    bus_bytes_per_ns: float


def find_meeting(trace: Trace, times: NodeTimes, met: Arrivals, rank: Rank, row: int) -> Meeting | None:
    """Return what a collective or a receive was to its rank; None for other nodes, or where nothing tells when all had begun.

    Args:
        trace: The job.
        times: When its nodes ran.
        met: When all had begun them.
        rank: The rank.
        row: Its node.
    """
    place = trace.ranks.index(rank)
    graph = trace.graph_of(rank)
    first = int(times.first[place])
    kind = int(graph.type[row])
    if first == NONE or kind not in MEETS:
        return None
    start, end, begun = (int(column[first + row]) for column in (times.start_ns, times.end_ns, met.begun_ns))
    last, last_row = (int(column[row]) for column in met.partners(place, len(graph)))
    if start == NONE or begun == NONE or last == NONE:
        return None
    took = max(end - max(start, begun), 0)
    collective = _read_attribute(rank, graph, row, "comm_type", NONE)
    count, is_open = np.array([2]), np.array([False])
    if kind == NodeType.COMM_COLL:
        count, is_open = _count_members(trace, place, row, collective)
    # Of members that put in different sizes the largest counts, as in `compute_collective_times`.
    size = np.max([_read_size(trace, *member) for member in met.members(place, row)], axis=0)
    whole = compute_whole_bytes(collective, size, count, is_open) if kind == NodeType.COMM_COLL else size
    rate = float(whole[0]) / took if took and whole[0] > 0 else float("nan")
    factor = float(compute_bus_factors(collective, count, is_open)[0])
    waited = max(begun - start, 0)
    return Meeting(
        waited, trace.ranks[last].number, last_row, took, int(count[0]), bool(is_open[0]), rate, rate * factor
    )


def _count_members(trace: Trace, place: int, row: int, collective: Int64) -> tuple[Int64, Bool]:
    """Return (1,) how many ranks take part, and whether there may be more."""
    name = find_group_name(trace, trace.ranks[place], row) or WORLD
    listed = trace.group(name)
    known = len(listed.ranks) if listed is not None and listed.ranks else len(trace.ranks)
    size = find_group_size(trace, name, known, (place, row))
    sizes = np.array([size.members]), np.array([size.is_open])
    return settle_members(trace, sizes, np.array([place]), np.array([row]), collective)


def _read_size(trace: Trace, place: int, row: int) -> Int64:
    rank = trace.ranks[place]
    return _read_attribute(rank, trace.graph_of(rank), row, "comm_size", 0)


def _read_attribute(rank: Rank, graph: Graph, row: int, key: str, missing: int) -> Int64:
    """Return (1,) what a node's attribute says."""
    values = read_int_column(graph, key, rank.slots, np.array([row]))[1]
    return values[:1] if len(values) else np.array([missing])
