"""The critical path through all ranks: what the latest finish waited for, back to the beginning of the run.

From the last node of the rank that finished last the path goes back to what each node waited for last (`path.gates`). A
collective is joined at its last arrival: its time counts from there, and the path goes on with what that member waited for.
A receive that waited leads to its send. Where nothing of it was under way, between what a node waited for and its start, the
path has a gap with a cause of its own. So its segments fill the time from the beginning of the run to its finish, one where
the other ends. Times of recordings are on aligned clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from studio.analysis.graph.levels import find_thread_lanes
from studio.analysis.job.kinds import COMMUNICATION, COMPUTE, COPY, CPU, MEMORY, NOTHING
from studio.analysis.job.ledger import PARTS, Ledger
from studio.analysis.job.own_time import NO_PIECES, OwnPieces
from studio.analysis.path.gates import Gates, Order, find_gates, order_of
from studio.columns import group_places, join_ranges
from studio.notebook import build_html_table, format_record
from studio.timeline import NodeTimes
from studio.trace import (
    NONE,
    Bool,
    Int64,
    NodeType,
    Trace,
    UInt8,
    are_assumed_arrivals,
    are_device_waits,
    are_idle,
)
from studio.units import format_ns

Cause = Literal[
    "compute",
    "copy",
    "collective",
    "message",
    "host",
    "launch",
    "stall",
    "waiting",
    "queueing",
    "sync",
    "before",
    "assumed",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
_CODE = {cause: code for code, cause in enumerate(CAUSES)}
_OF_KIND: Mapping[int, Cause] = {COMPUTE: "compute", COPY: "copy", MEMORY: "copy", CPU: "host"}
_OF_PART: Mapping[str, Cause] = {"host": "host", "stall": "stall", "waiting": "waiting", "bubble": "waiting"}
"""What a gap is called by what its rank did meanwhile; of other parts it was queueing behind other work."""


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The critical path of a run: the pieces of time, across ranks, that its finish consists of.

    S segments by time, one where the other ends, from 0 to the finish; R ranks.

    Attributes:
        rank: (S,) place of the rank in the trace's ranks.
        row: (S,) the node that ran, or, of a gap, that was about to; -1 for gaps after a rank's last node.
        start_ns, end_ns: (S,) after the beginning of the run, on aligned clocks; none is empty.
        cause: (S,) index into `CAUSES`.
        shift_ns: (R,) what the clock of each rank says at 0, after the beginning of the run as its ledger has it.
    """

    rank: Int64
    row: Int64
    start_ns: Int64
    end_ns: Int64
    cause: UInt8
    shift_ns: Int64

    __repr__ = format_record

    def __len__(self) -> int:
        return len(self.rank)

    def _repr_html_(self) -> str:
        """Return its time by cause."""
        rows = [(cause, format_ns(ns)) for cause, ns in self.by_cause().items()]
        return build_html_table(f"Critical path of {format_ns(self.length_ns)}", ["cause", "time"], rows)

    @property
    def length_ns(self) -> int:
        """From the beginning of the run to the latest finish."""
        return int(self.end_ns[-1]) if len(self) else 0

    @property
    def ns(self) -> Int64:
        """(S,) how long each segment is."""
        length: Int64 = self.end_ns - self.start_ns
        return length

    def by_cause(self) -> dict[Cause, int]:
        """Return how much of it each cause has, the largest first."""
        total = np.zeros(len(CAUSES), np.int64)
        np.add.at(total, self.cause, self.ns)
        order = np.argsort(-total, kind="stable").tolist()
        return {CAUSES[code]: int(total[code]) for code in order if total[code]}

    def rows_of(self, place: int) -> Int64:
        """Return the nodes of a rank that are on it, by time."""
        rows = self.row[(self.rank == place) & (self.row != NONE)]
        return np.array(list(dict.fromkeys(rows.tolist())), np.int64)


