"""The list of every node of every rank, searchable and sortable.

The list is never built: a place in it is a number. Filters and sort keys are computed once for each distinct
graph and spread to the ranks that share it, those of a run's times taken from the run as they are; what the answers
need is looked up row by row.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from studio.analysis.collectives.groups import collect_comm_nodes
from studio.analysis.job.kinds import infer_counted_type, infer_counted_types, label_counted_type
from studio.analysis.job.names import JobNames, index_text_keys, lower_case
from studio.analysis.job.number_filter import Quantity, Wanted, parse_filter
from studio.arrow import from_arrow
from studio.errors import TraceError
from studio.timeline import NodeTimes
from studio.trace import (
    NONE,
    Bool,
    Graph,
    Int32,
    Int64,
    NodeType,
    Rank,
    Trace,
    UInt64,
    compute_recorded_ends,
    label_collective,
    read_dense_column,
)

TEXT_COLUMNS = ("name", "type", "collective", "group")
TIME_COLUMNS = ("start_ns", "end_ns", "duration_ns")
"""Times of what is shown: the recording, or a run."""
_RECORDED = {"recorded_start_ns": "start_ns", "recorded_duration_ns": "duration_ns"}
"""What is recorded, whatever is shown, and what it is called where nothing else is."""
NUMBER_COLUMNS = ("rank", "id", "bytes", "operations", *TIME_COLUMNS, *_RECORDED, "waits_for")
COLUMNS = (*TEXT_COLUMNS, *NUMBER_COLUMNS)
QUANTITIES: dict[str, Quantity] = {
    "bytes": "bytes",
    "operations": "count",
    **dict.fromkeys((*TIME_COLUMNS, *_RECORDED), "time"),
}
"""Number columns whose filters take units."""

_KEPT_BYTES = 64 << 20
_RADIX = 1 << 16
_SORTED_RUN = 16
"""Keys in a sorted run from which on comparing them is faster than counting them."""
_REF = re.compile(r"(?P<id>[0-9]{1,20})(?:\.(?P<again>[0-9]{1,10}))?")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a column.

    Texts compare without regard to case; `to` is the end of a range. Numbers that `matches` a text are those
    the text asks for, such as `>= 1.5 ms`, see `number_filter.parse_filter`.
    """

    column: str
    operator: str
    value: str = ""
    to: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions, search text and order.

    Attributes:
        search: Text that the name contains, or the id is.
        conditions: All of them must hold; those inside an inner tuple are alternatives.
        order: Columns to sort by, with whether the order falls. Nodes without a value come last either way.
    """

    search: str = ""
    conditions: tuple[tuple[Condition, ...], ...] = ()
    order: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the list.

    Attributes:
        ref: How addresses name it, see `format_node_ref`.
        rank: Number of its rank.
        id: Id written in the file.
        name, type: As the file and the schema name them.
        collective: Collective of a COMM_COLL node, empty where it has none.
        group: Comm group it names, empty where it names none.
        bytes: Payload of communication on this rank, -1 where none is written.
        operations: Floating-point operations, -1 where none are written.
        start_ns: Start in what is shown: in a run counted from its beginning, -1 where the node did not run;
            otherwise as `recorded_start_ns`.
        end_ns: End, counted likewise; of a recording when the node was over, with what it called, -1 where its duration is.
        duration_ns: From start to end in a run; otherwise as `recorded_duration_ns`, which is without what the node called.
        recorded_start_ns: Recorded start, counted from the first of the job; -1 where none is recorded.
        recorded_duration_ns: Recorded duration, -1 where none is recorded or it is 0.
        waits_for: Nodes it waits for, those the file does not have included.
    """

    ref: str
    rank: int
    id: int
    name: str
    type: str
    collective: str
    group: str
    bytes: int
    operations: int
    start_ns: int
    end_ns: int
    duration_ns: int
    recorded_start_ns: int
    recorded_duration_ns: int
    waits_for: int


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of the list that are computed from one graph.

    N nodes. Numbers are -1 where a node has none.

    Attributes:
        collective, bytes, operations, start_ns, end_ns, duration_ns, waits_for: (N,) as in `Node`, times recorded.
        type: (N,) as it is shown.
        group_slot: (N,) slot that holds the comm group's name.
        again: (N,) how many nodes before have the same id; None where no id repeats.
    """

    type: Int32
    collective: Int64
    bytes: Int64
    operations: Int64
    start_ns: Int64
    end_ns: Int64
    duration_ns: Int64
    waits_for: Int64
    group_slot: Int64
    again: Int64 | None


class _Job:
    """Columns that are the same for all runs, computed when first asked for. Safe to share between threads.

    Attributes:
        names: The nodes' names.
        offsets: (R + 1,) where the nodes of each rank begin in the list of all nodes, and the end.
        origin_ns: First recorded start of all ranks, 0 where there is none.
        end_ns: Last recorded end, counted from it.
        holds_own_times: Whether recorded durations of nodes that called others are without these, as linking writes them.
    """

    def __init__(self, trace: Trace) -> None:
        self._graphs = trace.graphs
        self._lock = threading.Lock()
        self._columns: dict[int, _Columns] = {}
        self.names = JobNames(trace.graphs)
        sizes = np.array([len(trace.graphs[rank.graph]) for rank in trace.ranks], np.int64)
        self.offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        started = [graph.start_ns >= 0 for graph in trace.graphs]
        pairs = list(zip(trace.graphs, started, strict=True))
        starts = [int(graph.start_ns[some].min()) for graph, some in pairs if some.any()]
        ends = [int(compute_recorded_ends(graph)[some].max()) for graph, some in pairs if some.any()]
        self.origin_ns = min(starts, default=0)
        self.end_ns = max(ends, default=0) - self.origin_ns
        # The texts of a graph are those that it uses: whether one is there takes no look at the attributes.
        self.holds_own_times = any(graph.strings.find("inclusive_ns") != NONE for graph in trace.graphs)

    def columns_of(self, index: int) -> _Columns:
        """Return the computed columns of a graph."""
        columns = self._columns.get(index)
        if columns is None:
            with self._lock:
                columns = self._columns.setdefault(index, _build_columns(self._graphs[index], self.origin_ns))
        return columns


class NodeIndex:
    """The nodes of a trace by rank and row, filtered and sorted by queries. Safe to share between threads.

    Attributes:
        trace: The trace.
        job: What no run changes in its nodes.
        origin_ns: First recorded start of all ranks, 0 where there is none; recorded times count from it.
        end_ns: Last recorded end, counted likewise.
        last_ns: Last end in what is shown: the recording, or the run.
    """

    def __init__(self, trace: Trace, run: NodeTimes | None = None, *, like: NodeIndex | None = None) -> None:
        """Create the list.

        Args:
            trace: The trace.
            run: Times of a run of it; None shows those recorded.
            like: A list of the same trace, with which to share what no run changes.
        """
        self.trace = trace
        self.job: _Job = _Job(trace) if like is None else like.job
        self.origin_ns, self.end_ns = self.job.origin_ns, self.job.end_ns
        self.last_ns = self.end_ns if run is None else int(run.end_ns.max(initial=0))
        self._offsets = self.job.offsets
        self._run = run
        self._durations: Int64 | None = None
        self._lock = threading.RLock()
        self._empty: list[str] | None = None
        self._lists: OrderedDict[Query, Int64 | None] = OrderedDict()

    def __len__(self) -> int:
        return int(self._offsets[-1])

    @property
    def simulated(self) -> bool:
        """Whether times come from a simulated run."""
        return self._run is not None

    def select(self, query: Query) -> Int64 | None:
        """Return the indices of a query's nodes in its order; None for all nodes in file order.

        Raises:
            TraceError: A condition is about a column that does not exist, or compares a number with something else.
        """
        with self._lock:
            if query in self._lists:
                self._lists.move_to_end(query)
                return self._lists[query]
            places: Int64 | None
            if query.order:
                places = self._sort(self.select(Query(query.search, query.conditions)), query.order)
            else:
                places = self._filter(query)
            self._lists[query] = places
            while (
                len(self._lists) > 1
                and sum(_count_bytes(kept) for kept in self._lists.values()) > _KEPT_BYTES
            ):
                self._lists.popitem(last=False)
            return places

    def count(self, query: Query) -> int:
        """Return the number of nodes of a query."""
        chosen = self.select(query)
        return len(self) if chosen is None else len(chosen)

    def rows(self, query: Query, start: int, end: int) -> list[Node]:
        """Return the nodes `start` to `end` of a query's list."""
        chosen = self.select(query)
        places = range(start, min(end, len(self))) if chosen is None else chosen[start:end].tolist()
        return [self.node(place) for place in places]

    def node(self, place: int) -> Node:
        """Return one node of the list of all nodes."""
        index = int(np.searchsorted(self._offsets, place, side="right")) - 1
        rank, row = self.trace.ranks[index], int(place - self._offsets[index])
        graph, columns = self.trace.graph_of(rank), self.job.columns_of(rank.graph)
        collective, slot = int(columns.collective[row]), int(columns.group_slot[row])
        before = 0 if columns.again is None else int(columns.again[row])
        recorded = int(columns.start_ns[row]), int(columns.end_ns[row]), int(columns.duration_ns[row])
        start, end, duration = recorded if self._run is None else _get_run_times(self._run, index, row)
        return Node(
            ref=f"{graph.id[row]}.{before}" if before else str(graph.id[row]),
            rank=rank.number,
            id=int(graph.id[row]),
            name=graph.strings[int(graph.name[row])],
            type=label_counted_type(int(columns.type[row])),
            collective=_label_collective(collective),
            group=str(rank.slots[slot]) if slot != NONE else "",
            bytes=int(columns.bytes[row]),
            operations=int(columns.operations[row]),
            start_ns=start,
            end_ns=end,
            duration_ns=duration,
            recorded_start_ns=recorded[0],
            recorded_duration_ns=recorded[2],
            waits_for=int(columns.waits_for[row]),
        )

    def empty_columns(self) -> list[str]:
        """Return the columns in which no node of the job has a value."""
        if self._empty is None:
            columns = [self.job.columns_of(index) for index in range(len(self.trace.graphs))]
            times = TIME_COLUMNS if self._run is None else _RECORDED  # in a run every node has times
            names = ("collective", "group", "bytes", "operations", *times)
            held = {"group": "group_slot", **_RECORDED}
            self._empty = [
                name
                for name in names
                if all((getattr(columns_of, held.get(name, name)) == NONE).all() for columns_of in columns)
            ]
        return self._empty

    def warm(self) -> None:
        """Compute now what the first page, search and sort by name need."""
        for index in range(len(self.trace.graphs)):
            self.job.columns_of(index)
        self.job.names.keys()

    def place(self, rank: Rank, row: int) -> int:
        """Return the index of a node in the list of all nodes."""
        return int(self._offsets[self.trace.ranks.index(rank)]) + row

    def position(self, query: Query, place: int) -> int | None:
        """Return the position in a query's list of a node of the full list, None if it is not in it."""
        chosen = self.select(query)
        if chosen is None:
            return place
        places = np.flatnonzero(chosen == place)
        return int(places[0]) if len(places) else None

    def _filter(self, query: Query) -> Int64 | None:
        keep: Bool | None = None
        for alternatives in query.conditions:
            fits = np.logical_or.reduce([self._fits(condition) for condition in alternatives])
            keep = fits if keep is None else keep & fits
        if query.search:
            matches = self._fits(Condition("name", "contains", query.search))
            if re.fullmatch("[0-9]{1,20}", query.search):
                matches = matches | self._fits(Condition("id", "equals", query.search))
            keep = matches if keep is None else keep & matches
        return None if keep is None else _narrow_indices(np.flatnonzero(keep), len(self))

    def _sort(self, chosen: Int64 | None, order: tuple[tuple[str, bool], ...]) -> Int64:
        places = _narrow_indices(np.arange(len(self)), len(self)) if chosen is None else chosen
        for column, falling in reversed(order):
            keys = self._compute_keys(column)
            # A stable sort of turned keys keeps equal nodes in their order also when it falls.
            turned = _narrow_keys(keys[places], falling=falling)
            places = places[_sort_keys(turned)]
        return places

    def _fits(self, condition: Condition) -> Bool:
        """Return for every node whether a condition holds."""
        if condition.column in TEXT_COLUMNS:
            return self._match_text(condition)
        if condition.column not in NUMBER_COLUMNS:
            raise _build_column_error(condition.column)
        if condition.column == "rank":
            numbers = np.array([rank.number for rank in self.trace.ranks], np.int64)
            return np.repeat(_match_numbers(numbers, condition), np.diff(self._offsets))
        if self._run is not None and condition.column in TIME_COLUMNS:
            return _match_numbers(self._compute_run_column(self._run, condition.column), condition)
        by_graph = [
            _match_numbers(self._get_numbers(i, condition.column), condition)
            for i in range(len(self.trace.graphs))
        ]
        return self._spread_over_ranks(by_graph)

    def _match_text(self, condition: Condition) -> Bool:
        if condition.column == "name":
            names = self.job.names.pool()
            fits = _match_texts(names.lower, condition)
            return self._spread_over_ranks([fits[index] for index in names.index])
        if condition.column == "group":
            parts = []
            for rank in self.trace.ranks:
                fits = _match_texts(lower_case([*map(str, rank.slots), ""]), condition)
                parts.append(fits[self.job.columns_of(rank.graph).group_slot])
            return np.concatenate(parts) if parts else np.zeros(0, bool)
        by_graph = []
        for index in range(len(self.trace.graphs)):
            numbers, inverse = _index_distinct(self._get_numbers(index, condition.column))
            fits = _match_texts(
                lower_case([_NAMES[condition.column](number) for number in numbers]), condition
            )
            by_graph.append(fits[inverse])
        return self._spread_over_ranks(by_graph)

    def _compute_keys(self, column: str) -> NDArray[Any]:
        """Return for every node a number that sorts like the column; -1 where it has no value."""
        if column not in COLUMNS:
            raise _build_column_error(column)
        if column == "rank":
            return np.repeat(
                np.array([rank.number for rank in self.trace.ranks], np.int64), np.diff(self._offsets)
            )
        if self._run is not None and column in TIME_COLUMNS:
            return self._compute_run_column(self._run, column)
        if column == "group":
            order = index_text_keys({str(value) for rank in self.trace.ranks for value in rank.slots})
            by_slot = [
                np.array([*(order[str(value)] for value in rank.slots), NONE]) for rank in self.trace.ranks
            ]
            parts = [
                slots[self.job.columns_of(rank.graph).group_slot]
                for rank, slots in zip(self.trace.ranks, by_slot, strict=True)
            ]
            return np.concatenate(parts) if parts else np.zeros(0, np.int64)
        if column == "name":
            names, keys = self.job.names.pool(), self.job.names.keys()
            return self._spread_over_ranks([keys[index] for index in names.index])
        by_graph = [self._get_numbers(index, column) for index in range(len(self.trace.graphs))]
        if column in TEXT_COLUMNS:
            used = {number for numbers in by_graph for number in _index_distinct(numbers)[0]}
            order = index_text_keys({_NAMES[column](number) for number in used})
            by_graph = [
                _renumber(numbers, lambda number: order[_NAMES[column](number)]) for numbers in by_graph
            ]
        return self._spread_over_ranks(by_graph)

    def _get_numbers(self, index: int, column: str) -> NDArray[Any]:
        if column == "id":
            stored: NDArray[Any] = self.trace.graphs[index].id
            return stored
        values: Int64 = getattr(self.job.columns_of(index), _RECORDED.get(column, column))
        return values

    def _spread_over_ranks(self, by_graph: list[NDArray[Any]]) -> NDArray[Any]:
        parts = [by_graph[rank.graph] for rank in self.trace.ranks]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _compute_run_column(self, run: NodeTimes, column: str) -> Int64:
        """Return start, end or duration of every node in a run; -1 where it did not run."""
        start, end = run.of_nodes(self.trace)
        if column != "duration_ns":
            return start if column == "start_ns" else end
        if self._durations is None:
            self._durations = np.where((start < 0) | (end < 0), NONE, end - start)
        return self._durations


