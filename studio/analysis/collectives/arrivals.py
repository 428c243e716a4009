"""When all that take part in a collective or a message had begun it.

A member of a collective waits until the last member has begun, a receive until its send has. Sends do not wait: they may
be over before anybody receives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.analysis.collectives.clocks import clocks_ahead
from studio.analysis.collectives.matching import GroupMatching, match_by_name, match_messages
from studio.timeline import NodeTimes
from studio.trace import NONE, CommGroup, Int64, NodeType, Trace

_NEVER = np.iinfo(np.int64).max


def arrivals(
    trace: Trace, times: NodeTimes, groups: Sequence[CommGroup] | None = None, *, is_recording: bool = False
) -> Int64:
    """Return (T,) when all participants of a node had begun it, on the clock of its rank; -1 where unknown.

    T times, as in `times`. Members of a collective are matched as `match_by_name` says, else by the order in which they
    begin those of a group; where times are missing, by the order their dependencies give.

    Args:
        trace: The job.
        times: When its nodes ran.
        groups: Comm groups in place of the trace's.
        is_recording: Whether ranks have clocks of their own, which are aligned by the ends of matched collectives.
    """
    matchings = match_by_name(trace, groups)
    ahead = clocks_ahead(trace, matchings) if is_recording else np.zeros(len(trace.ranks), np.int64)
    begun = np.full(len(times.start_ns), NONE, np.int64)
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    for group in matchings:
        _collectives_begun(group, times, place, ahead, begun)
    if any((graph.type == NodeType.COMM_RECV).any() for graph in trace.graphs):
        _receives_begun(trace, times, ahead, begun)
    return begun


def _collectives_begun(
    group: GroupMatching, times: NodeTimes, place: dict[int, int], ahead: Int64, begun: Int64
) -> None:
    indices = np.array([place.get(member, NONE) for member in group.members], np.int64)
    first = np.where(indices == NONE, NONE, times.first[indices])
    there = np.flatnonzero((group.sequence_of != NONE) & (first != NONE))
    if not len(there):
        return
    # Members that share sequence and times are one.
    _, one_each = np.unique(np.stack([first[there], group.sequence_of[there]]), axis=1, return_index=True)
    there = there[one_each]
    rows = group.rows()[there]
    known = rows != NONE
    where = np.where(known, first[there][:, None] + rows, 0)
    start = np.where(known, times.start_ns[where], NONE)
    if not group.by_number:
        missing = (known & (start < 0)).any(axis=1)
        key = np.where(missing[:, None], 0, np.where(known, start, _NEVER))
        order = np.argsort(key, axis=1, kind="stable")
        where, start = np.take_along_axis(where, order, axis=1), np.take_along_axis(start, order, axis=1)
    ran = start >= 0
    clock = ahead[indices[there]][:, None]
    last = np.where(ran, start - clock, -_NEVER).max(axis=0) + clock
    begun[where[ran]] = last[ran]


def _receives_begun(trace: Trace, times: NodeTimes, ahead: Int64, begun: Int64) -> None:
    messages = match_messages(trace)
    both = (messages.send_row != NONE) & (messages.receive_row != NONE)
    source, target = messages.send_rank[both], messages.receive_rank[both]
    send, receive = times.first[source], times.first[target]
    ran = (send != NONE) & (receive != NONE)
    source, target = source[ran], target[ran]
    start = times.start_ns[send[ran] + messages.send_row[both][ran]]
    begun[receive[ran] + messages.receive_row[both][ran]] = np.where(
        start >= 0, start - ahead[source] + ahead[target], NONE
    )
