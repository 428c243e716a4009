"""When nodes ran: one model for recordings and simulations.

A `Timeline` holds one span per node, sorted into lanes. A lane is a row of a Gantt: the compute of an NPU, its
communication in one comm group, its memory, its CPU, or, in a recording, a thread or a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from studio.columns import join_columns, join_ranges
from studio.distinct import find_distinct
from studio.errors import TraceError
from studio.notebook import build_html_table, format_parts, format_record
from studio.trace import (
    NONE,
    WORLD,
    Bool,
    CommGroup,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    communicates,
    compute_recorded_ends,
    get_rank_number,
    group_slots,
    is_flagged,
    list_world_names,
    read_named_lanes,
)
from studio.units import format_counted, format_ns

LaneKind = Literal["compute", "communication", "memory", "cpu", "thread", "stream"]
LANE_KINDS: tuple[LaneKind, ...] = get_args(LaneKind)
"""In the order the lanes of a rank stand in."""
_COMPUTE, _COMMUNICATION, _MEMORY, _CPU, _THREAD, _STREAM = range(len(LANE_KINDS))
_DETAIL_BITS = 32


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a timeline.

    Attributes:
        rank: The rank's number.
        kind: What runs in the lane. Nodes that occupy nothing, such as those of metadata, stand with the CPU's.
        name: The comm group of a communication lane ("" for the group of all ranks, and for messages that name no
            group), the thread or the stream of a recorded one; untrusted text.
    """

    rank: int
    kind: LaneKind
    name: str = ""

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each node was busy, recorded or simulated.

    S spans, sorted by (lane, start, end); L lanes, sorted by (rank, kind, name), kinds in the order of `LANE_KINDS`.
    No lane is empty.

    Attributes:
        lanes: The rows.
        lane: (S,) index into `lanes`.
        row: (S,) the node, a row of the graph of the lane's rank.
        start_ns, end_ns: (S,) issue and callback; end exclusive.
        untimed: Ranks that were asked for and have no span, because no node of theirs has a time.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> shown = studio.simulate(trace, studio.presets["hgx-h100-8"].config.with_extensions().with_recorded_times()).timeline(ranks=3)
        >>> {lane.rank for lane in shown.lanes}
        {3}
    """

    lanes: tuple[Lane, ...]
    lane: Int64
    row: Int64
    start_ns: Int64
    end_ns: Int64
    untimed: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.lane)

    def __repr__(self) -> str:
        """Return it in a line."""
        ranks = len({lane.rank for lane in self.lanes})
        span = int(self.end_ns.max() - self.start_ns.min()) if len(self) else 0
        counts = {"span": len(self), "lane": len(self.lanes), "rank": ranks}
        parts = [format_counted(count, what) for what, count in counts.items()]
        return format_parts("Timeline", [*parts, format_ns(span)])

    def _repr_html_(self) -> str:
        """Return its lanes as a table."""
        bounds = np.searchsorted(self.lane, np.arange(len(self.lanes) + 1)).tolist()
        rows = []
        for lane, low, high in zip(self.lanes, bounds, bounds[1:], strict=False):
            start, end = self.start_ns[low:high], self.end_ns[low:high]
            rows.append((lane.rank, f"{lane.kind} {lane.name}".strip(), high - low, format_ns(int((end - start).sum())),
                         format_ns(int(start.min())), format_ns(int(end.max()))))  # fmt: skip
        return build_html_table(repr(self), ("rank", "lane", "spans", "busy in all", "from", "to"), rows)

    def of_lane(self, index: int) -> slice:
        """Return the indices of a lane's spans.

        Example:
            >>> import studio
            >>> trace = studio.read(studio.sample_path("transformer_8r"))
            >>> timeline = studio.recorded(trace, 0)
            >>> spans = timeline.of_lane(0)
            >>> bool((timeline.lane[spans] == 0).all())
            True
        """
        low, high = np.searchsorted(self.lane, (index, index + 1)).tolist()
        return slice(low, high)


@dataclass(frozen=True, slots=True)
class NodeSpans:
    """When nodes were busy, in any order.

    S spans.

    Attributes:
        rank: (S,) index into the trace's ranks.
        row: (S,) the node, a row of the rank's graph.
        start_ns, end_ns: (S,) end exclusive.
    """

    rank: Int64
    row: Int64
    start_ns: Int64
    end_ns: Int64

    __repr__ = format_record

    def select(self, chosen: Bool) -> NodeSpans:
        """Return some of the spans, given (S,) which."""
        return NodeSpans(self.rank[chosen], self.row[chosen], self.start_ns[chosen], self.end_ns[chosen])


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """When the nodes of some ranks were busy, indexed by rank and row.

    R ranks of the trace, T times. Ranks that one was simulated for share its times.

    Attributes:
        first: (R,) where the times of each rank begin, by row; -1 where nothing is known of it.
        start_ns, end_ns: (T,) -1 where the node has none.
        returned_ns: (T,) when each was over: recorded calls take their own time, but return when that and what they called is done.
            None where that is `end_ns`.
    """

    first: Int64
    start_ns: Int64
    end_ns: Int64
    returned_ns: Int64 | None = None

    __repr__ = format_record

    @property
    def over_ns(self) -> Int64:
        """(T,) when each was over, -1 where the node has no times."""
        return self.end_ns if self.returned_ns is None else self.returned_ns

    def finishes(self, trace: Trace, origin_ns: int = 0) -> Int64:
        """Return (R,) when the last node of each rank of the trace was over, after the beginning; -1 for ranks without times."""
        finish = np.full(len(trace.ranks), NONE, np.int64)
        known: dict[tuple[int, int], int] = {}  # ranks that one was simulated for share its times
        for index, (rank, first) in enumerate(zip(trace.ranks, self.first.tolist(), strict=True)):
            if first == NONE:
                continue
            key = first, rank.graph
            if key not in known:
                own = slice(first, first + len(trace.graphs[rank.graph]))
                over = self.over_ns[own][self.start_ns[own] >= 0]
                known[key] = int(over.max()) - origin_ns if len(over) else NONE
            finish[index] = known[key]
        return finish

    def spans(self, trace: Trace, ranks: Int64) -> NodeSpans:
        """Return the spans of the ranks with the given indices, by rank and row."""
        count = _count_nodes(trace)[ranks]
        row = join_ranges(0, count)
        entries = np.repeat(self.first[ranks], count) + row
        is_timed = self.start_ns[entries] >= 0
        entries, row, rank = entries[is_timed], row[is_timed], np.repeat(ranks, count)[is_timed]
        return NodeSpans(rank, row, self.start_ns[entries], self.end_ns[entries])

    def of_nodes(self, trace: Trace) -> tuple[Int64, Int64]:
        """Return (N,) start and end of each node of the trace, by rank and row; -1 where it has no times."""
        sizes = _count_nodes(trace)
        if len(self.start_ns) == sizes.sum() and (self.first == np.cumsum(sizes) - sizes).all():
            return self.start_ns, self.end_ns  # they stand so: every rank has times of its own
        pieces = [
            slice(begin, begin + size)
            for begin, size in zip(self.first.tolist(), sizes.tolist(), strict=True)
        ]
        start, end = (
            join_columns(
                [
                    column[piece] if piece.start >= 0 else np.full(size, NONE, np.int64)
                    for piece, size in zip(pieces, sizes.tolist(), strict=True)
                ]
            )
            for column in (self.start_ns, self.end_ns)
        )
        return start, end


def collect_node_times(trace: Trace, timeline: Timeline) -> NodeTimes:
    """Return the times of a timeline's nodes."""
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    rank_of = np.array([place[lane.rank] for lane in timeline.lanes], np.int64)
    times = build_empty_times(trace, find_distinct(rank_of))
    entries = times.first[rank_of[timeline.lane]] + timeline.row
    times.start_ns[entries], times.end_ns[entries] = timeline.start_ns, timeline.end_ns
    return times


