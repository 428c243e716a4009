"""How busy each row of a timeline is at any zoom: exact fractions of bins, or single spans where few.

A lane whose spans overlap is spread over several *tracks*, in each of which one span follows the other. Then the time
a track was busy up to any moment is one lookup in a running sum, and the busy fraction of a bin is the difference of
two: exact at every zoom, without bins stored for each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from studio.analysis.job.kinds import computes_on_processor, is_library_kernel, runs_on_processor
from studio.distinct import find_distinct
from studio.timeline import LaneKind, Timeline
from studio.trace import Bool, Int64, NodeType, Trace, UInt8, are_copies, are_idle

Float64 = NDArray[np.float64]

TRACKS_AT_MOST = 12
"""Tracks a lane is spread over. What overlaps more deeply shares the last one."""


WAITING = 16
"""Added to a category: the part of its spans before all that take part had begun. Of messages that is idle."""


class Category(IntEnum):
    """The colour category of a span."""

    COMPUTE = 0
    COLLECTIVE = 1
    SEND = 2
    RECEIVE = 3
    MEMORY = 4
    HOST = 5
    COPY = 6
    GAP = 7


_OF_TYPE = {
    NodeType.MEM_LOAD: Category.MEMORY,
    NodeType.MEM_STORE: Category.MEMORY,
    NodeType.COMP: Category.COMPUTE,
    NodeType.COMM_SEND: Category.SEND,
    NodeType.COMM_RECV: Category.RECEIVE,
    NodeType.COMM_COLL: Category.COLLECTIVE,
}
_HOST_LANES: tuple[LaneKind, ...] = ("cpu", "thread")


def classify_spans(timeline: Timeline, trace: Trace) -> UInt8:
    """Return (S,) the `Category` of each span: that of its node's shown type, `HOST` for all in a CPU lane.

    Where a job runs on its processor, what its operators take in such lanes is compute.
    """
    codes = np.empty(len(timeline), np.uint8)
    table = np.full(256, Category.HOST, np.uint8)
    for kind, category in _OF_TYPE.items():
        table[kind] = category
    numbers = {rank.number: rank.graph for rank in trace.ranks}
    kinds = [table[np.clip(graph.type, 0, 255)] for graph in trace.graphs]
    for graph, of_graph in zip(trace.graphs, kinds, strict=True):
        of_graph[are_copies(graph)] = Category.COPY
        of_graph[are_idle(graph)] = Category.GAP
        of_graph[is_library_kernel(graph)] = Category.COLLECTIVE
    on_host = [np.full(len(graph), Category.HOST, np.uint8) for graph in trace.graphs]
    if runs_on_processor(trace):
        for graph, of_graph in zip(trace.graphs, on_host, strict=True):
            of_graph[computes_on_processor(graph)] = Category.COMPUTE
            of_graph[is_library_kernel(graph)] = Category.COLLECTIVE
    bounds = np.searchsorted(timeline.lane, np.arange(len(timeline.lanes) + 1))
    for index, lane in enumerate(timeline.lanes):
        part = slice(int(bounds[index]), int(bounds[index + 1]))
        if lane.kind in _HOST_LANES:
            codes[part] = on_host[numbers[lane.rank]][timeline.row[part]]
        else:
            codes[part] = kinds[numbers[lane.rank]][timeline.row[part]]
    return codes


@dataclass(frozen=True, slots=True)
class Bins:
    """How busy a track is in equal bins of time.

    C categories that occur in it, B bins.

    Attributes:
        category: (C,) a `Category` each, or one with `WAITING` added. Collectives include their waiting, messages do not.
        fraction: (C, B) the part of each bin that spans of the category cover, 0 to 1.
        begun: (B,) nodes that begin in the bin.
    """

    category: UInt8
    fraction: Float64
    begun: Int64


@dataclass(frozen=True, slots=True)
class _Strip:
    """Spans of one category in a track, overlaps merged.

    Attributes:
        start, end: (N,) disjoint and rising.
        before: (N,) time covered before each of them begins.
    """

    start: Int64
    end: Int64
    before: Int64

    def sum_covered(self, until: Int64) -> Int64:
        """Return the time covered before each moment of `until`."""
        index = np.searchsorted(self.start, until, side="right") - 1
        inside = np.minimum(until, self.end[index]) - self.start[index]
        return np.where(index < 0, 0, self.before[index] + inside)


class Coverage:
    """The spans of a timeline by track. Safe to share between threads.

    S spans, T tracks, sorted by (lane, level).

    Attributes:
        lane: (T,) index of the lane a track belongs to.
        level: (T,) its number among the tracks of the lane.
        bounds: (T+1,) track t holds spans bounds[t]:bounds[t+1], rising by start.
        row, start_ns, end_ns, category: (S,) the spans, as in the timeline but in the order of tracks.
        goes_on: (S,) which spans go on with a node that an earlier one began, as recorded calls do; None where none does.
    """

    def __init__(
        self,
        timeline: Timeline,
        category: UInt8,
        waits: Callable[[], Int64] | None = None,
        goes_on: Bool | None = None,
    ) -> None:
        level = _assign_tracks(timeline)
        key = timeline.lane * TRACKS_AT_MOST + level
        self._find_waits = waits
        self._order: Int64 | None = None
        if level.any():
            order = np.argsort(key, kind="stable")  # spans of a lane are sorted by start already
            key, category, self._order = key[order], category[order], order
            goes_on = None if goes_on is None else goes_on[order]
            self.row, self.start_ns, self.end_ns = (
                column[order] for column in (timeline.row, timeline.start_ns, timeline.end_ns)
            )
        else:
            self.row, self.start_ns, self.end_ns = timeline.row, timeline.start_ns, timeline.end_ns
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
        self.lane, self.level = np.divmod(key[first], TRACKS_AT_MOST)
        self.bounds = np.append(first, len(key))
        self.category, self.goes_on = category, goes_on
        self._overlaps = self.level == TRACKS_AT_MOST - 1
        self._strips: dict[int, list[tuple[int, _Strip]]] = {}

    def __len__(self) -> int:
        return len(self.lane)

    @cached_property
    def waits_ns(self) -> Int64:
        """(S,) how long each span waited from its start for others to begin; 0 for what waits for nobody."""
        if self._find_waits is None:
            return np.zeros(len(self.row), np.int64)
        waits = self._find_waits()
        return waits if self._order is None else waits[self._order]

    def nodes(self) -> Int64:
        """Return (T,) how many nodes begin in each track."""
        spans = np.diff(self.bounds)
        if self.goes_on is None:
            return spans
        return np.asarray(np.diff(self._begun[self.bounds]), np.int64)

    @cached_property
    def _begun(self) -> Int64:
        """(S+1,) how many nodes begin before each span."""
        assert self.goes_on is not None, "asked for only where some go on"
        return np.append(0, np.cumsum(~self.goes_on))

    def first_places(self, low: int, high: int) -> Int64:
        """Return the indices between two of spans with which nodes begin."""
        if self.goes_on is None:
            return np.arange(low, high)
        return low + np.flatnonzero(~self.goes_on[low:high])

    def spans(self, track: int, start_ns: int, end_ns: int) -> Int64:
        """Return the indices of a track's spans that overlap a window, whose end is excluded."""
        low, high = int(self.bounds[track]), int(self.bounds[track + 1])
        starts, ends = self.start_ns[low:high], self.end_ns[low:high]
        stop = int(np.searchsorted(starts, end_ns))
        begun = int(np.searchsorted(starts, start_ns))
        if self._overlaps[track]:
            running = np.flatnonzero(ends[:begun] > start_ns)  # only here may a span outlast the next
            return np.concatenate((running, np.arange(begun, stop))) + low
        return np.arange(min(int(np.searchsorted(ends, start_ns, side="right")), begun), stop) + low

    def bins(self, track: int, start_ns: int, width_ns: int, count: int) -> Bins:
        """Return how busy a track is in `count` bins of `width_ns` from `start_ns` on."""
        edges = start_ns + width_ns * np.arange(count + 1)
        strips = self._get_strips(track)
        fractions = [np.diff(strip.sum_covered(edges)) / width_ns for _, strip in strips]
        starts = self.start_ns[self.bounds[track] : self.bounds[track + 1]]
        begun = np.searchsorted(starts, edges)
        if self.goes_on is not None:
            begun = self._begun[self.bounds[track] + begun]
        begun = np.diff(begun)
        used = [index for index, fraction in enumerate(fractions) if fraction.any()]
        return Bins(
            np.array([strips[index][0] for index in used], np.uint8),
            np.array([fractions[index] for index in used]).reshape(len(used), count),
            begun,
        )

    def at(self, track: int, time_ns: int, within_ns: int) -> int:
        """Return the index of the span under `time_ns`, else of the longest within reach; -1 for none."""
        spans = self.spans(track, time_ns - within_ns, time_ns + within_ns + 1)
        if not len(spans):
            return -1
        start, end = self.start_ns[spans], self.end_ns[spans]
        under = (start <= time_ns) & (time_ns < end)
        return int(spans[np.argmax(np.where(under, np.iinfo(np.int64).max, end - start))])

    def _get_strips(self, track: int) -> list[tuple[int, _Strip]]:
        known = self._strips.get(track)
        if known is None:
            part = slice(int(self.bounds[track]), int(self.bounds[track + 1]))
            kinds, start, end = self.category[part], self.start_ns[part], self.end_ns[part]
            begun = start + self.waits_ns[part]
            known = []
            for kind in find_distinct(kinds).tolist():
                is_kind = kinds == kind
                since = begun if kind in (Category.SEND, Category.RECEIVE) else start
                known.append((kind, _strip(since[is_kind], end[is_kind])))
                if (begun[is_kind] > start[is_kind]).any():
                    known.append((kind + WAITING, _strip(start[is_kind], begun[is_kind])))
            self._strips[track] = known
        return known


