"""Find what each node of a rank waited for in its recording, by times alone.

- Operators lie in lanes, which stand for threads: those that enclose each other share one, those that overlap otherwise do not. A node
  begins as long after the one before it on its lane ended, or the one that encloses it began, as in the recording.
- A lane that stood idle, or was in a call that may wait, goes on after what ended last on another lane meanwhile. The first operator of
  a lane, and each of gloo, comes after the call that asked for it.
- What ran on a device comes after the operation before it on its stream, the operator that launched it, and what ended last on another
  stream while its own stood idle. An operator waits for the copy to the host that ended in the one before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from studio.et.link.operations import LIBRARY
from studio.et.link.options import LinkOptions
from studio.et.link.spans import COMPUTING
from studio.trace import NONE, Graph, is_flagged, read_dense_column

BEGINNING = NONE
"""Stands for the beginning of the rank, which whatever waits for nothing comes after."""
_SLACK_NS = 1_000
"""Recorders write whole microseconds: intervals overlap by as much that followed each other."""
_HELD_NS = LinkOptions().thread_gap_ns
"""A lane that stood idle for less was not held up by another."""
_TO_HOST = re.compile(r"DtoH|device\s*(?:to|->)\s*host", re.IGNORECASE)
_NO_LANE = NONE

_Waits = list[tuple[int, int]]
"""What a node waits for: a node, or the beginning of the rank, and how long after its end it begins."""


@dataclass(frozen=True, slots=True)
class Order:
    """What nodes of a rank waited for in its recording.

    Attributes:
        rows: Those that have times, callers first.
        waits: By row, what each waited for.
        tails: What went on after the last node of a lane: that node, and for how long.
        begin: When the first began.
        over: By row, when each had taken its time.
    """

    rows: list[int]
    waits: dict[int, _Waits]
    tails: _Waits
    begin: int
    over: list[int]


def find_order(graph: Graph) -> Order:
    """Return what the nodes of a rank waited for in its recording."""
    return _Recorded(graph).order()


def find_callers(graph: Graph) -> list[int]:
    """Return (N,) the first node that each names as its caller, -1 where it names none."""
    callers = np.full(len(graph), NONE, np.int64)
    first = graph.ctrl.offsets[:-1]
    rows = np.flatnonzero(np.diff(graph.ctrl.offsets))
    callers[rows] = graph.ctrl.rows[first[rows]]
    callers[callers == np.arange(len(graph))] = NONE
    listed: list[int] = np.maximum(callers, NONE).tolist()
    return listed


@dataclass(slots=True)
class _Lane:
    """What ran on a thread, or on a stream, in the order of time.

    Attributes:
        key: What its operators say of their thread.
        carries: Whether its outermost operators are gloo's.
        open: The operators that enclose what begins now, with when they end, outermost first.
        last: The operator that began last, -1 before the first.
    """

    key: object
    carries: bool = False
    open: list[tuple[int, int]] = field(default_factory=list)
    last: int = NONE

    def close(self, until: int) -> None:
        """Leave the operators that have ended by then."""
        while self.open and self.open[-1][1] <= until + _SLACK_NS:
            self.open.pop()


class _Recorded:
    """The recording of a rank, and what each of its nodes waits for in a replay."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        count = len(graph)
        whole = read_dense_column(graph, "inclusive_ns", NONE)
        took = np.maximum(graph.duration_ns, 1)
        self.names: list[str] = list(graph.strings)
        self.start: list[int] = graph.start_ns.tolist()
        # When a node ends in a replay, and when it returned in the recording.
        self.over: list[int] = (graph.start_ns + took).tolist()
        self.back: list[int] = (graph.start_ns + np.maximum(whole, graph.duration_ns)).tolist()
        self.room: list[int] = np.maximum(whole - graph.duration_ns, 0).tolist()
        self.callers = find_callers(graph)
        self.stream: list[int] = read_dense_column(graph, "stream", NONE).tolist()
        self.device: list[int] = read_dense_column(graph, "device", NONE).tolist()
        self.thread: list[int] = read_dense_column(graph, "tid", NONE).tolist()
        on_host = is_flagged(graph, "is_cpu_op").tolist()
        self.is_library = [self.name(row).startswith(LIBRARY) for row in range(count)]
        self.off_host = [
            not on_host[row] and (self.stream[row] >= 0 or (self.thread[row] < 0 and self.callers[row] < 0))
            for row in range(count)
        ]
        timed = np.flatnonzero(graph.start_ns >= 0)
        back = np.array(self.back, np.int64)[timed]
        later = np.array(self.off_host, np.bool_)[timed]
        self.rows: list[int] = timed[np.lexsort((timed, -back, later, graph.start_ns[timed]))].tolist()
        self.place = dict(zip(self.rows, range(len(self.rows)), strict=True))
        self.begin = int(graph.start_ns[timed].min())
        self.lanes: list[_Lane] = []
        self.lane_of = [_NO_LANE] * count
        self.before = [NONE] * count
        self.around = [NONE] * count
        self.waits: dict[int, _Waits] = {}
        # When each begins in a replay.
        self.begins = self.start.copy()
        self.copies: dict[int, list[int]] = {}

    def name(self, row: int) -> str:
        """Return what a node is called."""
        return self.names[int(self.graph.name[row])]

    def order(self) -> Order:
        """Return what nodes waited for in the recording."""
        for row in self.rows:
            self._place(row)
        self._find_copies()
        returns = _Returns(self)
        for row in self.rows:
            self.waits[row] = self._find_waits(row, returns)
            self._delay(row)
        return Order(self.rows, self.waits, returns.find_tails(), self.begin, self.over)

    def _delay(self, row: int) -> None:
        """Let a node that would have to begin before what it waits for has ended begin then, so that the next gap makes up for it."""
        begins = max(
            (self.begin if source == BEGINNING else self.over[source]) + lag
            for source, lag in self.waits[row]
        )
        self.over[row] += max(begins - self.start[row], 0)
        self.begins[row] = max(begins, self.start[row])

    # -----------------------------------------------------------------------------------------------
    # Lanes

    def _place(self, row: int) -> None:
        """Put a node into its lane: into that of its caller if it ran within, else into one that is free then."""
        number = self._choose_lane(row)
        lane = self.lanes[number]
        self.lane_of[row] = number
        self.before[row] = lane.last
        if lane.open:
            above = lane.open[-1][0]
            self.around[row] = above
            self.room[above] -= self.back[row] - self.start[row]
        lane.open.append((row, self.back[row]))
        lane.last = row

    def _choose_lane(self, row: int) -> int:
        key = self._find_key(row)
        carries = self.is_library[row]
        among = [number for number, lane in enumerate(self.lanes) if lane.key == key]
        fitting = []
        for number in among:
            lane = self.lanes[number]
            lane.close(self.start[row])
            if not lane.open or (not self.off_host[row] and self._fits_within(row, lane.open[-1][0])):
                fitting.append(number)
        caller = self.lane_of[self.callers[row]] if self.callers[row] >= 0 else _NO_LANE
        if caller in fitting and self.lanes[caller].open:
            return caller
        for number in fitting:
            if self.lanes[number].carries == carries:
                return number
        self.lanes.append(_Lane(key, carries))
        return len(self.lanes) - 1

    def _find_key(self, row: int) -> object:
        if self.stream[row] >= 0 and self.off_host[row]:
            return "stream", self.device[row], self.stream[row]
        if self.off_host[row]:
            return "kind", int(self.graph.type[row])
        return "thread", self.thread[row]

    def _fits_within(self, row: int, above: int) -> bool:
        """Whether a node ran within another on its thread: its time is part of what that did not spend itself."""
        took = self.back[row] - self.start[row]
        return self.back[row] <= self.back[above] + _SLACK_NS and took <= self.room[above] + _SLACK_NS

    # -----------------------------------------------------------------------------------------------
    # Dependencies

    def _find_copies(self) -> None:
        """Find the copies to the host that ended in the operator that launched them: by the operator after it on its lane."""
        starts: dict[int, list[int]] = {}
        rows: dict[int, list[int]] = {}
        for row in self.rows:
            starts.setdefault(self.lane_of[row], []).append(self.start[row])
            rows.setdefault(self.lane_of[row], []).append(row)
        for row in self.rows:
            caller = self.callers[row]
            if not self.off_host[row] or caller < 0 or self.off_host[caller] or self.start[caller] < 0:
                continue
            if self.over[row] <= self.back[caller] and _TO_HOST.search(self.name(row)):
                lane = self.lane_of[caller]
                at = bisect_right(starts[lane], self.over[row] - 1)
                if at < len(starts[lane]):
                    self.copies.setdefault(rows[lane][at], []).append(row)

    def _find_waits(self, row: int, returns: _Returns) -> _Waits:
        """Return what a node waits for, and how long after its end it begins."""
        begun = self.start[row]
        events: list[tuple[int, _Waits]] = []
        before = self.before[row]
        if before >= 0:
            events.append(self._find_begin(before) if before == self.around[row] else self._find_end(before))
        caller = self._find_asking(row)
        if caller >= 0 and (before < 0 or self.is_library[row] or self.off_host[row]):
            events.append(self._find_begin(caller))
        cause = self._find_cause(row, caller, returns)
        latest = max((at for at, _ in events), default=self.begin)
        waits: dict[int, int] = {}
        apart = []
        if cause is not None:
            ended, source = cause
            latest = max(latest, ended)
            apart.append(source)
        apart += [copy for copy in self.copies.get(row, ()) if self.place[copy] < self.place[row]]
        for source in apart:
            waits[source] = max(begun - self.over[source], 0)
        lag = max(begun - latest, 0)
        for _, sources in events:
            for source, after in sources:
                waits[source] = max(waits.get(source, 0), after + lag)
        if not waits:
            waits[BEGINNING] = begun - self.begin
        return list(waits.items())

    def _find_begin(self, row: int) -> tuple[int, _Waits]:
        return self.begins[row], self.waits[row]

    def _find_end(self, row: int) -> tuple[int, _Waits]:
        return self.over[row], [(row, 0)]

    def _find_asking(self, row: int) -> int:
        """Return the node that asked for another: its caller, if that began before it."""
        caller = self.callers[row]
        known = caller >= 0 and caller in self.place and self.place[caller] < self.place[row]
        return caller if known and self.start[caller] <= self.start[row] else NONE

    def _find_cause(self, row: int, caller: int, returns: _Returns) -> tuple[int, int] | None:
        """Return what a lane that stood still before a node had waited for: when that ended, and the node by whose end it did."""
        before, lane = self.before[row], self.lane_of[row]
        if self.off_host[row]:
            since = self.over[before] if before >= 0 else self.begin
            if caller >= 0:
                since = max(since, min(self.back[caller], self.start[row]))
            if self.start[row] - since <= _SLACK_NS:
                return None
        else:
            if before < 0:
                return None
            computes = self.name(before).startswith(COMPUTING)
            if computes and before == self.around[row]:
                return None
            since = self.back[before] if computes else self.start[before]
            if self.start[row] - since < _HELD_NS:
                return None
        return returns.find(lane, since, self.start[row], self.place[row], off_host=self.off_host[row])


