"""The model of the Timeline: rows to draw, and tiles of them at any zoom.

A piece, a *tile*, is `TILE_BINS` bins of 2^level ns for some rows. Where a row has few spans in a tile they come one by
one, else as bins that say how busy it was. What a browser holds and draws depends on the size of its window alone, not
on the length of the run or the number of ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from studio.analysis.collectives.matching import GroupMatching, match_by_name
from studio.analysis.collectives.messages import Messages, match_messages
from studio.analysis.graph.neighbours import Adjacency, build_adjacency, list_predecessors, list_successors
from studio.analysis.job.accounting import build_recorded_ledger
from studio.analysis.job.ledger import Ledger
from studio.analysis.timeline.calls import GraphCalls, cut_calls
from studio.analysis.timeline.coverage import TRACKS_AT_MOST, Category, Coverage, Float64, classify_spans
from studio.analysis.timeline.host_waits import with_host_waits
from studio.columns import join_columns
from studio.errors import TraceError
from studio.timeline import LANE_KINDS, Lane, LaneKind, Timeline
from studio.trace import NONE, Int32, Int64, Rank, Trace, UInt8, group_slots, read_dense_column

TILE_BINS = 1024
BARS_AT_MOST = 256
"""Spans of a row in a tile that are sent one by one: more would be narrower than four bins on average."""
LEVEL_AT_MOST = 52
_DEPENDENCIES_AT_MOST = 200
_SHOWN: tuple[LaneKind, ...] = ("compute", "stream", "communication", "memory", "cpu", "thread")
"""Lanes of a rank from the top: what the accelerator does stands first."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a Gantt.

    R rows, by rank, and within one as `_SHOWN` has the kinds.

    Attributes:
        rank: (R,) number of the rank.
        track: (R,) track of the coverage; ranks that one was simulated for share its tracks.
        kind: (R,) index into `LANE_KINDS`.
        level: (R,) number among the rows of the same lane.
        name: (R,) index into `names`.
        names: Names of lanes, in words where a communication lane has no comm group; untrusted text.
    """

    rank: Int64
    track: Int64
    kind: UInt8
    level: UInt8
    name: Int32
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True, slots=True)
class Tile:
    """A window of some rows.

    P rows asked for, S spans, C strips, D rows that come as bins, B bins a tile.

    Attributes:
        bars: (P+1,) row i of those asked for holds the spans bars[i]:bars[i+1].
        start, end: (S,) of each span in ns after the tile's beginning; both may lie outside of it.
        node: (S,) row of the rank's graph.
        name: (S,) index into `names`.
        bytes: (S,) payload of communication, 0 for others.
        waits: (S,) how long it waited from its start for others to begin, or for the device, in ns, at most its own length.
        category: (S,) a `Category`.
        binned: (D,) which of the rows asked for come as bins ...
        begun: (D, B) ... and how many nodes begin in each.
        strip: (C,) index into `binned`.
        strip_category: (C,) a `Category`, or one with `WAITING` added.
        fraction: (C, B) how much of the bin spans of the category cover: 0 none, 255 all; what is not nothing
            is at least 1.
        names: Names of nodes; untrusted text.
        calls: Which of the spans are of recorded calls; None where the timeline has none.
    """

    bars: Int32
    start: Float64
    end: Float64
    node: Int32
    name: Int32
    bytes: Float64
    waits: Float64
    category: UInt8
    binned: Int32
    begun: Int32
    strip: Int32
    strip_category: UInt8
    fraction: UInt8
    names: tuple[str, ...]
    calls: TileCalls | None = None


@dataclass(frozen=True, slots=True)
class TileCalls:
    """The spans of a tile that are of recorded calls.

    K spans, of which several may be pieces of one call.

    Attributes:
        call: (K,) which of the tile's spans.
        call_start, call_end: (K,) when the call began and was over, in ns after the tile's beginning.
        call_own: (K,) what of that was its own, in ns.
        call_pieces: (K,) in how many spans it is drawn.
    """

    call: Int32
    call_start: Float64
    call_end: Float64
    call_own: Float64
    call_pieces: Int32


@dataclass(frozen=True, slots=True)
class Bar:
    """A node and where it is drawn.

    Attributes:
        rank: Number of its rank.
        node: Row of the rank's graph.
        row: Index into the rows: of its first span, or of that which was asked for.
        start_ns, end_ns: Issue and callback, after the beginning of the timeline; a recorded call is over when it returns.
        waits_ns: How long it waited from its start for others to begin, or for the device.
        own_ns: Its own time where that is not all from start to end, as of recorded calls; else None.
    """

    rank: Rank
    node: int
    row: int
    start_ns: int
    end_ns: int
    waits_ns: int = 0
    own_ns: int | None = None

    @property
    def time_ns(self) -> int:
        """How long it took itself."""
        return self.end_ns - self.start_ns if self.own_ns is None else self.own_ns


@dataclass(frozen=True, slots=True)
class SpanTimes:
    """When the nodes of spans ran, and for how long themselves.

    S spans.

    Attributes:
        start_ns, end_ns: (S,) as in `Coverage`, but of recorded calls when they began and returned.
        own_ns: (S,) what of that was their own time: all of it, but for recorded calls.
    """

    start_ns: Int64
    end_ns: Int64
    own_ns: Int64


class Gantt:
    """A timeline ready to be drawn. Safe to share between threads.

    Attributes:
        trace: The job.
        origin_ns: What the browser counts from.
        span_ns: Until the last end, or the last finish; at least 1.
        rows: What there is to draw.
        finish_ns: (number of ranks,) when each rank of the trace that has spans was over, after the origin.
    """

    def __init__(
        self,
        trace: Trace,
        timeline: Timeline,
        *,
        origin_ns: int = 0,
        stands_for: Sequence[int] | None = None,
        account: Callable[[], Ledger] | None = None,
        calls: Sequence[GraphCalls] = (),
    ) -> None:
        """Sort the spans into rows.

        Args:
            trace: The job.
            timeline: When its nodes ran, of all ranks or of some that stand for the others.
            origin_ns: What to count from.
            stands_for: For each rank of the trace the number of the rank of the timeline that stands for it.
            account: Works out where the time of its ranks went, once that is asked for; by default as of a recording.
            calls: Recorded calls of each graph, which are drawn in pieces; () where there are none.
        """
        self.trace = trace
        self.origin_ns = origin_ns
        self.calls = tuple(calls)
        known = tuple(of_graph.pieces for of_graph in calls) or None
        self._find_account = account or (
            lambda: build_recorded_ledger(trace, timeline, origin_ns, pieces=known)
        )
        shown, host_waits, goes_on = cut_calls(trace, *with_host_waits(trace, timeline, calls), calls)
        self.coverage = Coverage(
            shown,
            classify_spans(shown, trace),
            lambda: _compute_waits(trace, shown, self.account) + host_waits,
            goes_on,
        )
        self.span_ns = max(int(shown.end_ns.max(initial=origin_ns)) - origin_ns, 1)
        self._lanes = timeline.lanes
        self._numbers = {rank.number: rank for rank in trace.ranks}
        numbers = [rank.number for rank in trace.ranks]
        self._source = dict(zip(numbers, stands_for or numbers, strict=True))
        self.rows = self._make_rows()
        self._index()
        self.finish_ns = self._compute_finishes()
        self.span_ns = max(self.span_ns, int(self.finish_ns.max(initial=0)))

    def _index(self) -> None:
        """Prepare lookups of ranks, rows and nodes."""
        self._first_row = {number: row for row, number in reversed(list(enumerate(self.rows.rank.tolist())))}
        self._lock = threading.Lock()
        self._sizes: dict[int, Int64] = {}
        self._known_places: dict[int, Int32] = {}
        self._adjacencies: dict[int, Adjacency] = {}
        # Ranks that one stands for have their tracks in the same order, so a track has one place within them all.
        first = np.array([self._first_row[number] for number in self.rows.rank.tolist()], np.int64)
        self._below = np.zeros(len(self.coverage), np.int64)
        self._below[self.rows.track] = np.arange(len(self.rows)) - first

    def __len__(self) -> int:
        """Nodes of all ranks; those of a representative rank count once for each rank it stands for."""
        return int(self.coverage.nodes()[self.rows.track].sum())

    def _make_rows(self) -> Rows:
        tracks: dict[int, list[int]] = {}
        for track, lane in enumerate(self.coverage.lane.tolist()):
            tracks.setdefault(self._lanes[lane].rank, []).append(track)
        for rank_tracks in tracks.values():
            rank_tracks.sort(key=lambda track: _build_sort_key(self._lanes[self.coverage.lane[track]]))
        table: list[tuple[int, int, int, int, int]] = []
        names: dict[str, int] = {}
        slots: dict[int, int] = {}
        for rank in self.trace.ranks:
            for track in tracks.get(self._source[rank.number], ()):
                lane = self._lanes[self.coverage.lane[track]]
                name = names.setdefault(self._name_lane(rank, lane, track, slots), len(names))
                level = int(self.coverage.level[track])
                table.append((rank.number, track, LANE_KINDS.index(lane.kind), level, name))
        columns = np.array(table, np.int64).reshape(-1, 5).T
        kind, level8, name32 = columns[2].astype(np.uint8), columns[3].astype(np.uint8), columns[4]
        return Rows(columns[0], columns[1], kind, level8, name32.astype(np.int32), tuple(names))

    def _name_lane(self, rank: Rank, lane: Lane, track: int, slots: dict[int, int]) -> str:
        """Return the name of a lane on a rank, with the rank's own comm group."""
        if lane.kind == "communication" and not lane.name:
            return self._describe_groupless(int(self.coverage.lane[track]))
        if lane.rank == rank.number or lane.kind != "communication":
            return lane.name
        if track not in slots:
            node = self.coverage.row[self.coverage.bounds[track]]
            slots[track] = int(group_slots(self.trace.graph_of(rank))[node])
        return lane.name if slots[track] == NONE else str(rank.slots[slots[track]])

    def _describe_groupless(self, lane: int) -> str:
        """Describe communication that names no comm group."""
        first, last = np.searchsorted(self.coverage.lane, (lane, lane + 1))
        kinds = self.coverage.category[self.coverage.bounds[first] : self.coverage.bounds[last]]
        parts = (
            ("all ranks", (kinds == Category.COLLECTIVE).any()),
            ("messages", (kinds != Category.COLLECTIVE).any()),
        )
        return ", ".join(words for words, is_present in parts if is_present)

    def _compute_finishes(self) -> Int64:
        finish = np.zeros(len(self.trace.ranks), np.int64)
        bounds = self.coverage.bounds
        last = np.maximum.reduceat(self.coverage.end_ns, bounds[:-1]) if len(self.coverage) else bounds[:0]
        index = {number: index for index, number in enumerate(self._numbers)}
        where = np.array([index[number] for number in self.rows.rank.tolist()], np.int64)
        np.maximum.at(finish, where, last[self.rows.track] - self.origin_ns)
        if self.calls:
            returned = [int(of.over_ns.max(initial=0)) - self.origin_ns for of in self.calls]
            finish = np.maximum(finish, [returned[rank.graph] for rank in self.trace.ranks])
        return finish

    # -----------------------------------------------------------------------------------------------
    # Tiles

    def tile(self, level: int, index: int, rows: Sequence[int]) -> Tile:
        """Return the tile that starts `index * TILE_BINS * 2**level` ns after the origin, for some rows."""
        width = 1 << level
        begin = self.origin_ns + index * TILE_BINS * width
        spans = [self.coverage.spans(self.rows.track[row], begin, begin + TILE_BINS * width) for row in rows]
        single = np.array([len(places) <= BARS_AT_MOST for places in spans], bool)
        shown = [places if alone else places[:0] for places, alone in zip(spans, single, strict=True)]
        places = join_columns(shown)
        bars = np.concatenate(([0], np.cumsum([len(places) for places in shown]))).astype(np.int32)
        node = self.coverage.row[places]
        name, names = self._index_names(rows, bars, node)
        binned = np.flatnonzero(~single).tolist()
        bins = [
            self.coverage.bins(int(self.rows.track[rows[index]]), begin, width, TILE_BINS) for index in binned
        ]
        fractions = np.concatenate([np.zeros((0, TILE_BINS)), *(part.fraction for part in bins)])
        level8 = np.maximum(np.round(255 * fractions), fractions > 0).astype(np.uint8)
        return Tile(
            bars,
            (self.coverage.start_ns[places] - begin).astype(np.float64),
            (self.coverage.end_ns[places] - begin).astype(np.float64),
            node.astype(np.int32),
            name,
            self._collect_bytes(rows, bars, node),
            self.coverage.waits_ns[places].astype(np.float64),
            self.coverage.category[places],
            np.array(binned, np.int32),
            np.array([part.begun for part in bins], np.int32).reshape(-1, TILE_BINS),
            np.repeat(np.arange(len(bins)), [len(part.category) for part in bins]).astype(np.int32),
            np.concatenate([np.zeros(0, np.uint8), *(part.category for part in bins)]),
            level8,
            names,
            self._list_tile_calls(rows, bars, places, begin) if self.calls else None,
        )

    def _list_tile_calls(self, rows: Sequence[int], bars: Int32, places: Int64, begin_ns: int) -> TileCalls:
        parts: list[tuple[Int64, ...]] = [(np.zeros(0, np.int64),) * 5]
        for number, row in enumerate(rows):
            part = slice(int(bars[number]), int(bars[number + 1]))
            calls, node = self.calls[self._get_graph_index(row)], self.coverage.row[places[part]]
            if not len(node) or not len(calls):
                continue
            place, is_call = calls.places(node)
            at = place[is_call]
            times = (calls.start_ns[at] - begin_ns, calls.over_ns[at] - begin_ns, calls.own_ns[at])
            parts.append((part.start + np.flatnonzero(is_call), *times, calls.counts(node[is_call])))
        call, start, end, own, count = map(join_columns, zip(*parts, strict=True))
        begun, over, took = (column.astype(np.float64) for column in (start, end, own))
        return TileCalls(call.astype(np.int32), begun, over, took, count.astype(np.int32))

    def _get_graph_index(self, row: int) -> int:
        return self._numbers[int(self.rows.rank[row])].graph

    def _index_names(self, rows: Sequence[int], bars: Int32, node: Int64) -> tuple[Int32, tuple[str, ...]]:
        """Return the name of each bar as an index, and the names."""
        graphs = self.trace.graphs
        key = np.zeros(len(node), np.int64)
        for number, row in enumerate(rows):
            part = slice(int(bars[number]), int(bars[number + 1]))
            index = self._get_graph_index(row)
            key[part] = graphs[index].name[node[part]] + np.int64(index << 32)
        codes, where = np.unique(key, return_inverse=True)
        names = tuple(graphs[code >> 32].strings[code & 0xFFFFFFFF] for code in codes.tolist())
        return where.astype(np.int32), names

    def _collect_bytes(self, rows: Sequence[int], bars: Int32, node: Int64) -> Float64:
        sizes = np.zeros(len(node))
        for index, row in enumerate(rows):
            part = slice(int(bars[index]), int(bars[index + 1]))
            sizes[part] = self.sizes_of(self._get_graph_index(row))[node[part]]
        return sizes

    def sizes_of(self, graph: int) -> Int64:
        """Return (N,) the payload of each node of a graph, 0 where it has none."""
        with self._lock:
            if graph not in self._sizes:
                self._sizes[graph] = read_dense_column(self.trace.graphs[graph], "comm_size", 0)
            return self._sizes[graph]

    # -----------------------------------------------------------------------------------------------
    # Single bars

    def rank(self, number: int) -> Rank:
        """Return a rank.

        Raises:
            TraceError: The job has no such rank.
        """
        rank = self._numbers.get(number)
        if rank is None:
            raise TraceError(f"This job has no rank {number}.", hint="See the overview for its ranks.")
        return rank

    def bar(self, rank: Rank, node: int) -> Bar | None:
        """Return the bar of a node, None where it has no times."""
        place = int(self.places(rank)[node])
        return None if place == NONE else self.bar_of(rank, place)

    def bar_of(self, rank: Rank, place: int) -> Bar:
        """Return the bar of the node of a span of the coverage, on a given rank."""
        return self._build_bar(int(self.rows_at(rank, np.array([place]))[0]), place)

    def rows_at(self, rank: Rank, places: Int64) -> Int64:
        """Return the rows of coverage spans, on a given rank."""
        track = np.searchsorted(self.coverage.bounds, places, side="right") - 1
        return np.asarray(self._first_row.get(rank.number, 0) + self._below[track], np.int64)

    def places(self, rank: Rank) -> Int32:
        """Return (N,) the coverage index of each node's first span on a rank, -1 where it has none."""
        source = self._source[rank.number]
        with self._lock:
            known = self._known_places.get(source)
        if known is None:
            known = np.full(len(self.trace.graph_of(rank)), NONE, np.int32)
            for row in self.rows_of(rank):
                indices = self.first_places(row)
                known[self.coverage.row[indices]] = indices
            with self._lock:
                self._known_places[source] = known
        return known

    def rows_of(self, rank: Rank) -> range:
        """Return the rows of a rank."""
        first = self._first_row.get(rank.number, len(self.rows))
        return range(first, first + int(np.count_nonzero(self.rows.rank == rank.number)))

    def adjacency_of(self, rank: Rank) -> Adjacency:
        """Return the dependencies of a rank's graph, indexed both ways."""
        with self._lock:
            if rank.graph not in self._adjacencies:
                self._adjacencies[rank.graph] = build_adjacency(self.trace.graphs[rank.graph])
            return self._adjacencies[rank.graph]

    @cached_property
    def account(self) -> Ledger:
        """Where each nanosecond of its ranks went."""
        return self._find_account()

    def lines(self) -> Int64:
        """Return (number of ranks,) the line of each rank of the trace in the account, -1 where it has no times."""
        place = {number: line for line, number in enumerate(self.account.numbers)}
        lines = [place.get(number, place.get(self._source[number], NONE)) for number in self._numbers]
        return np.array(lines, np.int64)

    @cached_property
    def matchings(self) -> tuple[GroupMatching, ...]:
        """Matched collectives of different ranks."""
        return match_by_name(self.trace)

    @cached_property
    def messages(self) -> Messages:
        """Sends paired with receives."""
        return match_messages(self.trace)

    def bar_at(self, row: int, time_ns: int, within_ns: int) -> Bar | None:
        """Return the bar of a row at a time or near it, None where there is none."""
        place = self.coverage.at(int(self.rows.track[row]), time_ns + self.origin_ns, within_ns)
        return None if place < 0 else self._build_bar(row, place)

    def beside(self, bar: Bar) -> tuple[Bar | None, Bar | None]:
        """Return the bars of the previous and the next node in a bar's lane, by start."""
        lane_rows = self._list_lane_rows(bar.row)
        of_rows = [self.first_places(row) for row in lane_rows]
        places = np.concatenate(of_rows)
        starts, row = self.coverage.start_ns[places], self.coverage.row[places]
        order = np.lexsort((row, starts))
        place = int(np.flatnonzero(row[order] == bar.node)[0])
        owner = np.repeat(lane_rows, list(map(len, of_rows)))[order]

        def find_bar(index: int) -> Bar | None:
            inside = 0 <= index < len(order)
            return self._build_bar(int(owner[index]), int(places[order[index]])) if inside else None

        return find_bar(place - 1), find_bar(place + 1)

    def depends(self, bar: Bar) -> tuple[list[tuple[Bar, bool]], list[tuple[Bar, bool]]]:
        """Return the bars a bar waits for and those waiting for it, each with whether by data."""
        graph = self.trace.graph_of(bar.rank)

        def list_bars(rows: list[tuple[int, bool]]) -> list[tuple[Bar, bool]]:
            pairs = [
                (self.bar(bar.rank, row), data) for row, data in rows[:_DEPENDENCIES_AT_MOST] if row >= 0
            ]
            return [(bar, data) for bar, data in pairs if bar is not None]

        return list_bars(list_predecessors(graph, bar.node)), list_bars(list_successors(graph, bar.node))

    def window(self, row: int, start_ns: int, end_ns: int) -> list[Bar]:
        """Return the bars of the nodes of a row with a span that overlaps a window, each once."""
        places = self.coverage.spans(
            int(self.rows.track[row]), start_ns + self.origin_ns, end_ns + self.origin_ns
        )
        return [self._build_bar(row, place) for place in self.pick_nodes(places).tolist()]

    def pick_nodes(self, places: Int64) -> Int64:
        """Return of spans of a row those that are the first among them of their node."""
        if self.coverage.goes_on is None:
            return places
        _, first = np.unique(self.coverage.row[places], return_index=True)
        return places[np.sort(first)]

    def times_of(self, rank: Rank, places: Int64) -> SpanTimes:
        """Return when the nodes of spans ran, on a given rank."""
        start, end = self.coverage.start_ns[places], self.coverage.end_ns[places]
        own = end - start
        if self.calls:
            calls = self.calls[rank.graph]
            place, is_call = calls.places(self.coverage.row[places])
            at = place[is_call]
            start, end = start.copy(), end.copy()
            start[is_call], end[is_call], own[is_call] = (
                calls.start_ns[at],
                calls.over_ns[at],
                calls.own_ns[at],
            )
        return SpanTimes(start - self.origin_ns, end - self.origin_ns, own)

    def pieces_of(self, bar: Bar) -> Int64:
        """Return (3, P) row, start and end of each span in which a node is drawn, by time, after the beginning of the timeline."""
        place = self.places(bar.rank)[[bar.node]].astype(np.int64)
        row = self.rows_at(bar.rank, place)
        start, end = self.coverage.start_ns[place], self.coverage.end_ns[place]
        if bar.own_ns is not None and self.coverage.goes_on is not None:
            pieces = self.calls[bar.rank.graph].pieces_of(bar.node)
            if len(pieces[0]):
                start, end = pieces
                row = self._find_piece_rows(int(row[0]), bar.node, start)
        return np.stack([row, start - self.origin_ns, end - self.origin_ns])

    def _find_piece_rows(self, row: int, node: int, start_ns: Int64) -> Int64:
        """Return the row of each piece of a node, given its starts, and the row of the first."""
        rows = self._list_lane_rows(row)
        row_of = np.full(len(start_ns), row)
        for other in rows if len(rows) > 1 else ():
            places = self.row_places(other)
            places = places[self.coverage.row[places] == node]
            row_of[np.isin(start_ns, self.coverage.start_ns[places])] = other
        return row_of

    def link(self, before: Bar, after: Bar) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return row, start and end of the spans between which the second node waits for the first.

        That is the first span of the one that waits, and of the other the last to end by then; where none does, its first.
        """
        first, second = self.pieces_of(before), self.pieces_of(after)
        leaves = find_leaving(first, second)
        (row, start, end), (row2, start2, end2) = first[:, leaves].tolist(), second[:, 0].tolist()
        return (row, start, end), (row2, start2, end2)

    def bytes_of(self, bar: Bar) -> int:
        """Return the payload of a communication node, 0 for others."""
        return int(self.sizes_of(bar.rank.graph)[bar.node])

    def row_places(self, row: int) -> Int64:
        """Return the coverage indices of a row's spans."""
        track = int(self.rows.track[row])
        return np.arange(int(self.coverage.bounds[track]), int(self.coverage.bounds[track + 1]))

    def first_places(self, row: int) -> Int64:
        """Return the coverage indices of a row's spans with which nodes begin."""
        track = int(self.rows.track[row])
        return self.coverage.first_places(
            int(self.coverage.bounds[track]), int(self.coverage.bounds[track + 1])
        )

    def _list_lane_rows(self, row: int) -> list[int]:
        first = row - int(self.rows.level[row])
        near = slice(first, first + TRACKS_AT_MOST)
        lanes, lane = self.coverage.lane[self.rows.track[near]], self.coverage.lane[self.rows.track[row]]
        same = (lanes == lane) & (self.rows.rank[near] == self.rows.rank[row])
        rows: list[int] = (first + np.flatnonzero(same)).tolist()
        return rows

    def _build_bar(self, row: int, place: int) -> Bar:
        rank, node = self._numbers[int(self.rows.rank[row])], int(self.coverage.row[place])
        start, end = int(self.coverage.start_ns[place]), int(self.coverage.end_ns[place])
        own = None
        if self.calls:
            calls = self.calls[rank.graph]
            at, is_call = (values.item() for values in calls.places(np.array([node])))
            if is_call:
                start, end, own = (
                    int(values[at]) for values in (calls.start_ns, calls.over_ns, calls.own_ns)
                )
        waits = int(self.coverage.waits_ns[place])
        return Bar(rank, node, row, start - self.origin_ns, end - self.origin_ns, waits, own)


def find_leaving(before: Int64, after: Int64) -> int:
    """Return which of a node's pieces, (3, P) as of `Gantt.pieces_of`, another waits for: the last to end before that begins, else the first."""
    return max(int(np.count_nonzero(before[2] <= after[1, 0])) - 1, 0)


def _compute_waits(trace: Trace, timeline: Timeline, account: Ledger) -> Int64:
    """Return (S,) how long each span waited from its start for others to begin."""
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    rank_of = np.array([place[lane.rank] for lane in timeline.lanes], np.int64)
    begun = account.begun_ns[account.first[rank_of[timeline.lane]] + timeline.row]
    waits: Int64 = np.clip(begun, timeline.start_ns, timeline.end_ns) - timeline.start_ns
    return waits


def _build_sort_key(lane: Lane) -> tuple[int, tuple[int, str]]:
    """Return the sort key of a lane within its rank: numbers in names by value, so all ranks sort alike."""
    first = lane.name.split(" ")[0] if lane.kind == "stream" else lane.name
    number = int(first) if first.isascii() and first.isdigit() and len(first) < 20 else -1
    return _SHOWN.index(lane.kind), (number, lane.name)
