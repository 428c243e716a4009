"""Show another run of the job in the lanes of this one, and how much each node differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.job.ledger import Ledger
from studio.analysis.timeline.calls import GraphCalls, spread_pieces
from studio.analysis.timeline.coverage import GivenTracks
from studio.analysis.timeline.gantt import Gantt
from studio.timeline import NodeTimes
from studio.trace import NONE, Int64


class Ghost(Gantt):
    """The rows of a Gantt with the times of another run."""

    def __init__(
        self,
        gantt: Gantt,
        times: NodeTimes,
        *,
        origin_ns: int = 0,
        account: Callable[[], Ledger] | None = None,
        calls: Sequence[GraphCalls] = (),
    ) -> None:
        """Put the other run's spans into the rows of the nodes in this one.

        Args:
            gantt: Whose rows it has.
            times: When nodes ran in the other run. Those that have no time there, or none here, are left out.
            origin_ns: What to count from.
            account: Works out where the time of the other run's ranks went, which tells what waited; None where nothing does.
            calls: Those of each graph where the other run is a recording, which are drawn in pieces.
        """
        self.calls = tuple(calls)
        self.trace, self.origin_ns = gantt.trace, origin_ns
        self._numbers = {rank.number: rank for rank in self.trace.ranks}
        self._source = {number: number for number in self._numbers}
        self.rows = replace(gantt.rows, track=np.arange(len(gantt.rows)))
        place = {number: index for index, number in enumerate(self._numbers)}
        parts = [np.zeros((5, 0), np.int64)]
        bounds = np.zeros(len(self.rows) + 1, np.int64)
        for row, number in enumerate(self.rows.rank.tolist()):
            of_graph = self.calls[self._numbers[number].graph] if self.calls else None
            spans = _list_other_spans(gantt, row, int(times.first[place[number]]), times, of_graph)
            parts.append(spans)
            bounds[row + 1] = bounds[row] + spans.shape[1]
        every = np.concatenate(parts, axis=1)
        ranks = np.array([place[number] for number in self.rows.rank.tolist()], np.int64)
        of = np.repeat(ranks, np.diff(bounds))
        waits = None if account is None else lambda: _compute_waits(account(), of, every)
        goes_on = every[4] > 0
        self.coverage = GivenTracks(bounds, every[:4], waits, goes_on if goes_on.any() else None)
        self.span_ns = max(int(self.coverage.end_ns.max(initial=origin_ns)) - origin_ns, 1)
        self._index()


def _compute_waits(account: Ledger, rank: Int64, spans: Int64) -> Int64:
    """Return (S,) how long each span waited from its start for others to begin."""
    node, start, end, *_ = spans
    begun = account.begun_ns[account.first[rank] + node]
    waits: Int64 = np.clip(begun, start, end) - start
    return waits


def _list_other_spans(
    gantt: Gantt, row: int, first: int, times: NodeTimes, calls: GraphCalls | None
) -> Int64:
    """Return (5, S) node, start, end, category, and which piece of its node, of a row's spans by the other run's times, sorted by start."""
    here = gantt.first_places(row)
    node = gantt.coverage.row[here]
    if first == NONE:
        return np.zeros((5, 0), np.int64)
    start, end = times.start_ns[first + node], times.end_ns[first + node]
    spans = np.stack([node, start, end, gantt.coverage.category[here], np.zeros(len(here), np.int64)])
    spans = spans[:, start >= 0]
    if calls is not None and len(calls.pieces):
        spans = _cut_spans(spans, calls)
    return spans[:, np.argsort(spans[1], kind="stable")]


def _cut_spans(spans: Int64, calls: GraphCalls) -> Int64:
    """Return spans as `_list_other_spans` does, with one for each piece of a call."""
    low, high = calls.bounds(spans[0])
    span, nth, is_cut, piece = spread_pieces(low, high - low)
    cut: Int64 = spans[:, span]
    cut[1, is_cut], cut[2, is_cut], cut[4] = calls.pieces.start_ns[piece], calls.pieces.end_ns[piece], nth
    return cut


@dataclass(frozen=True, slots=True)
class Differences:
    """Durations of nodes in both runs, the largest difference first.

    N nodes.

    Attributes:
        rank: (N,) number of the rank.
        node: (N,) row of the rank's graph.
        start_ns, other_start_ns: (N,) when it was issued, after the beginning of either run.
        time_ns, other_ns: (N,) how long it took itself.
    """

    rank: Int64
    node: Int64
    start_ns: Int64
    other_start_ns: Int64
    time_ns: Int64
    other_ns: Int64

    def __len__(self) -> int:
        return len(self.rank)


def find_differences(gantt: Gantt, other: Gantt, window: tuple[int, int]) -> Differences:
    """Compare the nodes that overlap a window with the same nodes in another run.

    Args:
        gantt: A run.
        other: Its ghost.
        window: Start and end in ns, after the beginning of `gantt`.
    """
    start_ns, end_ns = (time + gantt.origin_ns for time in window)
    parts = [np.zeros((6, 0), np.int64)]
    for rank in gantt.trace.ranks:
        other_places = other.places(rank)
        for row in gantt.rows_of(rank):
            track = int(gantt.rows.track[row])
            here = gantt.pick_nodes(gantt.coverage.spans(track, start_ns, end_ns))
            node = gantt.coverage.row[here]
            match = other_places[node].astype(np.int64)
            here, node, match = (part[match != NONE] for part in (here, node, match))
            times, others = gantt.times_of(rank, here), other.times_of(rank, match)
            parts.append(
                np.stack([
                    np.full(len(here), rank.number), node, times.start_ns, others.start_ns, times.own_ns, others.own_ns,
                ])
            )  # fmt: skip
    table = np.concatenate(parts, axis=1)
    table = table[:, np.lexsort((table[1], table[0], -np.abs(table[4] - table[5])))]
    return Differences(*table)
