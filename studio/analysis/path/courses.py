"""When the nodes of ranks ran and what each waited for last, on the clocks of one run: what paths and slack go along."""

from __future__ import annotations

from collections.abc import Mapping

from studio.analysis.graph.levels import find_thread_lanes
from studio.analysis.job.ledger import Ledger
from studio.analysis.job.own_time import NO_PIECES, OwnPieces
from studio.analysis.path.gates import Gates, Order, find_gates, order_of
from studio.timeline import NodeTimes
from studio.trace import Int64, Trace


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