def compute_shifts(times: NodeTimes, account: Ledger, sizes: Mapping[int, int]) -> Int64:
    """Return (R,) what the clock of each rank says at 0 of the aligned time, counted as its ledger counts.

    Args:
        times: When nodes ran.
        account: Where the time of their ranks went.
        sizes: How many nodes the rank at each place with times has.
    """
    ahead = account.arrivals.ahead_ns
    if not account.is_recording or not ahead.any():
        return ahead
    begins = []
    for place in account.places.tolist():
        first = int(times.first[place])
        start = times.start_ns[first : first + sizes[place]]
        begins.append(int(start[start >= 0].min()) - int(ahead[place]))
    shift: Int64 = ahead + (min(begins) - account.origin_ns)
    return shift


class Courses:
    """The times and gates of ranks, worked out for those that are asked for; ranks with equal times share them."""

    def __init__(self, trace: Trace, times: NodeTimes, account: Ledger) -> None:
        """Take what a run is."""
        self.trace, self.times, self.account = trace, times, account
        sizes = {place: len(trace.graph_of(trace.ranks[place])) for place in account.places.tolist()}
        self.shift_ns = compute_shifts(times, account, sizes)
        self._lanes: dict[int, Int64] = {}
        self._orders: dict[int, Order] = {}
        self._gates: dict[int, Gates] = {}

    def distinct(self) -> list[tuple[int, int]]:
        """Return where the times of each course begin, and the place of a rank that has them."""
        places = self.account.places.tolist()
        return sorted({int(self.times.first[place]): place for place in reversed(places)}.items())

    def order(self, place: int) -> Order:
        """Return the order of the nodes of a rank."""
        index = self.trace.ranks[place].graph
        if index not in self._orders:
            self._orders[index] = order_of(self.trace.graphs[index])
        return self._orders[index]

    def spans(self, place: int) -> tuple[Int64, Int64]:
        """Return (N,) start and end of the nodes of a rank as its clock says; -1 where they have none.

        Recorded calls that ran themselves in pieces end with the first of these, before what they called.
        """
        first, count = int(self.times.first[place]), len(self.trace.graph_of(self.trace.ranks[place]))
        start, end = self.times.start_ns[first : first + count], self.times.end_ns[first : first + count]
        pieces = self.pieces(place)
        if len(pieces):
            end = end.copy()
            end[pieces.row] = start[pieces.row]
            begins = pieces.start_ns == start[pieces.row]
            end[pieces.row[begins]] = pieces.end_ns[begins]
        return start, end

    def pieces(self, place: int) -> OwnPieces:
        """Return when the calls of a rank ran themselves, as its clock says; none in a simulation."""
        account = self.account
        return account.pieces[self.trace.ranks[place].graph] if account.pieces else NO_PIECES

    def lanes(self, place: int) -> Int64:
        """Return (N,) the thread or stream of the nodes of a rank."""
        index = self.trace.ranks[place].graph
        if index not in self._lanes:
            self._lanes[index] = find_thread_lanes(self.trace.graphs[index])[0]
        return self._lanes[index]

    def zero(self, place: int) -> int:
        """Return what the clock of a rank says at 0."""
        return self.account.origin_ns + int(self.shift_ns[place])

    def gates(self, place: int) -> Gates:
        """Return what the nodes of a rank waited for, as its clock says."""
        key = int(self.times.first[place])
        if key not in self._gates:
            graph = self.trace.graph_of(self.trace.ranks[place])
            recorded = self.account.is_recording
            self._gates[key] = find_gates(graph, self.order(place), *self.spans(place), is_recording=recorded)
        return self._gates[key]

    def partners(self, place: int) -> tuple[Int64, Int64]:
        """Return what the nodes of a rank join at, as `Arrivals.partners`."""
        return self.account.arrivals.partners(place, len(self.trace.graph_of(self.trace.ranks[place])))


@dataclass(frozen=True, slots=True)
class _Line:
    """What the walk looks up of a rank, as lists: reading one number of an array takes five times as long.

    Attributes:
        start, end, gate: Of each node, on aligned clocks; -1 for none.
        meets: Whether other ranks take part in a node.
        meeting: Of those: when all had begun, the place of the rank to go on at, and its node; -1 for none.
        receives: Nodes that receive.
    """

    start: list[int]
    end: list[int]
    gate: list[int]
    meets: list[bool]
    meeting: dict[int, tuple[int, int, int]]
    receives: set[int]


