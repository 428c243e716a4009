"""When all that take part in a collective or a message had begun it, and who began it last.

A member of a collective waits until the last member has begun, a receive until its send has. Sends do not wait: they may
be over before anybody receives. Where all nodes take their recorded time whatever the other ranks do (`replay-only`), nobody
waits: what was waited is part of the recorded time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from studio.analysis.collectives.clocks import clocks_ahead
from studio.analysis.collectives.matching import GroupMatching, Messages, match_by_name, match_messages
from studio.notebook import one_line
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, CommGroup, Int64, NodeType, Trace

_NEVER = np.iinfo(np.int64).max
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Joined:
    """The collectives of a comm group as they ran: which node of each member belongs to which.

    M members, L distinct lines of them (members that were simulated as one share a line), C collectives.

    Attributes:
        name: The group's name; "" is the group of all ranks.
        places: (M,) places of the members in the trace's ranks, -1 for those the trace does not hold.
        line: (M,) the line of each member, -1 where nothing is known of it.
        member: (L,) a member of each line, its place in the trace's ranks.
        rows: (L, C) the member's node, -1 where it has none or has no time for it.
        start_ns: (L, C) when it began, on aligned clocks; -2^63 where it has none.
        last: (C,) the line that began last, of those that began together that which was ready last; -1 where nothing tells.
    """

    name: str
    places: Int64
    line: Int64
    member: Int64
    rows: Int64
    start_ns: Int64
    last: Int64

    __repr__ = one_line


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When all participants of each node had begun it, and the last of them.

    T times, as in the `NodeTimes` they go with; R ranks.

    Attributes:
        begun_ns: (T,) when all participants had begun, on the clock of the node's rank; -1 where unknown.
        ahead_ns: (R,) how far the clock of each rank is ahead.
        groups: Comm groups with what their members ran.
        messages: Sends and receives of which both halves ran.
    """

    begun_ns: Int64
    ahead_ns: Int64
    groups: tuple[Joined, ...]
    messages: Messages | None
    _of_rank: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _received: dict[int, tuple[Int64, Int64, Int64]] = field(default_factory=dict)
    _sent: dict[int, tuple[Int64, Int64, Int64]] = field(default_factory=dict)
    _met: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    __repr__ = one_line

    def partners(self, place: int, count: int) -> tuple[Int64, Int64]:
        """Return what the nodes of a rank join at: (N,) the place of a rank, and its node; -1 for nothing.

        Of a collective it is the member that began last, of a receive the send.

        Args:
            place: Place of the rank in the trace's ranks.
            count: N, how many nodes it has.
        """
        self._index()
        rank, row = np.full(count, NONE, np.int64), np.full(count, NONE, np.int64)
        for number, member in self._of_rank.get(place, ()):
            group = self.groups[number]
            line = int(group.line[member])
            mine = group.rows[line]
            there = np.flatnonzero(mine != NONE)
            there = there[group.last[there] != NONE]
            rank[mine[there]] = group.member[group.last[there]]
            row[mine[there]] = group.rows[group.last[there], there]
        if place in self._received:
            receives, source, sends = self._received[place]
            rank[receives], row[receives] = source, sends
        return rank, row

    def meets(self, place: int, count: int) -> Bool:
        """Return (N,) which nodes of a rank others take part in, that ran as well."""
        self._index()
        found = np.zeros(count, np.bool_)
        for number, member in self._of_rank.get(place, ()):
            group = self.groups[number]
            if len(group.member) > 1:
                rows = group.rows[group.line[member]]
                found[rows[rows != NONE]] = True
        for halves in (self._received, self._sent):
            if place in halves:
                found[halves[place][0]] = True
        return found

    def together(self, place: int, row: int) -> list[tuple[int, int]]:
        """Return who began a collective or a message at the same moment as the last of its participants, as rank and node.

        Where a recording has all members begin together it does not tell who came last.

        Args:
            place: Place of a participant's rank in the trace's ranks.
            row: Its node.
        """
        self._index()
        if place not in self._met:
            self._met[place] = dict(self._meetings(place))
        if row in self._met[place]:
            number, at = self._met[place][row]
            group = self.groups[number]
            latest = group.start_ns[:, at] == group.start_ns[group.last[at], at]
            return list(zip(group.member[latest].tolist(), group.rows[latest, at].tolist(), strict=True))
        for halves in (self._received, self._sent):
            mine, others, rows = halves.get(place, (_NOTHING, _NOTHING, _NOTHING))
            for at in np.flatnonzero(mine == row).tolist():
                return [(place, row), (int(others[at]), int(rows[at]))]
        return []

    def _meetings(self, place: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield each node of a rank that meets others in a collective: its row, the group's index and the collective's."""
        for number, member in self._of_rank.get(place, ()):
            group = self.groups[number]
            if len(group.member) > 1:
                rows = group.rows[group.line[member]].tolist()
                yield from ((row, (number, at)) for at, row in enumerate(rows) if row != NONE)

    def _index(self) -> None:
        if self._of_rank or self._received:
            return
        for number, group in enumerate(self.groups):
            for member in np.flatnonzero(group.line != NONE).tolist():
                self._of_rank.setdefault(int(group.places[member]), []).append((number, member))
        if self.messages is None or not len(self.messages):
            return
        send = (self.messages.send_rank, self.messages.send_row)
        receive = (self.messages.receive_rank, self.messages.receive_row)
        for found, mine, other in ((self._received, receive, send), (self._sent, send, receive)):
            order = np.argsort(mine[0], kind="stable")
            distinct, first = np.unique(mine[0][order], return_index=True)
            for place, part in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
                found[place] = (mine[1][part], other[0][part], other[1][part])


def arrivals(
    trace: Trace, times: NodeTimes, groups: Sequence[CommGroup] | None = None, *, is_recording: bool = False
) -> Arrivals:
    """Return when all participants of each node had begun it, and who began it last.

    Members of a collective are matched as `match_by_name` says, else by the order in which they begin those of a group;
    where times are missing, by the order their dependencies give.

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
    joined = [_joined(group, times, place, ahead, begun) for group in matchings]
    messages = None
    if any((graph.type == NodeType.COMM_RECV).any() for graph in trace.graphs):
        messages = _received(trace, times, ahead, begun)
    return Arrivals(begun, ahead, tuple(group for group in joined if group is not None), messages)


def without_joining(met: Arrivals) -> Arrivals:
    """Return the same comm groups where no rank waited for another: no node joins at the beginning of one elsewhere."""
    nothing = np.full(len(met.begun_ns), NONE, np.int64)
    return Arrivals(nothing, met.ahead_ns, tuple(map(_alone, met.groups)), None)


def _alone(group: Joined) -> Joined:
    none = np.zeros((0, group.rows.shape[1]), np.int64)
    line = np.full(len(group.line), NONE, np.int64)
    return replace(
        group, line=line, member=_NOTHING, rows=none, start_ns=none, last=np.full_like(group.last, NONE)
    )


def _joined(
    group: GroupMatching, times: NodeTimes, place: dict[int, int], ahead: Int64, begun: Int64
) -> Joined | None:
    indices = np.array([place.get(member, NONE) for member in group.members], np.int64)
    first = np.where(indices == NONE, NONE, times.first[indices])
    there = np.flatnonzero((group.sequence_of != NONE) & (first != NONE))
    if not len(there):
        return None
    # Members that share sequence and times are one.
    key = np.stack([first[there], group.sequence_of[there]])
    _, one_each, shared = np.unique(key, axis=1, return_index=True, return_inverse=True)
    line = np.full(len(indices), NONE, np.int64)
    line[there] = shared.reshape(-1)
    there = there[one_each]
    rows = group.rows()[there]
    known = rows != NONE
    base = first[there][:, None]
    where = np.where(known, base + rows, 0)
    start = np.where(known, times.start_ns[where], NONE)
    if not group.by_number:
        missing = (known & (start < 0)).any(axis=1)
        key = np.where(missing[:, None], 0, np.where(known, start, _NEVER))
        order = np.argsort(key, axis=1, kind="stable")
        where, start = np.take_along_axis(where, order, axis=1), np.take_along_axis(start, order, axis=1)
    ran = start >= 0
    clock = ahead[indices[there]][:, None]
    aligned = np.where(ran, start - clock, -_NEVER)
    last = aligned.max(axis=0) + clock
    begun[where[ran]] = last[ran]
    return Joined(
        group.name,
        indices,
        line,
        indices[there],
        np.where(ran, where - base, NONE),
        aligned,
        aligned.argmax(axis=0),
    )


def _received(trace: Trace, times: NodeTimes, ahead: Int64, begun: Int64) -> Messages:
    messages = match_messages(trace)
    both = (messages.send_row != NONE) & (messages.receive_row != NONE)
    send = np.where(both, times.first[messages.send_rank], NONE)
    receive = np.where(both, times.first[messages.receive_rank], NONE)
    ran = np.flatnonzero((send != NONE) & (receive != NONE))
    source, target = messages.send_rank[ran], messages.receive_rank[ran]
    start = times.start_ns[send[ran] + messages.send_row[ran]]
    begun[receive[ran] + messages.receive_row[ran]] = np.where(
        start >= 0, start - ahead[source] + ahead[target], NONE
    )
    timed = ran[start >= 0]
    columns = (
        messages.source,
        messages.target,
        messages.tag,
        messages.bytes,
        messages.send_rank,
        messages.send_row,
        messages.receive_rank,
        messages.receive_row,
    )
    return Messages(*(column[timed] for column in columns))