def collect_recorded_times(trace: Trace, timeline: Timeline) -> NodeTimes:
    """Return the times of a recorded timeline's nodes, with when calls returned."""
    times = collect_node_times(trace, timeline)
    over = {index: _read_returns(trace.graphs[index]) for index in {rank.graph for rank in trace.ranks}}
    if all(ends is None for ends in over.values()):
        return times
    returned = times.end_ns.copy()
    for rank, first in zip(trace.ranks, times.first.tolist(), strict=True):
        ends = over[rank.graph]
        if first != NONE and ends is not None:
            returned[first : first + len(ends)] = ends
    return replace(times, returned_ns=returned)


def _read_returns(graph: Graph) -> Int64 | None:
    """Return (N,) when nodes were over, -1 where they have no times; None where each was after its own time."""
    # The texts of a graph are those that it uses: whether one is there takes no look at the attributes.
    if graph.strings.find("inclusive_ns") == NONE:
        return None
    return np.where(graph.start_ns >= 0, compute_recorded_ends(graph), NONE)


def read_recorded_times(trace: Trace) -> NodeTimes:
    """Return the recorded times of nodes; ranks that share a graph share its times.

    The same as `collect_recorded_times` of `recorded`, without sorting anything into lanes.
    """
    size = np.array([len(graph) for graph in trace.graphs], np.int64)
    begin = np.cumsum(size) - size
    start = join_columns([graph.start_ns for graph in trace.graphs])
    end = join_columns([graph.start_ns + graph.duration_ns for graph in trace.graphs])
    known = start >= 0
    timed = np.array([bool((graph.start_ns >= 0).any()) for graph in trace.graphs], bool)
    graph_of = np.array([rank.graph for rank in trace.ranks], np.int64)
    first = np.where(timed[graph_of], begin[graph_of], NONE)
    times = NodeTimes(first, np.where(known, start, NONE), np.where(known, end, NONE))
    over = [_read_returns(graph) for graph in trace.graphs]
    if all(ends is None for ends in over):
        return times
    returned = times.end_ns.copy()
    for at, ends in zip(begin.tolist(), over, strict=True):
        if ends is not None:
            returned[at : at + len(ends)] = ends
    return replace(times, returned_ns=returned)