def find_critical_path(trace: Trace, times: NodeTimes, account: Ledger) -> CriticalPath:
    """Return the critical path through all ranks, of a recording or a simulation.

    Args:
        trace: The job.
        times: When its nodes ran.
        account: Where the time of its ranks went.
    """
    courses = Courses(trace, times, account)
    nothing = np.zeros(0, np.int64)
    if not len(account):
        return CriticalPath(nothing, nothing, nothing, nothing, nothing.astype(np.uint8), courses.shift_ns)
    finish = account.finish_ns - courses.shift_ns[account.places]
    latest = int(finish.argmax())
    visits = _Walk(courses, int(account.places[latest]), int(finish[latest])).visits()
    return _explain_visits(courses, visits)


class _Walk:
    """The way back from the latest finish: the nodes visited, each with when the path comes to it and when it leaves.

    V visits, by falling time. What lies between leaving one and coming to the next is a gap before the first's start.
    """

    def __init__(self, courses: Courses, place: int, finish: int) -> None:
        self.courses = courses
        self._lines: dict[int, _Line] = {}
        self._eager = not courses.account.is_recording
        self._crossed: set[tuple[int, int]] = set()
        # After the last node of the rank nothing is known to have run.
        self._places, self._counts = [place], [1]
        self._rows, self._tops, self._bottoms = [NONE], [finish], [finish]
        line = self._get_line(place)
        start, end = courses.spans(place)
        pieces = courses.pieces(place)
        if pieces.end_ns.max(initial=NONE) > end.max():
            # A call went on after all that it had called.
            self._rows = [int(pieces.row[pieces.end_ns.argmax()])]
            end = _select_ends_before(courses, place, self._rows[0], end)
        last = np.flatnonzero(end == end.max())
        self.place, self.row = place, int(last[start[last].argmax()])
        self.now = min(line.end[self.row], finish)

    def visits(self) -> Int64:
        """Go all the way back; return (4, V) rank, row, when the path comes to the node, and when it leaves it."""
        while self.now > 0 and self.row != NONE:
            self._go_along()
            if self.now > 0 and self.row != NONE:
                self._cross()
        place = np.repeat(np.array(self._places, np.int64), self._counts)
        columns = (np.array(column, np.int64) for column in (self._rows, self._tops, self._bottoms))
        return np.stack([place, *columns])

    def _go_along(self) -> None:
        """Follow gates within a rank, up to the next node that others take part in."""
        line, now, row = self._get_line(self.place), self.now, self.row
        start, end, gate, meets = line.start, line.end, line.gate, line.meets
        rows, tops, bottoms = self._rows, self._tops, self._bottoms
        before = len(rows)
        while now > 0 and row != NONE and not meets[row]:
            rows.append(row)
            tops.append(now)
            if start[row] < now:
                now = start[row]
            bottoms.append(now)
            row = gate[row]
            if row != NONE and end[row] < now:
                now = end[row]
        self._places.append(self.place)
        self._counts.append(len(rows) - before)
        self.now, self.row = now, row

    def _cross(self) -> None:
        """Go from a node of several ranks to what it waited for, on its own rank or on the last to arrive."""
        line, row = self._get_line(self.place), self.row
        if self._joins(line, row):
            begun, place, partner_row = line.meeting[row]
            self._visit(begun)
            self.place, self.row = place, partner_row
            line, row = self._get_line(self.place), self.row
        self._visit(min(line.start[row], self.now))
        ended = _find_ready_time(line, row, self.now)
        begun = line.meeting[row][0] if row in line.meeting else NONE
        if ended < self.now and begun == line.start[row] == self.now:
            # It began with others: the one that was ready last is the one they waited for.
            for other, its in self.courses.account.arrivals.together(self.place, row):
                near = self._get_line(other)
                if near.start[its] == self.now and _find_ready_time(near, its, self.now) > ended:
                    ended = _find_ready_time(near, its, self.now)
                    self.place, self.row = other, its
            if (self.place, self.row) != (self._places[-1], self._rows[-1]):
                self._visit(self.now)
        self.row = self._get_line(self.place).gate[self.row]
        self.now = ended

    def _visit(self, bottom: int) -> None:
        self._places.append(self.place)
        self._counts.append(1)
        self._rows.append(self.row)
        self._tops.append(self.now)
        self._bottoms.append(bottom)
        self.now = bottom

    def _joins(self, line: _Line, row: int) -> bool:
        """Whether the node waited for a last arrival at a collective or message."""
        begun, partner, _ = line.meeting[row]
        # A message is on its way from the moment it is sent; a collective, and a recorded message, from the last arrival.
        waited = begun > line.start[row] or (
            self._eager and row in line.receives and line.start[row] < self.now
        )
        if partner == NONE or not waited or not 0 <= begun <= self.now:
            return False
        if begun < self.now:
            return True
        # It ended with the last arrival. Clocks a little off may say so of two that wait for each other.
        new = (self.place, row) not in self._crossed
        self._crossed.add((self.place, row))
        return new

    def _get_line(self, place: int) -> _Line:
        if place not in self._lines:
            self._lines[place] = _build_line(self.courses, place)
        return self._lines[place]