def _get_run_times(times: NodeTimes, index: int, row: int) -> tuple[int, int, int]:
    """Return start, end and duration of a node in a run, -1 where it did not run."""
    first = int(times.first[index])
    if first < 0:
        return NONE, NONE, NONE
    start, end = int(times.start_ns[first + row]), int(times.end_ns[first + row])
    return start, end, end - start if start >= 0 and end >= 0 else NONE


def _build_columns(graph: Graph, origin_ns: int) -> _Columns:
    nodes = collect_comm_nodes(graph)
    group_slot = np.full(len(graph), NONE, np.int64)
    group_slot[nodes.rows] = nodes.group_slot
    start_ns = np.where(graph.start_ns >= 0, graph.start_ns - origin_ns, NONE)
    return _Columns(
        type=infer_counted_types(graph),
        collective=np.where(
            graph.type == NodeType.COMM_COLL, read_dense_column(graph, "comm_type", NONE), NONE
        ),
        bytes=read_dense_column(graph, "comm_size", NONE),
        operations=read_dense_column(graph, "num_ops", NONE),
        start_ns=start_ns,
        end_ns=np.where(
            (start_ns >= 0) & (graph.duration_ns != 0), compute_recorded_ends(graph) - origin_ns, NONE
        ),
        duration_ns=np.where(graph.duration_ns == 0, NONE, graph.duration_ns),
        waits_for=np.diff(graph.ctrl.offsets) + np.diff(graph.data.offsets),
        group_slot=group_slot,
        again=_count_earlier(graph.id),
    )