class GivenTracks(Coverage):
    """A coverage of tracks in which spans may overlap."""

    def __init__(
        self,
        bounds: Int64,
        spans: Int64,
        waits: Callable[[], Int64] | None = None,
        goes_on: Bool | None = None,
    ) -> None:
        """Use the given tracks.

        Args:
            bounds: (T+1,) track t holds spans bounds[t]:bounds[t+1], rising by start.
            spans: (4, S) row, start, end and category of the spans.
            waits: Works out (S,) how long each span waited for others to begin, once that is asked for.
            goes_on: (S,) which of them go on with a node; None where none does.
        """
        self.goes_on = goes_on
        self.bounds = bounds
        self.lane, self.level = np.arange(len(bounds) - 1), np.zeros(len(bounds) - 1, np.int64)
        self.row, self.start_ns, self.end_ns, category = spans
        self.category = category.astype(np.uint8)
        self._find_waits, self._order = waits, None
        self._overlaps = np.ones(len(bounds) - 1, bool)
        self._strips = {}


def _strip(start: Int64, end: Int64) -> _Strip:
    if (start[1:] < start[:-1]).any():  # what waited began in another order
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    start = np.maximum(start, np.append(start[:1], reach[:-1]))
    end = np.maximum(end, start)
    length = end - start
    return _Strip(start, end, np.cumsum(length) - length)