def _select_ends_before(courses: Courses, place: int, row: int, end: Int64) -> Int64:
    """Return the ends (N,) of what may have led to the last piece of a call, -1 for other nodes.

    That is what its thread did before. Where the thread was at nothing in between, it waited for what ended last on whatever lane.
    """
    pieces, lane = courses.pieces(place), courses.lanes(place)
    near = lane[pieces.row] == lane[row]
    begins = dict(zip(pieces.end_ns[near].tolist(), pieces.start_ns[near].tolist(), strict=True))
    until = began = int(pieces.start_ns[pieces.row == row].max())
    while began in begins:
        began = begins[began]
    on_thread = np.where((lane == lane[row]) & (end <= until), end, NONE)
    return on_thread if on_thread.max() >= began else np.where(end <= began, end, NONE)


def _find_ready_time(line: _Line, row: int, now: int) -> int:
    """Return when what a node waited for had ended, a moment at the latest; 0 where it waited for nothing."""
    gate = line.gate[row]
    return min(line.end[gate], now) if gate != NONE else 0


def _build_line(courses: Courses, place: int) -> _Line:
    start, end = courses.spans(place)
    is_timed, zero = start >= 0, courses.zero(place)
    meets = courses.account.arrivals.meets(place, len(start))
    rows = np.flatnonzero(meets)
    partner, partner_row = courses.partners(place)
    begun = courses.account.arrivals.begun_ns[int(courses.times.first[place]) + rows]
    met = zip(
        np.where(begun >= 0, begun - zero, NONE).tolist(),
        partner[rows].tolist(),
        partner_row[rows].tolist(),
        strict=True,
    )
    graph = courses.trace.graph_of(courses.trace.ranks[place])
    return _Line(
        np.where(is_timed, start - zero, NONE).tolist(),
        np.where(is_timed, end - zero, NONE).tolist(),
        courses.gates(place).gate.tolist(),
        meets.tolist(),
        dict(zip(rows.tolist(), met, strict=True)),
        set(np.flatnonzero(graph.type == NodeType.COMM_RECV).tolist()),
    )


