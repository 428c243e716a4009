"""Tell which of several messages alike has lost its other half, by when the halves were recorded.

Messages alike, of equal source, target, tag and size, are paired in their order. So where one of their sends is lost, all later
receives get the send of the one after them, and the last receive is left over. Recorded times tell which one it was: a receive
ends no earlier than its send begins, and neighbours end about as long after their sends.
"""

from __future__ import annotations

import numpy as np

from studio.analysis.collectives.messages import Messages
from studio.distinct import find_distinct
from studio.trace import NONE, Bool, Int64, Trace

_MOST_STEPS = 4_000_000
"""Steps from one possible pair to the next that are compared; of more, those that are left over by their order are taken."""
_COUNTS = 1024.0
"""How much more a change counts than how far apart the first pair is."""


def lone_halves(
    trace: Trace, messages: Messages, left: Int64, ahead: Int64, *, receives: bool
) -> tuple[Int64, Int64]:
    """Return the sends or receives that have no other half: indices (L,) into the trace's ranks, and (L,) rows of their graphs.

    Args:
        trace: The job.
        messages: Its messages.
        left: (L,) the messages that lack a half.
        ahead: (R,) how far the clock of each rank is ahead, in ns.
        receives: Whether they are receives without a send, instead of sends without a receive.
    """
    halves = (messages.receive_rank, messages.receive_row), (messages.send_rank, messages.send_row)
    (own_rank, own_row), (other_rank, other_row) = halves if receives else halves[::-1]
    rank, row = own_rank[left], own_row[left]
    for chosen, place in _alike(messages, left):
        paired = chosen[other_row[chosen] != NONE]
        own = _spans(trace, own_rank[chosen], own_row[chosen], ahead)
        other = _spans(trace, other_rank[paired], other_row[paired], ahead)
        # Halves that belong to another message are among these, but not among those that are left.
        complete = len(chosen) == len(paired) + len(place)
        if complete and own and other and len(paired) * (len(place) + 1) ** 2 <= _MOST_STEPS:
            lone = chosen[_left_over(own, other, receives=receives)]
            rank[place], row[place] = own_rank[lone], own_row[lone]
    return rank, row


def _alike(messages: Messages, left: Int64) -> list[tuple[Int64, Int64]]:
    """Return for each kind of messages those alike, in their order, and which of those that are left are among them."""
    kind = np.column_stack((messages.source, messages.target, messages.tag, messages.bytes))
    # They are in the order of their kinds.
    number = np.cumsum(np.append(False, (kind[1:] != kind[:-1]).any(axis=1)))
    found = []
    for one in find_distinct(number[left]).tolist():
        first, end = np.searchsorted(number, (one, one + 1)).tolist()
        found.append((np.arange(first, end), np.flatnonzero(number[left] == one)))
    return found


def _spans(trace: Trace, ranks: Int64, rows: Int64, ahead: Int64) -> tuple[Int64, Int64] | None:
    """Return when nodes of a rank began and ended; None where there are none, several ranks, or times that were not recorded."""
    places = find_distinct(ranks)
    if len(places) != 1:
        return None
    graph = trace.graph_of(trace.ranks[int(places[0])])
    start, duration = graph.start_ns[rows], graph.duration_ns[rows]
    if (start < 0).any() or (duration < 0).any():
        return None
    begin = start - ahead[places[0]]
    return begin, begin + duration


def _left_over(own: tuple[Int64, Int64], other: tuple[Int64, Int64], *, receives: bool) -> Bool:
    """Return which of some halves (O,) have no other one among fewer (P,), by when they began and ended; both are in order.

    Of all ways to pair them in their order it is the one in which the time from the end of one half to that of the other changes
    least from pair to pair, and in which receives end least before their sends begin; of several the one that leaves the last.
    """
    pairs, surplus = len(other[0]), len(own[0]) - len(other[0])
    alone = np.ones(len(own[0]), np.bool_)
    # By how many of the own ones were left out before a pair: how bad that is, and how far apart its ends are.
    bad, apart = np.zeros(surplus + 1), np.zeros(surplus + 1, np.int64)
    fewer = np.tri(surplus + 1, k=-1, dtype=np.bool_)
    came_from = np.zeros((pairs, surplus + 1), np.int32)
    for place in range(pairs):
        begin, end = (times[place : place + surplus + 1] for times in own)
        early = other[0][place] - end if receives else begin - other[1][place]
        now = end - other[1][place]
        if place:
            # From each number left out before the last pair (rows) to each before this one.
            ways = np.where(fewer, np.inf, bad[:, None] + _COUNTS * np.abs(now - apart[:, None]))
        else:
            # Where nothing else tells, the nearest.
            ways = np.broadcast_to(np.abs(now).astype(np.float64), (surplus + 1, surplus + 1))
        came_from[place] = ways.argmin(axis=0)
        bad, apart = ways.min(axis=0) + _COUNTS * np.maximum(early, 0), now
    out = int(bad.argmin())
    for place in range(pairs - 1, -1, -1):
        alone[place + out] = False
        out = int(came_from[place, out])
    return alone
