"""A timeline prepared for export: threads without overlapping slices, and flows between slices.

Flows are the dependencies of each rank, each message from its send to its receive, and, for a collective, from each
member to the one that arrives next.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np

from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.peers import order_members
from studio.columns import join_columns
from studio.timeline import LANE_KINDS, LaneKind
from studio.trace import NONE, Bool, Int32, Int64, Rank

DEPENDENCY_KINDS = ("ctrl", "data")
_FLOWS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class Thread:
    """Slices of a rank that do not overlap.

    Attributes:
        number: From 1, within the rank.
        kind: What its lane is.
        title: Kind and name of the lane, and which of its threads; untrusted text.
        places: Where in the gantt's coverage the slices are, rising by start.
    """

    number: int
    kind: LaneKind
    title: str
    places: Int64


class End(NamedTuple):
    """The slice at which a flow starts or ends.

    Attributes:
        rank: Number of the rank.
        thread: Number of the thread within the rank.
        start_ns: When the slice begins, after the beginning of the timeline.
        place: Where in the gantt's coverage it is.
    """

    rank: int
    thread: int
    start_ns: int
    place: int


CALL_NOTES = ("piece", "pieces", "started_ns", "lasted_ns", "own_ns")
"""What slices of recorded calls say: which of how many they are, and the first when the call began, until it returned, its own time."""


@dataclass(frozen=True, slots=True)
class CallNotes:
    """What the slices of recorded calls of a rank say.

    N slices.

    Attributes:
        places: (N,) where in the gantt's coverage they are, rising.
        values: (N, 5) of each the values of `CALL_NOTES`.
    """

    places: Int64
    values: Int64

    def of(self, places: Int64) -> Iterator[list[tuple[str, int]]]:
        """Return what each of some slices says; nothing where it is of no call."""
        if not len(self.places):
            return repeat([], len(places))
        return self._iterate(places)

    def _iterate(self, places: Int64) -> Iterator[list[tuple[str, int]]]:
        at = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        for place, is_call in zip(at.tolist(), (self.places[at] == places).tolist(), strict=True):
            yield self._list_pairs(place) if is_call else []

    def _list_pairs(self, place: int) -> list[tuple[str, int]]:
        values = self.values[place].tolist()
        pairs = list(zip(CALL_NOTES, values, strict=True))
        piece, pieces, *_ = values
        return pairs[0 if pieces > 1 else 2 : 5 if piece == 1 else 2]


def collect_notes(gantt: Gantt, rank: Rank) -> CallNotes:
    """Return what the slices of recorded calls of a rank say."""
    if not gantt.calls:
        return CallNotes(np.zeros(0, np.int64), np.zeros((0, len(CALL_NOTES)), np.int64))
    calls, coverage = gantt.calls[rank.graph], gantt.coverage
    places = join_columns([gantt.row_places(row) for row in gantt.rows_of(rank)])
    places = places[calls.places(coverage.row[places])[1]]
    places = places[np.lexsort((coverage.start_ns[places], coverage.row[places]))]
    node = coverage.row[places]
    at, _ = calls.places(node)
    first = np.flatnonzero(np.append(True, node[1:] != node[:-1])) if len(node) else node
    nth = np.arange(len(node)) - np.repeat(first, np.diff(np.append(first, len(node))))
    values = (
        nth + 1,
        calls.counts(node),
        calls.start_ns[at] - gantt.origin_ns,
        calls.over_ns[at] - calls.start_ns[at],
        calls.own_ns[at],
    )
    order = np.argsort(places)
    return CallNotes(places[order], np.column_stack(values)[order])


class Slices:
    """The threads and flows of a gantt."""

    def __init__(self, gantt: Gantt) -> None:
        """Wrap a gantt; everything else is computed on demand."""
        self.gantt = gantt
        self._numbers: dict[int, Int32] = {}

    def threads(self, rank: Rank) -> Iterator[Thread]:
        """Yield the threads of a rank from the top: one per row, and more where spans of a row overlap."""
        rows = self.gantt.rows
        number = 0
        for row in self.gantt.rows_of(rank):
            kind = LANE_KINDS[int(rows.kind[row])]
            lane, level = f"{kind} {rows.names[int(rows.name[row])]}".strip(), int(rows.level[row])
            for below, places in enumerate(self._distribute_spans(self.gantt.row_places(row))):
                number += 1
                nth = level + below + 1
                yield Thread(number, kind, lane if nth == 1 else f"{lane} · {nth}", places)

    def _distribute_spans(self, places: Int64) -> list[Int64]:
        """Distribute spans sorted by start over as few threads as possible without overlaps."""
        start, end = self.gantt.coverage.start_ns[places], self.gantt.coverage.end_ns[places]
        if not (start[1:] < end[:-1]).any():
            return [places]
        parts: list[list[int]] = []
        busy: list[tuple[int, int]] = []
        for place, begin, finish in zip(places.tolist(), start.tolist(), end.tolist(), strict=True):
            if busy and busy[0][0] <= begin:
                chosen = heapq.heappop(busy)[1]
            else:
                chosen = len(parts)
                parts.append([])
            parts[chosen].append(place)
            heapq.heappush(busy, (finish, chosen))
        return [np.array(part, np.int64) for part in parts]

    def _list_ends(self, rank: Rank, places: Int64) -> list[End]:
        coverage = self.gantt.coverage
        known = self._numbers.get(rank.number)
        if known is None:
            known = np.zeros(len(self.gantt.trace.graph_of(rank)), np.int32)
            for thread in self.threads(rank):
                places_of = thread.places
                if coverage.goes_on is not None:
                    places_of = places_of[~coverage.goes_on[places_of]]
                known[coverage.row[places_of]] = thread.number
            self._numbers[rank.number] = known
        columns = (known[coverage.row[places]], coverage.start_ns[places] - self.gantt.origin_ns, places)
        return [
            End(rank.number, *values) for values in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def dependencies(self, rank: Rank) -> Iterator[tuple[str, End, End]]:
        """Yield the dependencies between slices of a rank: kind, slice waited for, waiting slice."""
        before, after, data = self.dependency_places(rank)
        for first in range(0, len(data), _FLOWS_AT_ONCE):
            part = slice(first, first + _FLOWS_AT_ONCE)
            sides = (self._list_ends(rank, side[part]) for side in (before, after))
            for kind, waited_for, two in zip(data[part].tolist(), *sides, strict=True):
                yield DEPENDENCY_KINDS[kind], waited_for, two

    def dependency_places(self, rank: Rank) -> tuple[Int64, Int64, Bool]:
        """Return the dependencies between slices of a rank: (D,) the one waited for, the waiting one, and whether data is passed."""
        edges = self.gantt.adjacency_of(rank).edges
        places = self.gantt.places(rank).astype(np.int64)
        before, after = places[edges.before], places[edges.after]
        is_drawn = (before != NONE) & (after != NONE)
        return before[is_drawn], after[is_drawn], edges.is_data[is_drawn]

    def meeting_places(self) -> Iterator[tuple[Int64, Int64, Int64, Int64]]:
        """Yield what `meetings` does where at least two slices meet, a comm group or all messages at a time.

        E slices, one meeting after another; where the slices of one stand is in no order but for a message's, its send first.

        Yields:
            (E,) which meeting, counted from 0; place of the rank in the trace; slice; and whether it is a receive.
        """
        gantt = self.gantt
        place_of = {rank.number: place for place, rank in enumerate(gantt.trace.ranks)}
        places = {}

        def get_slices(place: int) -> Int64:
            if place not in places:
                places[place] = gantt.places(gantt.trace.ranks[place]).astype(np.int64)
            return places[place]

        for matching in gantt.matchings:
            rows = order_members(gantt, matching)
            ranks = np.array([place_of.get(number, NONE) for number in matching.members], np.int64)
            table = np.full(rows.shape, NONE, np.int64)
            for line, place, entries in zip(table, ranks.tolist(), rows, strict=True):
                is_present = entries != NONE
                if is_present.any():
                    line[is_present] = get_slices(place)[entries[is_present]]
            table = table[:, (table != NONE).sum(axis=0) > 1]
            meeting, member = np.nonzero(table.T != NONE)
            yield meeting, ranks[member], table[member, meeting], np.zeros(len(member), np.int64)
        messages = gantt.messages
        ranks = np.stack([messages.send_rank, messages.receive_rank], axis=1).astype(np.int64)
        rows = np.stack([messages.send_row, messages.receive_row], axis=1)
        table = np.full(ranks.shape, NONE, np.int64)
        whole = np.flatnonzero(np.repeat((ranks != NONE).all(axis=1), 2))
        order = whole[np.argsort(ranks.reshape(-1)[whole], kind="stable")]
        named = ranks.reshape(-1)[order]
        for entries in np.split(order, np.flatnonzero(np.diff(named)) + 1):
            if len(entries):
                own = get_slices(int(ranks.reshape(-1)[entries[0]]))
                table.reshape(-1)[entries] = own[rows.reshape(-1)[entries]]
        both = (table != NONE).all(axis=1)
        count = int(both.sum())
        side = np.tile(np.arange(2), count)
        yield np.repeat(np.arange(count), 2), ranks[both].reshape(-1), table[both].reshape(-1), side

    def meetings(self) -> Iterator[tuple[str, list[End]]]:
        """Yield the slices of every collective, by arrival, and of every message, its send first."""
        gantt = self.gantt
        for matching in gantt.matchings:
            rows = order_members(gantt, matching)
            table: list[list[End]] = [[] for _ in range(rows.shape[1])]
            for number, own_rows in zip(matching.members, rows, strict=True):
                positions = np.flatnonzero(own_rows != NONE)
                if not len(positions):
                    continue
                rank = gantt.rank(number)
                places = gantt.places(rank)[own_rows[positions]].astype(np.int64)
                timed = places != NONE
                for position, end in zip(
                    positions[timed].tolist(), self._list_ends(rank, places[timed]), strict=True
                ):
                    table[position].append(end)
            yield from (("collective", sorted(ends, key=lambda end: end.start_ns)) for ends in table)
        messages = gantt.messages
        halves = (messages.send_rank, messages.send_row, messages.receive_rank, messages.receive_row)
        for source, row, target, other in zip(*(half.tolist() for half in halves), strict=True):
            if NONE in (source, target):
                continue
            ends = []
            for index, node in ((source, row), (target, other)):
                rank = gantt.trace.ranks[index]
                place = gantt.places(rank)[[node]].astype(np.int64)
                ends += self._list_ends(rank, place[place != NONE])
            yield "message", ends

    def flows(self) -> Iterator[tuple[str, End, End]]:
        """Yield every flow: its kind, its first slice, its last slice."""
        for rank in self.gantt.trace.ranks:
            yield from self.dependencies(rank)
        for kind, ends in self.meetings():
            for before, after in pairwise(ends):
                yield kind, before, after