def _explain_visits(courses: Courses, visits: Int64) -> CriticalPath:
    """Return the path with causes; gaps, and time for which a stream stalled, are cut where their rank did something else."""
    rank, row, top, bottom = visits[:, ::-1]
    # A gap ends where its node begins; visits are by rising time here.
    reached = np.append(0, top[:-1])
    cause = np.full(len(rank), _CODE["stall"], np.int64)
    kinds = courses.account.kinds
    given, stalled = np.zeros(len(rank), np.bool_), np.zeros(len(rank), np.bool_)
    for place, places in group_places(rank):
        own_visits = places[row[places] != NONE]
        index, first = courses.trace.ranks[place].graph, int(courses.times.first[place])
        graph, kind = courses.trace.graphs[index], kinds[index]
        of = kind[row[own_visits]]
        for code, name in _OF_KIND.items():
            cause[own_visits[of == code]] = _CODE[name]
        talks = of == COMMUNICATION
        # Kernels of communication libraries of which nothing else is known are nodes of another type.
        is_message = np.isin(graph.type[row[own_visits]], (NodeType.COMM_SEND, NodeType.COMM_RECV))
        cause[own_visits[are_device_waits(graph)[row[own_visits]]]] = _CODE["sync"]
        cause[own_visits[are_assumed_arrivals(graph)[row[own_visits]]]] = _CODE["assumed"]
        stalled[own_visits] = are_idle(graph)[row[own_visits]] & (of == NOTHING)
        cause[own_visits[talks]] = np.where(is_message[talks], _CODE["message"], _CODE["collective"])
        begun = courses.account.arrivals.begun_ns[first + row[own_visits]] - courses.zero(place)
        cause[own_visits[talks & (begun >= top[own_visits])]] = _CODE["waiting"]
        gate = courses.gates(place).gate[row[own_visits]]
        given[own_visits] = (gate != NONE) & (kind[gate] == CPU) & np.isin(of, (COMPUTE, COPY, COMMUNICATION))
    solid, gap = top > bottom, bottom > reached
    # That one stream stood idle does not say that its rank did.
    held, ran = solid & stalled, solid & ~stalled
    spent = np.stack([column[ran] for column in (rank, row, bottom, top, cause)])
    before = np.stack([column[gap] for column in (rank, row, reached, bottom)])
    within = np.stack([column[held] for column in (rank, row, bottom, top)])
    gaps = np.concatenate([before, within], axis=1)
    ran_on, gaps, given = _take_calls(courses, gaps, np.append(given[gap], given[held]))
    every = np.concatenate([spent, ran_on, _cut_gaps(courses, gaps, given)], axis=1)
    every = every[:, np.argsort(every[2], kind="stable")]
    joined = _merge(every)
    _check(joined)
    rank, row, start, end, cause = joined
    return CriticalPath(rank, row, start, end, cause.astype(np.uint8), courses.shift_ns)


def _take_calls(courses: Courses, gaps: Int64, given: Bool) -> tuple[Int64, Int64, Bool]:
    """Take out of gaps what calls did themselves meanwhile on the threads of what was about to run.

    Args:
        courses: The ranks.
        gaps: (4, G) rank, row, start and end.
        given: (G,) see `_cut_gaps`.

    Returns:
        (5, P) the pieces of these calls, as `_cut_gaps`; and what is left of the gaps, with `given`.
    """
    if not any(map(len, courses.account.pieces)):
        return np.zeros((5, 0), np.int64), gaps, given
    taken, left, left_given = [np.zeros((5, 0), np.int64)], [], []
    for place, places in group_places(gaps[0]):
        pieces, lanes, zero = courses.pieces(place), courses.lanes(place), courses.zero(place)
        kind = courses.account.kinds[courses.trace.ranks[place].graph][pieces.row]
        names = np.full(int(kind.max(initial=0)) + 1, NONE)
        for code, name in _OF_KIND.items():
            names[code : code + 1] = _CODE[name]
        lane_of, cause = lanes[pieces.row], names[kind]
        gap_lane = np.where(gaps[1, places] == NONE, NONE, lanes[gaps[1, places]])
        for lane, of_lane in group_places(gap_lane):
            at = places[of_lane]
            own = np.flatnonzero((lane_of == lane) & (lane != NONE) & (cause != NONE))
            own = own[np.argsort(pieces.start_ns[own], kind="stable")]
            since, until = pieces.start_ns[own] - zero, np.maximum.accumulate(pieces.end_ns[own] - zero)
            since = np.maximum(since, np.append(since[:1], until[:-1]))
            start, end = gaps[2:, at]
            low = np.searchsorted(until, start, side="right")
            count = np.maximum(np.searchsorted(since, end, side="left") - low, 0)
            # A gap has as many pieces taken out, and one part more than that left.
            of = np.repeat(np.arange(len(at)), count)
            which = join_ranges(low, count)
            begin, close = np.maximum(since[which], start[of]), np.minimum(until[which], end[of])
            rows = pieces.row[own[which]]
            taken.append(np.stack([gaps[0, at[of]], rows, begin, close, cause[own[which]]]))
            edge = np.cumsum(count + 1)
            after = np.arange(len(of)) + of
            part = np.repeat(np.arange(len(at)), count + 1)
            begins, closes = np.empty(len(part), np.int64), np.empty(len(part), np.int64)
            begins[edge - count - 1], closes[edge - 1] = start, end
            begins[after + 1], closes[after] = close, begin
            kept = closes > begins
            part = at[part[kept]]
            left.append(np.stack([gaps[0, part], gaps[1, part], begins[kept], closes[kept]]))
            left_given.append(given[part])
    ran_on = np.concatenate(taken, axis=1)
    ran_on = ran_on[:, ran_on[3] > ran_on[2]]
    if not left:
        return ran_on, gaps, given
    return ran_on, np.concatenate(left, axis=1), np.concatenate(left_given)


