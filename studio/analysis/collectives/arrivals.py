"""When all that take part in a collective or a message had begun it, and who began it last.

A member of a collective waits until the last member has begun, a receive until its send has. Sends do not wait: they may
be over before anybody receives. Where all nodes take their recorded time whatever the other ranks do (`replay-only`), nobody
waits: what was waited is part of the recorded time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from studio.analysis.collectives.apart import find_apart, may_differ
from studio.analysis.collectives.clocks import estimate_clock_leads
from studio.analysis.collectives.matching import GroupMatching, match_by_name
from studio.analysis.collectives.messages import Channels, Messages, match_channels
from studio.analysis.graph.neighbours import concatenate_ranges
from studio.distinct import find_distinct
from studio.notebook import format_record
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
        apart: (D,) places at which members do different things: there is no collective, and no member of one.
    """

    name: str
    places: Int64
    line: Int64
    member: Int64
    rows: Int64
    start_ns: Int64
    last: Int64
    apart: Int64

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Ran:
    """Sends and receives of which both halves ran.

    Channels between ranks that were simulated as one, or share their times, ran alike: what is asked of times is asked once.

    Attributes:
        channels: All channels of the job.
        shown: Channels that stand for all.
        which: (C,) which of these stands for each.
        messages: The messages of the channels shown.
        channel: Of each of these messages the place of its channel among those shown.
        ran: Of all messages of the channels shown whether both halves ran.
    """

    channels: Channels
    shown: Int64
    which: Int64
    messages: Messages
    channel: Int64
    ran: Bool

    def of_rank(self, place: int) -> Messages:
        """Return what a rank sent and received, by its place in the trace's ranks."""
        channels = self.channels
        named = np.flatnonzero(channels.parties == place)
        own_channels = find_distinct(np.searchsorted(channels.party_offsets, named, side="right") - 1)
        # A channel has as many messages as the one that stands for it.
        offsets = np.append(0, np.cumsum(channels.messages[self.shown]))
        at = concatenate_ranges(offsets, self.which[own_channels])
        return _pick(channels.expand(own_channels), np.flatnonzero(self.ran[at]))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When all participants of each node had begun it, and the last of them.

    T times, as in the `NodeTimes` they go with; R ranks.

    Attributes:
        begun_ns: (T,) when all participants had begun, on the clock of the node's rank; -1 where unknown.
        ahead_ns: (R,) how far the clock of each rank is ahead.
        groups: Comm groups with what their members ran.
        ran: Sends and receives of which both halves ran; None where there are none.
    """

    begun_ns: Int64
    ahead_ns: Int64
    groups: tuple[Joined, ...]
    ran: Ran | None
    _of_rank: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _halves: dict[int, tuple[_Half, _Half]] = field(default_factory=dict)
    _met: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    __repr__ = format_record

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
            own_rows = group.rows[line]
            positions = np.flatnonzero(own_rows != NONE)
            positions = positions[group.last[positions] != NONE]
            rank[own_rows[positions]] = group.member[group.last[positions]]
            row[own_rows[positions]] = group.rows[group.last[positions], positions]
        receives, source, sends = self._find_halves(place)[0]
        rank[receives], row[receives] = source, sends
        return rank, row

    def meets(self, place: int, count: int) -> Bool:
        """Return (N,) which nodes of a rank others take part in, that ran as well."""
        self._index()
        joins = np.zeros(count, np.bool_)
        for number, member in self._of_rank.get(place, ()):
            group = self.groups[number]
            if len(group.member) > 1:
                rows = group.rows[group.line[member]]
                joins[rows[rows != NONE]] = True
        for own_rows, _, _ in self._find_halves(place):
            joins[own_rows] = True
        return joins

    def together(self, place: int, row: int) -> list[tuple[int, int]]:
        """Return who began a collective or a message at the same moment as the last of its participants, as rank and node.

        Where a recording has all members begin together it does not tell who came last.

        Args:
            place: Place of a participant's rank in the trace's ranks.
            row: Its node.
        """
        met = self.meeting(place, row)
        if met is not None:
            group, at = met
            latest = group.start_ns[:, at] == group.start_ns[group.last[at], at]
            return list(zip(group.member[latest].tolist(), group.rows[latest, at].tolist(), strict=True))
        for own_rows, others, rows in self._find_halves(place):
            for at in np.flatnonzero(own_rows == row).tolist():
                return [(place, row), (int(others[at]), int(rows[at]))]
        return []

    def members(self, place: int, row: int) -> list[tuple[int, int]]:
        """Return who took part in a collective, as rank and node, of members that were simulated as one the first; itself where nothing tells.

        Args:
            place: Place of a participant's rank in the trace's ranks.
            row: Its node.
        """
        met = self.meeting(place, row)
        if met is None:
            return [(place, row)]
        group, at = met
        is_present = group.rows[:, at] != NONE
        return list(zip(group.member[is_present].tolist(), group.rows[is_present, at].tolist(), strict=True))

    def meeting(self, place: int, row: int) -> tuple[Joined, int] | None:
        """Return the group of a collective that a node takes part in, and which of the group's it is; None where it meets nobody."""
        self._index()
        if place not in self._met:
            self._met[place] = dict(self._iterate_meetings(place))
        if row not in self._met[place]:
            return None
        number, at = self._met[place][row]
        return self.groups[number], at

    def _iterate_meetings(self, place: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield each node of a rank that meets others in a collective: its row, the group's index and the collective's."""
        for number, member in self._of_rank.get(place, ()):
            group = self.groups[number]
            if len(group.member) > 1:
                rows = group.rows[group.line[member]].tolist()
                yield from ((row, (number, at)) for at, row in enumerate(rows) if row != NONE)

    def _index(self) -> None:
        if self._of_rank:
            return
        for number, group in enumerate(self.groups):
            for member in np.flatnonzero(group.line != NONE).tolist():
                self._of_rank.setdefault(int(group.places[member]), []).append((number, member))

    def _find_halves(self, place: int) -> tuple[_Half, _Half]:
        """Return what a rank received and what it sent."""
        if place not in self._halves:
            nothing = _NOTHING, _NOTHING, _NOTHING
            self._halves[place] = nothing, nothing
            if self.ran is not None:
                messages = self.ran.of_rank(place)
                got, gave = messages.receive_rank == place, messages.send_rank == place
                self._halves[place] = (
                    (messages.receive_row[got], messages.send_rank[got], messages.send_row[got]),
                    (messages.send_row[gave], messages.receive_rank[gave], messages.receive_row[gave]),
                )
        return self._halves[place]


_Half = tuple[Int64, Int64, Int64]
"""Rows of a rank's sends or receives, the places of the ranks at the other end, and their rows."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Who takes part in what, whenever it runs: all runs of a job with the same comm groups share it.

    Attributes:
        groups: Comm groups with the collectives of their members.
        channels: Sends with their receives; None where nothing is received.
    """

    groups: tuple[GroupMatching, ...]
    channels: Channels | None

    __repr__ = format_record


def match(trace: Trace, groups: Sequence[CommGroup] | None = None) -> Matched:
    """Match collectives of members and halves of messages; `groups` are comm groups in place of the trace's."""
    receives = any((graph.type == NodeType.COMM_RECV).any() for graph in trace.graphs)
    return Matched(match_by_name(trace, groups), match_channels(trace) if receives else None)


def find_arrivals(
    trace: Trace,
    times: NodeTimes,
    groups: Sequence[CommGroup] | None = None,
    *,
    is_recording: bool = False,
    matched: Matched | None = None,
) -> Arrivals:
    """Return when all participants of each node had begun it, and who began it last.

    Members of a collective are matched as `match_by_name` says, else by the order in which they begin those of a group;
    where times are missing, by the order their dependencies give.

    Args:
        trace: The job.
        times: When its nodes ran.
        groups: Comm groups in place of the trace's.
        is_recording: Whether ranks have clocks of their own, which are aligned by the ends of matched collectives.
        matched: What `match` returns, where it is known.
    """
    matched = matched or match(trace, groups)
    ahead = (
        estimate_clock_leads(trace, matched.groups) if is_recording else np.zeros(len(trace.ranks), np.int64)
    )
    begun = np.full(len(times.start_ns), NONE, np.int64)
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    known: _Known = {}
    joined = [_join_group(group, times, place, (ahead, begun), known) for group in matched.groups]
    ran = None if matched.channels is None else _collect_ran_messages(matched.channels, times, ahead, begun)
    return Arrivals(begun, ahead, tuple(group for group in joined if group is not None), ran)


def without_joining(met: Arrivals) -> Arrivals:
    """Return arrivals as if no rank had waited for another: no node joins at the beginning of one elsewhere."""
    nothing = np.full(len(met.begun_ns), NONE, np.int64)
    return Arrivals(nothing, met.ahead_ns, tuple(map(_drop_joins, met.groups)), None)


def _drop_joins(group: Joined) -> Joined:
    none = np.zeros((0, group.rows.shape[1]), np.int64)
    line = np.full(len(group.line), NONE, np.int64)
    return replace(
        group, line=line, member=_NOTHING, rows=none, start_ns=none, last=np.full_like(group.last, NONE)
    )


_Known = dict[tuple[object, ...], tuple[Int64, Int64, Int64, Int64, Int64, Int64]]
"""Of a group the members shown, the line of each member, rows, starts, who was last, and what is none: equal groups with the same times share it."""


def _join_group(
    group: GroupMatching,
    times: NodeTimes,
    place: dict[int, int],
    clocks: tuple[Int64, Int64],
    known: _Known,
) -> Joined | None:
    """Return the collectives of a group as they ran; notes in the second of the clocks when all had begun."""
    ahead = clocks[0]
    indices = np.array([place.get(member, NONE) for member in group.members], np.int64)
    first = np.where(indices == NONE, NONE, times.first[indices])
    if not ((group.sequence_of != NONE) & (first != NONE)).any():
        return None
    key = (
        *(*map(id, group.sequences), group.by_number),
        *(
            group.sequence_of.tobytes(),
            first.tobytes(),
            np.where(indices == NONE, 0, ahead[indices]).tobytes(),
        ),
    )
    if key not in known:
        known[key] = _align_as_run(group, times, first, indices, clocks)
    shown, line, rows, aligned, last, apart = known[key]
    return Joined(group.name, indices, line, indices[shown], rows, aligned, last, apart)


def _align_as_run(
    group: GroupMatching, times: NodeTimes, first: Int64, indices: Int64, clocks: tuple[Int64, Int64]
) -> tuple[Int64, Int64, Int64, Int64, Int64, Int64]:
    ahead, begun = clocks
    present = np.flatnonzero((group.sequence_of != NONE) & (first != NONE))
    # Members that share sequence and times are one.
    key = np.stack([first[present], group.sequence_of[present]])
    _, one_each, shared = np.unique(key, axis=1, return_index=True, return_inverse=True)
    line = np.full(len(indices), NONE, np.int64)
    line[present] = shared.reshape(-1)
    present = present[one_each]
    matched = replace(group, sequence_of=group.sequence_of[present])
    rows = matched.rows()
    known = rows != NONE
    order = None
    base = first[present][:, None]
    where = np.where(known, base + rows, 0)
    start = np.where(known, times.start_ns[where], NONE)
    if not group.by_number:
        missing = (known & (start < 0)).any(axis=1)
        key = np.where(missing[:, None], 0, np.where(known, start, _NEVER))
        order = np.argsort(key, axis=1, kind="stable")
        where, start = np.take_along_axis(where, order, axis=1), np.take_along_axis(start, order, axis=1)
    ran = start >= 0
    apart = np.zeros(rows.shape[1], np.bool_)
    if may_differ(matched, order):
        kind, size = matched.content()
        if order is not None:
            kind, size = (np.take_along_axis(table, order, axis=1) for table in (kind, size))
        apart = find_apart(kind, size, ran)
        ran &= ~apart
    clock = ahead[indices[present]][:, None]
    aligned = np.where(ran, start - clock, -_NEVER)
    latest = aligned.max(axis=0) + clock
    begun[where[ran]] = latest[ran]
    last = np.where(apart, NONE, aligned.argmax(axis=0))
    return present, line, np.where(ran, where - base, NONE), aligned, last, np.flatnonzero(apart)


def _collect_ran_messages(channels: Channels, times: NodeTimes, ahead: Int64, begun: Int64) -> Ran:
    """Return the messages of which both halves ran; notes when both had begun."""
    clocks = np.unique(np.stack([times.first, ahead]), axis=1, return_inverse=True)[1].reshape(-1)
    shown, which = channels.alike(clocks)
    messages = channels.expand(shown)
    channel = np.repeat(np.arange(len(shown)), channels.messages[shown])
    both = (messages.send_row != NONE) & (messages.receive_row != NONE)
    send = np.where(both, times.first[messages.send_rank], NONE)
    receive = np.where(both, times.first[messages.receive_rank], NONE)
    met = np.flatnonzero((send != NONE) & (receive != NONE))
    source, target = messages.send_rank[met], messages.receive_rank[met]
    start = times.start_ns[send[met] + messages.send_row[met]]
    begun[receive[met] + messages.receive_row[met]] = np.where(
        start >= 0, start - ahead[source] + ahead[target], NONE
    )
    timed = met[start >= 0]
    ran = np.zeros(len(messages), np.bool_)
    ran[timed] = True
    return Ran(channels, shown, which, _pick(messages, timed), channel[timed], ran)


def _pick(messages: Messages, chosen: Int64) -> Messages:
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
    return Messages(*(column[chosen] for column in columns))