class _Returns:
    """When what is outermost on its lane returned, and by the end of which node that is told."""

    def __init__(self, recorded: _Recorded) -> None:
        listed = []
        source: dict[int, int] = {}
        outermost: dict[int, int] = {}
        for row in recorded.rows:
            above = recorded.around[row]
            outermost[row] = outer = row if above < 0 else outermost[above]
            # An operator of gloo that meets others ends with the meeting, whatever it called.
            if not recorded.is_library[outer]:
                source[outer] = row
        for row, outer in outermost.items():
            if row == outer:
                last = source.get(row, row)
                ended = max(recorded.back[row], recorded.over[row])
                listed.append((ended, recorded.lane_of[row], last))
        listed.sort()
        self.recorded, self.outermost, self.source = recorded, outermost, source
        self.items = {
            kind: [item for item in listed if recorded.off_host[item[2]] == kind] for kind in (False, True)
        }
        self.ends = {kind: [item[0] for item in items] for kind, items in self.items.items()}

    def find(
        self, lane: int, since: int, until: int, place: int, *, off_host: bool
    ) -> tuple[int, int] | None:
        """Return when what ended last on another lane in some time did, and the node by whose end it did; None for nothing."""
        items = self.items[off_host]
        at = bisect_right(self.ends[off_host], until) - 1
        while at >= 0 and items[at][0] > since:
            ended, other, row = items[at]
            if other != lane and self.recorded.place[row] < place:
                return ended, row
            at -= 1
        return None

    def find_tails(self) -> _Waits:
        """Return the last node of each lane that something went on after which enclosed it, and for how long."""
        recorded = self.recorded
        tails = []
        for lane in recorded.lanes:
            outer = self.outermost[lane.last]
            last = self.source.get(outer, outer)
            if recorded.back[outer] > recorded.over[last]:
                tails.append((last, recorded.back[outer] - recorded.over[last]))
        return tails
