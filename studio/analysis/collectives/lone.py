"""Tell which of several messages alike has lost its other half, by when the halves were recorded.

Messages alike, of equal source, target, tag and size, are paired in their order. So where one of their sends is lost, all later
receives get the send of the one after them, and the last receive is left over. Recorded times tell which one it was: a receive
ends no earlier than its send begins, and neighbours end about as long after their sends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.messages import Messages
from studio.distinct import find_distinct
from studio.trace import NONE, Bool, Int64, Trace

_MOST_STEPS = 4_000_000
"""Steps from one possible pair to the next that are compared; of more, those that are left over by their order are taken."""
_KIND_STEPS = 4_000
"""As many steps take as long as what is done once for each kind of messages."""
_COUNTS = 1024.0
"""How much more a change counts than how far apart the first pair is."""


@dataclass(slots=True)
class Recorded:
    """When halves of messages began and ended.

    Attributes:
        trace: The job.
        messages: Its messages.
        ahead: (R,) how far the clock of each rank is ahead, in ns.
        steps: How many steps may still be compared.
    """

    trace: Trace
    messages: Messages
    ahead: Int64
    steps: int = _MOST_STEPS

    def spans(self, halves: Int64, *, receives: bool) -> tuple[Int64, Int64] | None:
        """Return when the sends or receives of messages (H,) began and ended.

        None where there are none, where several ranks have them, or where times were not recorded.
        """
        ranks, rows = self.sides(receives=receives)
        places = find_distinct(ranks[halves])
        if len(places) != 1:
            return None
        graph = self.trace.graph_of(self.trace.ranks[int(places[0])])
        start, duration = graph.start_ns[rows[halves]], graph.duration_ns[rows[halves]]
        if (start < 0).any() or (duration < 0).any():
            return None
        begin = start - self.ahead[places[0]]
        return begin, begin + duration

    def sides(self, *, receives: bool) -> tuple[Int64, Int64]:
        """Return (M,) ranks and rows of the receives or sends of all messages."""
        messages = self.messages
        if receives:
            return messages.receive_rank, messages.receive_row
        return messages.send_rank, messages.send_row

    def left_over(self, own: Int64, other: Int64, *, receives: bool) -> Bool | None:
        """Return which receives or sends (O,) have no other half among fewer (P,) of the other side, in their order.

        None where times do not tell, or too many would have to be compared.
        """
        surplus = len(own) - len(other)
        steps = _KIND_STEPS + len(other) * (surplus + 1) ** 2
        if steps > self.steps:
            return None
        more, fewer = self.spans(own, receives=receives), self.spans(other, receives=not receives)
        if more is None or fewer is None:
            return None
        self.steps -= steps
        return _find_left_over(more, fewer, receives=receives)


def find_lone_halves(recorded: Recorded, left: Int64, *, receives: bool) -> Int64:
    """Return the messages (L,), rising, of which the send or receive has no other half.

    Args:
        recorded: The messages and their times.
        left: (L,) the messages that lack a half, rising: of all that are alike those that are left over by their order.
        receives: Whether they are receives without a send, instead of sends without a receive.
    """
    halves = left.copy()
    other_rows = recorded.sides(receives=not receives)[1]
    for chosen, place in _group_alike(recorded.messages, left, other_rows):
        paired = chosen[other_rows[chosen] != NONE]
        lone = recorded.left_over(chosen, paired, receives=receives)
        if lone is not None:
            halves[place] = chosen[lone]
    return halves


def number_alike(messages: Messages) -> Int64:
    """Return (M,) a number for each message, rising, the same for those alike: they are in the order of their kinds."""
    return number_runs(messages.source, messages.target, messages.tag, messages.bytes)


def number_runs(*columns: Int64) -> Int64:
    """Return (M,) the number of each run in which no column (M,) changes, from 0."""
    begins = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return np.cumsum(begins)


def _group_alike(messages: Messages, left: Int64, other_rows: Int64) -> list[tuple[Int64, slice]]:
    """Return for each kind of messages those alike, in their order, and which of those that are left are among them.

    Kinds of which all are left are not among these: there is nothing to choose.
    """
    number = number_alike(messages)
    kinds, first, count = np.unique(number[left], return_index=True, return_counts=True)
    bounds = np.searchsorted(number, kinds), np.searchsorted(number, kinds, side="right")
    of_left = zip(first.tolist(), (first + count).tolist(), *(each.tolist() for each in bounds), strict=True)
    return [
        (np.arange(begin, end), slice(low, high))
        for low, high, begin, end in of_left
        if end - begin > high - low and (other_rows[begin:end] != NONE).any()
    ]


def _find_left_over(own: tuple[Int64, Int64], other: tuple[Int64, Int64], *, receives: bool) -> Bool:
    """Return which of some halves (O,) have no other one among fewer (P,), by when they began and ended; both are in order.

    Of all ways to pair them in their order it is the one in which the time from the end of one half to that of the other changes
    least from pair to pair, and in which receives end least before their sends begin; of several the one that leaves the last.
    """
    pairs, surplus = len(other[0]), len(own[0]) - len(other[0])
    places = np.arange(pairs)
    # Of each number of own ones that were left out before a pair: how bad that is, how far apart its ends are, since which pair
    # it is that number, and which it was before.
    bad, apart = np.zeros((surplus + 1, pairs)), np.zeros((surplus + 1, pairs))
    since, before = np.zeros((2, surplus + 1, pairs), np.int32)
    for out in range(surplus + 1):
        begin, end = (times[out : out + pairs] for times in own)
        early = other[0] - end if receives else begin - other[1]
        now = apart[out] = (end - other[1]).astype(np.float64)
        here = _COUNTS * np.maximum(early, 0)
        entered = np.full(pairs, np.inf)
        # Where nothing else tells, the nearest.
        entered[0] = abs(now[0]) + here[0]
        if out and pairs > 1:
            ways = bad[:out, :-1] + _COUNTS * np.abs(now[1:] - apart[:out, :-1])
            before[out, 1:] = ways.argmin(axis=0)
            entered[1:] = ways.min(axis=0) + here[1:]
        # What it costs to stay at that number until a pair, and the best pair before to begin with it.
        stays = np.cumsum(here + _COUNTS * np.abs(np.diff(now, prepend=now[0])))
        gain = entered - stays
        best = np.minimum.accumulate(gain)
        since[out] = np.maximum.accumulate(np.where(gain == best, places, 0))
        bad[out] = best + stays
    alone = np.ones(len(own[0]), np.bool_)
    place, out = pairs - 1, int(bad[:, -1].argmin())
    while place >= 0:
        first = int(since[out, place])
        alone[first + out : place + out + 1] = False
        place, out = first - 1, int(before[out, first])
    return alone