def build_empty_times(trace: Trace, ranks: Int64) -> NodeTimes:
    """Return empty times of the ranks with the given indices (rising), to be filled in."""
    size = _count_nodes(trace)
    first = np.full(len(size), NONE, np.int64)
    first[ranks] = np.cumsum(size[ranks]) - size[ranks]
    start, end = (np.full(int(size[ranks].sum()), NONE, np.int64) for _ in range(2))
    return NodeTimes(first, start, end)


def _count_nodes(trace: Trace) -> Int64:
    """Return the number of nodes of each rank."""
    of_graph = np.array([len(graph) for graph in trace.graphs], np.int64)
    return of_graph[np.array([rank.graph for rank in trace.ranks], np.int64)]


def recorded(trace: Trace, ranks: Sequence[int | Rank] | int | Rank | None = None) -> Timeline:
    """Return the recorded timeline: each node from its start, for its duration, which of a call is without what it called.

    Nodes of the CPU stand in the lane of their thread (`tid`), compute in that of its stream (`stream`), where the
    trace tells them. Times are as recorded; the clocks of different ranks may differ.

    Args:
        trace: The trace. Nodes without a start are left out.
        ranks: A rank or several, by number or themselves; None takes all.

    Raises:
        TraceError: The trace has no such rank.

    Example:
        >>> import studio
        >>> studio.recorded(studio.read(studio.sample_path("transformer_8r")), 0)
        Timeline(297 spans, 7 lanes, 1 rank, 44.5 ms)
    """
    chosen = rank_indices(trace, ranks)
    timed = [np.flatnonzero(graph.start_ns >= 0) for graph in trace.graphs]
    graph_of = [trace.ranks[index].graph for index in chosen.tolist()]
    row = join_columns([timed[index] for index in graph_of])
    start = join_columns([trace.graphs[index].start_ns[timed[index]] for index in graph_of])
    length = join_columns([trace.graphs[index].duration_ns[timed[index]] for index in graph_of])
    rank = np.repeat(chosen, [len(timed[index]) for index in graph_of])
    return arrange_lanes(trace, NodeSpans(rank, row, start, start + length), ranks=chosen, recording=True)


def _describe_ranks(numbers: Sequence[int]) -> str:
    """Name ranks by rising numbers: only those that follow each other are told by the first and the last."""
    if len(numbers) < 2:
        return f"rank {numbers[0]}" if numbers else "no ranks"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return f"ranks {', '.join(map(str, numbers[:8]))}{', …' if len(numbers) > 8 else ''}"


def rank_indices(trace: Trace, ranks: Sequence[int | Rank] | int | Rank | None = None) -> Int64:
    """Return the rising indices in the trace of one rank or several, by number or themselves; of all ranks for None.

    Raises:
        TraceError: The trace has no such rank.
    """
    if ranks is None:
        return np.arange(len(trace.ranks))
    # A text is a sequence too, of letters.
    given: Any = ranks
    several = (
        isinstance(given, Iterable) and not isinstance(given, str | bytes) and getattr(given, "ndim", 1) > 0
    )
    numbers = [get_rank_number(rank) for rank in (given if several else [given])]
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    absent = [number for number in numbers if number not in place]
    if absent:
        have = _describe_ranks([rank.number for rank in trace.ranks])
        raise TraceError(f"There is no rank {absent[0]}; the trace has {have}.", hint="Choose other ranks.")
    return np.array(sorted({place[number] for number in numbers}), np.int64)