def _count_earlier(ids: UInt64) -> Int64 | None:
    """Return how many earlier nodes have the same id, None where all ids differ."""
    if bool((ids[1:] > ids[:-1]).all()):
        return None
    order = np.argsort(ids, kind="stable")
    first = np.append(True, ids[order][1:] != ids[order][:-1])
    if first.all():
        return None
    places = np.arange(len(ids))
    again = np.empty(len(ids), np.int64)
    again[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return again


def _label_collective(number: int) -> str:
    return "" if number == NONE else label_collective(number)


_NAMES: dict[str, Callable[[int], str]] = {"type": label_counted_type, "collective": _label_collective}


def _renumber(numbers: NDArray[Any], number_of: Callable[[int], int]) -> Int64:
    values, inverse = _index_distinct(numbers)
    renumbered: Int64 = np.array([number_of(value) for value in values], np.int64)[inverse]
    return renumbered


def _index_distinct(numbers: NDArray[Any]) -> tuple[list[int], NDArray[Any]]:
    """Return the distinct numbers, sorted, and the index of each; without sorting where they lie close."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if high - low >= _RADIX:
        values, inverse = np.unique(numbers, return_inverse=True)
        return values.tolist(), inverse
    is_used = np.zeros(high - low + 1, bool)
    is_used[numbers - low] = True
    return (np.flatnonzero(is_used) + low).tolist(), (np.cumsum(is_used) - 1)[numbers - low]


def _narrow_keys(keys: NDArray[Any], *, falling: bool) -> NDArray[Any]:
    """Return keys that sort as asked, missing ones (-1) last, in the narrowest type for their range."""
    if keys.dtype == np.uint64:
        return np.iinfo(np.uint64).max - keys if falling else keys
    missing = keys == NONE
    turned = ~keys if falling else keys  # ~x = -1 - x turns every int64 without overflow
    present = turned[~missing]
    if not len(present):
        return np.zeros(len(keys), np.uint8)
    low, high = int(present.min()), int(present.max())
    if high - low + 1 < _RADIX:
        # numpy sorts two-byte integers by radix, in a tenth of the time.
        return np.where(missing, high - low + 1, turned - low).astype(np.uint16)
    last = np.int64(high + 1) if high < 2**63 - 1 else np.int64(high)
    return np.where(missing, last, turned)


def _sort_keys(keys: NDArray[Any]) -> Int64:
    """Return the stable order of keys."""
    if keys.dtype != np.int64 or len(keys) < 2:
        return np.argsort(keys, kind="stable")
    low, high = int(keys.min()), int(keys.max())
    falls = keys[1:] < keys[:-1]
    turns = np.count_nonzero(falls[1:] != falls[:-1])
    if high - low >= _RADIX**2 or turns * _SORTED_RUN < len(keys):
        # Long runs that rise or fall, such as starts, are merged faster than counted.
        return np.argsort(keys, kind="stable")
    # Two bytes at a time, last ones first: less than half the time of comparing numbers.
    words = (keys - low).astype(np.uint32)
    order = np.argsort(words.astype(np.uint16), kind="stable")
    return order[np.argsort((words >> 16).astype(np.uint16)[order], kind="stable")]


def _narrow_indices(places: Int64, total: int) -> Int64:
    """Return indices as 32-bit numbers where they fit."""
    return places.astype(np.int32) if total < 2**31 else places


def _count_bytes(places: Int64 | None) -> int:
    return 0 if places is None else places.nbytes


def _match_texts(lower: pa.LargeStringArray, condition: Condition) -> Bool:
    value, empty = lower_case([condition.value, ""])
    text = value.as_py()
    tests: dict[str, Callable[[], pa.BooleanArray]] = {
        "contains": lambda: pc.match_substring(lower, text),
        "notContains": lambda: pc.invert(pc.match_substring(lower, text)),
        "equals": lambda: pc.equal(lower, value),
        "notEqual": lambda: pc.not_equal(lower, value),
        "startsWith": lambda: pc.starts_with(lower, text),
        "endsWith": lambda: pc.ends_with(lower, text),
        "blank": lambda: pc.equal(lower, empty),
        "notBlank": lambda: pc.not_equal(lower, empty),
    }
    if condition.operator not in tests:
        raise TraceError(
            f"Texts cannot be compared by {condition.operator!r}.", hint=f"Allowed: {', '.join(tests)}."
        )
    return from_arrow(tests[condition.operator]()).astype(np.bool_, copy=False)


def _match_numbers(column: Int64 | UInt64, condition: Condition) -> Bool:
    has_value = np.ones(len(column), bool) if column.dtype == np.uint64 else column != NONE
    if condition.operator in ("blank", "notBlank"):
        return ~has_value if condition.operator == "blank" else has_value
    if condition.operator == "matches":
        return has_value & _is_in_range(column, condition)
    value = _parse_number(condition.value)
    tests: dict[str, Callable[[], Bool]] = {
        "equals": lambda: column == value,
        "notEqual": lambda: column != value,
        "lessThan": lambda: column < value,
        "lessThanOrEqual": lambda: column <= value,
        "greaterThan": lambda: column > value,
        "greaterThanOrEqual": lambda: column >= value,
        "inRange": lambda: (column >= value) & (column <= _parse_number(condition.to)),
    }
    if condition.operator not in tests:
        raise TraceError(
            f"Numbers cannot be compared by {condition.operator!r}.",
            hint=f"Allowed: {', '.join(tests)}, matches.",
        )
    # A node without a value is neither less nor more nor different.
    return has_value & tests[condition.operator]()


def _is_in_range(column: Int64 | UInt64, condition: Condition) -> Bool:
    try:
        asked: Wanted = parse_filter(condition.value, QUANTITIES.get(condition.column, "number"))
    except TraceError as error:
        name = condition.column.removesuffix("_ns").replace("_", " ").capitalize()
        raise TraceError(f"{name}: {error.message}", hint=error.hint) from error
    inside: Bool = (column >= asked.low) & (column <= asked.high)
    return ~inside if asked.outside else inside


def _parse_number(text: str) -> int | float:
    try:
        return int(text) if re.fullmatch("[+-]?[0-9]{1,40}", text.strip()) else float(text)
    except ValueError:
        raise TraceError(
            f"{text[:40]!r} is not a number.", hint="Enter digits, such as 4096 or 1.5e6."
        ) from None


def _build_column_error(name: str) -> TraceError:
    return TraceError(f"There is no column {name[:40]!r}.", hint=f"Columns: {', '.join(COLUMNS)}.")


def format_node_ref(graph: Graph, row: int) -> str:
    """Return the address of a node: its id, with a count if other nodes have the same id.

    Example: "118", or "118.1" for the second node with id 118.
    """
    before = int(np.count_nonzero(graph.id[:row] == graph.id[row]))
    return f"{graph.id[row]}.{before}" if before else str(graph.id[row])


def describe_node(graph: Graph, rank: int, row: int) -> dict[str, Any]:
    """Describe a node of a rank in plain data: the rank's number, the node as addresses have it, its type and its name."""
    return {
        "rank": rank,
        "node": format_node_ref(graph, row),
        "type": label_counted_type(infer_counted_type(graph, row)),
        "name": graph.strings[int(graph.name[row])],
    }


def find_node(graph: Graph, ref: str) -> int:
    """Return the row of the node that an address names.

    Raises:
        TraceError: The graph has no such node.
    """
    match = _REF.fullmatch(ref)
    if match and int(match["id"]) < 2**64:
        rows = np.flatnonzero(graph.id == np.uint64(int(match["id"])))
        again = int(match["again"] or 0)
        if again < len(rows):
            return int(rows[again])
    raise TraceError(f"This rank has no node {ref[:40]!r}.", hint="Nodes are named by the id in their file.")
