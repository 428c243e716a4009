"""Order a recording by its times where its dependencies do not hold what a replay needs.

Merged traces (ET+) and files made of them have the dependencies of the reference's converter: one chain of all operators of a rank,
whatever threads they ran on, and nothing of the time between them. A timeline has none at all. Such a job stays as it is wherever it is
shown, written or simulated on a network; a replay alone plays it in the order of its recording:

- Operators lie in lanes, which stand for threads: those that enclose each other share one, those that overlap otherwise do not. A node
  begins as long after the one before it on its lane ended, or the one that encloses it began, as in the recording.
- A lane that stood idle, or was in a call that may wait, goes on after what ended last on another lane meanwhile. The first operator of
  a lane, and each of gloo, comes after the call that asked for it.
- What ran on a device comes after the operation before it on its stream, the operator that launched it, and what ended last on another
  stream while its own stood idle. An operator waits for the copy to the host that ended in the one before.
- Where gloo carried out a collective on a thread of its own, that operator meets those of the other ranks; the call returned before.

Time for which a node waited besides is a node of its own, behind all others of the job that is played.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from studio.completion.surgery import append_attributes, build_dependencies, intern_texts, with_numbers
from studio.errors import TraceError
from studio.et.link.dep_kinds import DEP_KINDS
from studio.et.link.operations import LIBRARY
from studio.et.link.options import LinkOptions
from studio.et.link.spans import COMPUTING
from studio.trace import (
    NONE,
    Attributes,
    Bool,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    UInt64,
    ValueKind,
    is_flagged,
    read_dense_column,
    read_int_column,
)

_LAG = "replay_lag"
"""Attribute of the nodes that are time for which another waited."""
_CARRIES = "carries_row"
"""Attribute of the operators of gloo that meet others: the row of the call that they carry out."""
_ON_HOST = "is_cpu_op"
_NO_KINDS = "recorded_dep_kinds"
_SCHEMA = "schema"
_OF_PYTORCH = re.compile(r"\d+\.\d+\.\d+-chakra")
_EXPORTED = "exported-timeline"
"""What a reader says of a timeline that was written for viewers."""
_LINKED = "link_"
"""What linking says of itself in the metadata of a rank begins so."""
_SLACK_NS = 1_000
"""Recorders write whole microseconds: intervals overlap by as much that followed each other."""
_HELD_NS = LinkOptions().thread_gap_ns
"""A lane that stood idle for less was not held up by another."""
_COMMUNICATION = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
_TO_HOST = re.compile(r"DtoH|device\s*(?:to|->)\s*host", re.IGNORECASE)
_CALLS_UP = 3
"""So many callers further out the call may be that an operator of gloo carries out."""
_BEGINNING = NONE
"""Stands for the beginning of the rank, which whatever waits for nothing comes after."""
_NO_LANE = NONE


def is_orderable(trace: Trace) -> bool:
    """Whether a replay orders ranks of a recording by their times."""
    return bool(_find_orderable(trace))


def count_untimed(trace: Trace) -> int:
    """Return how many nodes took time and do not say when in ranks that a replay would order by times else."""
    graphs = [trace.graphs[index] for index in _find_lacking(trace)]
    return sum(int(_are_untimed(graph).sum()) for graph in graphs)


def is_linked_rank(rank: Rank) -> bool:
    """Whether the files of a rank were linked here: dependencies then hold what a replay needs."""
    return any(attribute.name.startswith(_LINKED) for attribute in rank.metadata)


def is_ordered(graph: Graph) -> bool:
    """Whether a graph was ordered by its recorded times."""
    return graph.has_attribute(_LAG)


def find_orders(recorded: Trace) -> dict[int, Order]:
    """Return what nodes waited for in the ranks of a recording whose dependencies do not hold what a replay needs, by graph."""
    return {index: _Recorded(recorded.graphs[index]).order() for index in sorted(_find_orderable(recorded))}


def order_by_times(
    trace: Trace, recorded: Trace | None = None, orders: Mapping[int, Order] | None = None
) -> Trace:
    """Return the job that a replay plays: ranks whose dependencies do not hold what it needs in the order of their recorded times.

    Nodes keep their rows; what they waited besides comes behind them.

    Args:
        trace: The job.
        recorded: The job as it was recorded, where durations of `trace` were changed: what took less time then is no longer waited for.
        orders: What `find_orders` returns of that; None to find it.

    Raises:
        TraceError: Nodes or dependencies were changed, too; nothing tells what would wait for what then.
    """
    recorded = trace if recorded is None else recorded
    orders = find_orders(recorded) if orders is None else orders
    if not orders:
        return trace
    graphs = list(trace.graphs)
    done: set[int] = set()
    for rank, before in zip(trace.ranks, recorded.ranks, strict=True):
        if before.graph not in orders or rank.graph in done:
            continue
        graph, original = trace.graphs[rank.graph], recorded.graphs[before.graph]
        if not _are_wired_alike(graph, original):
            raise TraceError(
                "the dependencies of the recording are those of a converter, which do not tell what another order would wait for",
                hint="Link the recordings that the files were made of (chakra-studio link).",
            )
        graphs[rank.graph] = _build_graph(graph, orders[before.graph])
        done.add(rank.graph)
    return replace(trace, graphs=tuple(graphs))


def _are_wired_alike(graph: Graph, other: Graph) -> bool:
    """Whether two graphs have the same nodes and dependencies, whatever these take."""
    return len(graph) == len(other) and all(
        column is counterpart or np.array_equal(column, counterpart)
        for deps, others in ((graph.ctrl, other.ctrl), (graph.data, other.data))
        for column, counterpart in ((deps.offsets, others.offsets), (deps.rows, others.rows))
    )


def read_meeting_rows(graph: Graph) -> Int64:
    """Return (N,) which node meets those of other ranks for each: itself, or the operator of gloo that carries out a call."""
    rows = np.arange(len(graph))
    if is_ordered(graph):
        carriers, calls = read_int_column(graph, _CARRIES)
        rows[calls] = carriers
    return rows


def _are_untimed(graph: Graph) -> Bool:
    untimed: Bool = (graph.start_ns < 0) & (graph.duration_ns > 0)
    return untimed


def _find_lacking(trace: Trace) -> set[int]:
    """Return the graphs of recorded ranks whose dependencies do not hold what a replay needs.

    These are a converter's, by the schema of PyTorch that it passes on, or those of an exported timeline, or there are none in all the job,
    as in other timelines.
    """
    exported = any(finding.code == _EXPORTED for finding in trace.findings)
    bare = not any(
        len(graph.ctrl.rows) or len(graph.data.rows) or graph.has_attribute(_ON_HOST)
        for graph in trace.graphs
    )
    lacking = {rank.graph for rank in trace.ranks if bare or exported or _is_converted(rank)}
    return {index for index in lacking if (trace.graphs[index].start_ns >= 0).any()}


def _is_converted(rank: Rank) -> bool:
    schema = rank.metadata_value(_SCHEMA)
    is_of_pytorch = isinstance(schema, str) and _OF_PYTORCH.match(schema) is not None
    return is_of_pytorch and not is_linked_rank(rank)


def _find_orderable(trace: Trace) -> set[int]:
    """Return the graphs that a replay orders by times: all that took time says when."""
    return {
        index
        for index in _find_lacking(trace)
        if not is_ordered(trace.graphs[index]) and not _are_untimed(trace.graphs[index]).any()
    }


def _find_callers(graph: Graph) -> list[int]:
    """Return (N,) the first node that each names as its caller, -1 where it names none."""
    callers = np.full(len(graph), NONE, np.int64)
    first = graph.ctrl.offsets[:-1]
    rows = np.flatnonzero(np.diff(graph.ctrl.offsets))
    callers[rows] = graph.ctrl.rows[first[rows]]
    callers[callers == np.arange(len(graph))] = NONE
    listed: list[int] = np.maximum(callers, NONE).tolist()
    return listed


def _find_carriers(graph: Graph) -> dict[int, int]:
    """Return the calls for communication of a rank that an operator of gloo carried out beyond their end: call → operator.

    That is the operator below the call, or, where the recorder noted another caller, the first one that began after the call.
    """
    names = np.array([name.startswith(LIBRARY) for name in graph.strings], np.bool_)
    operators = np.flatnonzero(names[graph.name] & (graph.start_ns >= 0))
    on_device = (read_dense_column(graph, "stream", NONE) >= 0) & ~is_flagged(graph, _ON_HOST)
    calls = np.flatnonzero(np.isin(graph.type, _COMMUNICATION) & (graph.start_ns >= 0) & ~on_device)
    if not len(operators) or not len(calls):
        return {}
    callers, start = _find_callers(graph), graph.start_ns
    open_calls = set(calls.tolist())
    carriers: dict[int, int] = {}
    rest = []
    for row in operators[np.argsort(start[operators], kind="stable")].tolist():
        call = row
        for _ in range(_CALLS_UP):
            call = callers[call] if call >= 0 else NONE
            if call in open_calls:
                break
        if call in open_calls and start[call] <= start[row]:
            carriers[call] = row
            open_calls.discard(call)
        else:
            rest.append(row)
    waiting = sorted(open_calls, key=lambda call: int(start[call]))
    for row in rest:
        call = next((call for call in waiting if start[call] <= start[row]), NONE)
        if call >= 0:
            carriers[call] = row
            waiting.remove(call)
    return carriers


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
        self.callers = _find_callers(graph)
        self.stream: list[int] = read_dense_column(graph, "stream", NONE).tolist()
        self.device: list[int] = read_dense_column(graph, "device", NONE).tolist()
        self.thread: list[int] = read_dense_column(graph, "tid", NONE).tolist()
        on_host = is_flagged(graph, _ON_HOST).tolist()
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
            (self.begin if source == _BEGINNING else self.over[source]) + lag
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
            waits[_BEGINNING] = begun - self.begin
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


# ---------------------------------------------------------------------------------------------------
# The graph


def _build_graph(graph: Graph, recorded: Order) -> Graph:
    """Return the graph with other dependencies, and with nodes for the time that others waited besides, or that came last."""
    count = len(graph)
    lists: list[list[int]] = [[] for _ in range(count)]
    # What waits equally long after the same end waits for the same node.
    lags: dict[tuple[int, int], int] = {}
    for row in recorded.rows:
        for source, lag in recorded.waits[row]:
            if lag:
                lists[row].append(count + lags.setdefault((source, lag), len(lags)))
            elif source != _BEGINNING:
                lists[row].append(source)
    for tail in recorded.tails:
        lags.setdefault(tail, len(lags))
    lags = lags or {(_BEGINNING, 0): 0}
    lists += [[] if source == _BEGINNING else [source] for source, _ in lags]
    start = [recorded.begin if source == _BEGINNING else recorded.over[source] for source, _ in lags]
    calls = {row: call for call, row in _find_carriers(graph).items()}
    carriers = np.array(sorted(calls), np.int64)
    graph = with_numbers(
        graph, _CARRIES, carriers, np.array([calls[row] for row in carriers.tolist()], np.int64)
    )
    strings, [name, *codes] = intern_texts(graph.strings, ("replay lag", _LAG, _ON_HOST, _NO_KINDS))
    more = len(lags)
    return replace(
        graph,
        id=np.concatenate((graph.id, _choose_ids(graph, more))),
        type=np.concatenate((graph.type, np.full(more, NodeType.COMP, graph.type.dtype))),
        name=np.concatenate((graph.name, np.full(more, name, graph.name.dtype))),
        start_ns=np.concatenate((graph.start_ns, np.array(start, np.int64))),
        duration_ns=np.concatenate((graph.duration_ns, np.array([lag for _, lag in lags], np.int64))),
        ctrl=build_dependencies([[]] * (count + more), graph.ctrl.dangling[:0]),
        data=build_dependencies(lists, graph.data.dangling[:0]),
        io=np.concatenate((graph.io, np.full((more, 6), NONE, graph.io.dtype)))
        if len(graph.io)
        else graph.io,
        attrs=_append_marks(graph.attrs, codes, graph.strings.find(DEP_KINDS), more),
        strings=strings,
    )


def _choose_ids(graph: Graph, count: int) -> UInt64:
    """Return ids that no node has, above all others where there is room: what is ready begins by rising ids."""
    highest = int(graph.id.max())
    if highest + count < 1 << 64:
        return highest + 1 + np.arange(count, dtype=np.uint64)
    free = np.setdiff1d(np.arange(len(graph) + count, dtype=np.uint64), graph.id)
    chosen: UInt64 = free[:count]
    return chosen


def _append_marks(before: Attributes, codes: Sequence[int], kinds: int, more: int) -> Attributes:
    """Return attributes with those of more nodes; the reasons of dependencies that are no more get another name."""
    lag, on_host, no_kinds = codes
    key = np.where(before.key == kinds, no_kinds, before.key).astype(before.key.dtype)
    kind = np.full(2 * more, ValueKind.BOOL)
    added = np.tile([on_host, lag], more)
    return append_attributes(replace(before, key=key), added, kind, np.ones(2 * more, np.int64), each=2)