def arrange_lanes(
    trace: Trace,
    spans: NodeSpans,
    *,
    ranks: Int64,
    groups: Sequence[CommGroup] | None = None,
    recording: bool = False,
) -> Timeline:
    """Sort spans into lanes.

    Args:
        trace: The trace whose nodes they are.
        spans: When the nodes were busy.
        ranks: (R,) places in the trace of the ranks they are of, rising.
        groups: Comm groups in place of the trace's.
        recording: Whether threads and streams have lanes of their own.
    """
    world = list_world_names(
        trace.groups if groups is None else groups, [rank.number for rank in trace.ranks]
    )
    lanes_of = {
        index: assign_graph_lanes(trace.graphs[index], recording=recording)
        for index in _list_graphs(trace, ranks)
    }
    first_row, local = _stack({index: local for index, (local, _) in lanes_of.items()})
    lanes: list[Lane] = []
    variants: dict[tuple[int, tuple[int | str, ...]], tuple[int, list[tuple[int, str]]]] = {}
    places: list[int] = []
    row_base, lane_base, place_base = (np.zeros(len(trace.ranks), np.int64) for _ in range(3))
    for index in ranks.tolist():
        rank = trace.ranks[index]
        key = (rank.graph, rank.slots)
        if key not in variants:
            keys = [
                _build_lane_key(kind, detail, rank.slots, world) for kind, detail in lanes_of[rank.graph][1]
            ]
            distinct = sorted(set(keys))
            variants[key] = (len(places), distinct)
            places += [distinct.index(key) for key in keys]
        place_base[index], distinct = variants[key]
        row_base[index], lane_base[index] = first_row[rank.graph], len(lanes)
        lanes += [Lane(rank.number, LANE_KINDS[kind], name) for kind, name in distinct]
    place = place_base[spans.rank] + local[row_base[spans.rank] + spans.row]
    lane = lane_base[spans.rank] + np.array(places, np.int64)[place]
    order = np.lexsort((spans.end_ns, spans.start_ns, lane))
    used = np.bincount(lane, minlength=len(lanes)) > 0
    seen = np.bincount(spans.rank, minlength=len(trace.ranks)) > 0
    return Timeline(
        tuple(lanes[lane] for lane in np.flatnonzero(used).tolist()),
        (np.cumsum(used) - 1)[lane[order]],
        spans.row[order],
        spans.start_ns[order],
        spans.end_ns[order],
        tuple(trace.ranks[index].number for index in ranks.tolist() if not seen[index]),
    )


def _list_graphs(trace: Trace, ranks: Int64) -> list[int]:
    return sorted({trace.ranks[index].graph for index in ranks.tolist()})


def _stack(columns: Mapping[int, Int64]) -> tuple[dict[int, int], Int64]:
    """Return columns concatenated, and where each begins."""
    first, end = {}, 0
    for index, column in columns.items():
        first[index] = end
        end += len(column)
    return first, join_columns(list(columns.values()))


def assign_graph_lanes(graph: Graph, *, recording: bool) -> tuple[Int64, list[tuple[int, int | str]]]:
    """Return (N,) the lane of each node in its graph, and for each lane its kind, and a slot or a text.

    Kinds are indices into `LANE_KINDS`; a slot is that of the comm group's name, -1 where there is none.
    """
    kind = np.full(len(graph), _CPU, np.int64)
    kind[graph.type == NodeType.COMP] = _COMPUTE
    kind[communicates(graph)] = _COMMUNICATION
    kind[(graph.type == NodeType.MEM_LOAD) | (graph.type == NodeType.MEM_STORE)] = _MEMORY
    kind[is_flagged(graph, "is_cpu_op")] = _CPU
    detail = np.where(kind == _COMMUNICATION, group_slots(graph), NONE)
    names: dict[int, list[str]] = {}
    if recording:
        for key, before, after in (
            ("tid", _CPU, _THREAD),
            ("thread", _CPU, _THREAD),
            ("stream", _COMPUTE, _STREAM),
        ):
            rows, number, texts = read_named_lanes(graph, key)
            known = names.setdefault(after, [])
            is_kind = kind[rows] == before
            kind[rows[is_kind]], detail[rows[is_kind]] = after, number[is_kind] + len(known)
            known += texts
    codes, local = np.unique((kind << _DETAIL_BITS) + detail + 1, return_inverse=True)
    lanes: list[tuple[int, int | str]] = []
    for code in codes.tolist():
        of, detail_code = code >> _DETAIL_BITS, (code & ((1 << _DETAIL_BITS) - 1)) - 1
        lanes.append((of, names[of][detail_code] if of in names else detail_code))
    return local, lanes


def _build_lane_key(
    kind: int, detail: int | str, slots: Sequence[int | str], world: frozenset[str]
) -> tuple[int, str]:
    """Return kind and name of a lane of a rank."""
    if isinstance(detail, str):
        return kind, detail
    name = WORLD if detail == NONE else str(slots[detail])
    return kind, WORLD if name in world else name