def _assign_tracks(timeline: Timeline) -> Int64:
    """Return (S,) the track of its lane for each span: the lowest that is free when it starts."""
    level = np.zeros(len(timeline), np.int64)
    alone = _stands_alone(timeline)
    crowd = np.flatnonzero(~alone)
    lanes, starts, ends = (
        column[crowd].tolist() for column in (timeline.lane, timeline.start_ns, timeline.end_ns)
    )
    tracks: list[int] = []
    lane, used = -1, 0
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for span_lane, start, end in zip(lanes, starts, ends, strict=True):
        if span_lane != lane:
            lane, used, free, busy = span_lane, 0, [], []
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            chosen = heapq.heappop(free)
        elif used < TRACKS_AT_MOST - 1:
            chosen, used = used, used + 1
        else:
            tracks.append(TRACKS_AT_MOST - 1)
            continue
        tracks.append(chosen)
        heapq.heappush(busy, (end, chosen))
    level[crowd] = tracks
    return level


def _stands_alone(timeline: Timeline) -> Bool:
    """Return (S,) whether no other span of the lane overlaps the span."""
    alone = np.ones(len(timeline), bool)
    lane, start, end = timeline.lane, timeline.start_ns, timeline.end_ns
    touching = (lane[1:] == lane[:-1]) & (start[1:] < end[:-1])
    for index in find_distinct(lane[1:][touching]).tolist():
        part = timeline.of_lane(index)
        reach = np.maximum.accumulate(end[part])
        joins = np.append(False, start[part][1:] < reach[:-1])
        alone[part] = ~(joins | np.append(joins[1:], False))
    return alone
