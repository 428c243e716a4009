"""The critical path through all ranks: what the latest finish waited for, back to the beginning of the run.

From the last node of the rank that finished last the path goes back to what each node waited for last (`path.gates`). A
collective is joined at its last arrival: its time counts from there, and the path goes on with what that member waited for.
A receive that waited leads to its send. Where nothing of it was under way, between what a node waited for and its start, the
path has a gap with a cause of its own. So its segments fill the time from the beginning of the run to its finish, one where
the other ends. Times of recordings are on aligned clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.ledger import Ledger
from studio.analysis.path.courses import Courses
from studio.analysis.path.segments import CriticalPath, explain_visits
from studio.timeline import NodeTimes
from studio.trace import NONE, Int64, NodeType, Trace


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
    return explain_visits(courses, visits)


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