def _cut_gaps(courses: Courses, gaps: Int64, given: Bool) -> Int64:
    """Return (5, P) gaps cut where what their rank did changes: rank, row, start, end, cause.

    Args:
        courses: The ranks.
        gaps: (4, G) rank, row, start and end.
        given: (G,) whether the gap lies between giving a device its work and the beginning of that.
    """
    account, (rank, row, start, end) = courses.account, gaps
    line_of = np.full(len(courses.trace.ranks), NONE, np.int64)
    line_of[account.places] = np.arange(len(account))
    course, shift = account.course[line_of[rank]], courses.shift_ns[rank]
    low = np.maximum(account.stretches.place(course, start + shift), account.stretches.bounds[course])
    high = np.maximum(account.stretches.place(course, end + shift - 1), low)
    count = high - low + 1
    of = np.repeat(np.arange(len(rank)), count)
    at = join_ranges(low, count)
    inside = at < account.stretches.bounds[course[of] + 1]
    part = np.where(inside, account.stretches.kind[np.minimum(at, len(account.stretches.kind) - 1)], 0)
    # The first and last piece reach to the ends of the gap, which may begin before the rank's own time does.
    first = np.append(True, of[1:] != of[:-1])[: len(of)]
    last = np.append(first[1:], True)[: len(of)]
    begin = np.where(first, start[of], account.stretches.start[at] - shift[of])
    until = np.where(last, end[of], account.stretches.end[at] - shift[of])
    names = np.array([_CODE[_OF_PART.get(part, "queueing")] for part in PARTS])
    cause = names[part]
    launched = given[of] & np.isin(cause, (_CODE["host"], _CODE["stall"]))
    cause = np.where(launched, _CODE["launch"], cause)
    # Nothing is known of a rank before its recording begins, not even that it stalled.
    early = account.stretches.start[at] < account.before_ns[line_of[rank[of]]]
    cause = np.where(inside & early, _CODE["before"], cause)
    return np.stack([rank[of], row[of], begin, until, cause])


def _merge(pieces: Int64) -> Int64:
    """Return segments with neighbours of one node and cause made one."""
    if not pieces.shape[1]:
        return pieces
    differs = pieces[1, 1:] != pieces[1, :-1]
    for column in (pieces[0], pieces[4]):
        differs |= column[1:] != column[:-1]
    first = np.flatnonzero(np.append(True, differs))
    if len(first) == pieces.shape[1]:
        return pieces
    joined = pieces[:, first]
    joined[3] = pieces[3, np.append(first[1:], pieces.shape[1]) - 1]
    return joined


def _check(segments: Int64) -> None:
    assert not segments.shape[1] or segments[2, 0] == 0, "the path begins with the run"
    assert (segments[2, 1:] == segments[3, :-1]).all(), "one segment ends where the next begins"
    assert (segments[3] > segments[2]).all(), "no segment is empty"
