"""Every node of every rank as one searchable, sortable list.

The list is never built: a place in it is a number. Filters and sort keys are computed once for each distinct
graph and spread to the ranks that share it; what the answers need is looked up row by row.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from studio.analysis.communication import comm_nodes
from studio.analysis.number_filter import Quantity, Wanted, wanted
from studio.errors import TraceError
from studio.trace import (
    NONE,
    Bool,
    Graph,
    Int32,
    Int64,
    NodeType,
    Rank,
    Strings,
    Trace,
    UInt8,
    UInt64,
    collective_name,
    dense_column,
    type_name,
)

TEXT_COLUMNS = ("name", "type", "collective", "group")
NUMBER_COLUMNS = ("rank", "id", "bytes", "operations", "start_ns", "duration_ns", "waits_for")
COLUMNS = (*TEXT_COLUMNS, *NUMBER_COLUMNS)
QUANTITIES: dict[str, Quantity] = {
    "bytes": "bytes",
    "operations": "count",
    "start_ns": "time",
    "duration_ns": "time",
}
"""Number columns whose filters take units."""

Operator = Literal[
    "contains", "notContains", "equals", "notEqual", "startsWith", "endsWith", "blank", "notBlank",
    "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual", "inRange", "matches",
]  # fmt: skip

_KEPT_BYTES = 64 << 20
_RADIX = 1 << 16
_LONGEST_WORDED = 64
_REF = re.compile(r"(?P<id>[0-9]{1,20})(?:\.(?P<again>[0-9]{1,10}))?")


@dataclass(frozen=True, slots=True)
class Condition:
    """What a column must hold.

    Texts compare without regard to case; `to` is the end of a range. Numbers that `matches` a text are those
    the text asks for, such as `>= 1.5 ms`, see `number_filter.wanted`.
    """

    column: str
    operator: str
    value: str = ""
    to: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """Which nodes, and in which order.

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
        ref: How addresses name it, see `node_ref`.
        rank: Number of its rank.
        id: Id written in the file.
        name, type: As the file and the schema name them.
        collective: Collective of a COMM_COLL node, empty where it has none.
        group: Comm group it names, empty where it names none.
        bytes: Payload of communication on this rank, -1 where none is written.
        operations: Floating-point operations, -1 where none are written.
        start_ns: Recorded start, counted from the first of the job; -1 where none is recorded.
        duration_ns: Recorded duration, -1 where none is recorded or it is 0.
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
    duration_ns: int
    waits_for: int


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the list shows of one graph, besides what the graph itself has.

    N nodes. Numbers are -1 where a node has none.

    Attributes:
        collective, bytes, operations, start_ns, duration_ns, waits_for: (N,) as in `Node`.
        group_slot: (N,) slot that holds the comm group's name.
        again: (N,) how many nodes before have the same id; None where no id repeats.
    """

    collective: Int64
    bytes: Int64
    operations: Int64
    start_ns: Int64
    duration_ns: Int64
    waits_for: Int64
    group_slot: Int64
    again: Int64 | None


class NodeIndex:
    """The nodes of a trace, in order of rank and row, to be filtered and sorted. Threads may share one.

    Attributes:
        trace: The trace.
        origin_ns: First recorded start of all ranks, 0 where there is none; `start_ns` counts from it.
        end_ns: Last recorded end, counted likewise.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        sizes = np.array([len(trace.graphs[rank.graph]) for rank in trace.ranks], np.int64)
        self._offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        started = [graph.start_ns >= 0 for graph in trace.graphs]
        pairs = list(zip(trace.graphs, started, strict=True))
        starts = [int(graph.start_ns[some].min()) for graph, some in pairs if some.any()]
        ends = [int((graph.start_ns + graph.duration_ns)[some].max()) for graph, some in pairs if some.any()]
        self.origin_ns = min(starts, default=0)
        self.end_ns = max(ends, default=0) - self.origin_ns
        self._lock = threading.RLock()
        self._naming = threading.RLock()
        self._columns: dict[int, _Columns] = {}
        self._empty: list[str] | None = None
        self._names: _Names | None = None
        self._name_keys: Int64 | None = None
        self._lists: OrderedDict[Query, Int64 | None] = OrderedDict()

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def select(self, query: Query) -> Int64 | None:
        """Return the places of the nodes a query asks for, in its order; None where that is all nodes as they lie.

        Raises:
            TraceError: A condition is about a column that does not exist, or compares a number with something else.
        """
        with self._lock:
            if query in self._lists:
                self._lists.move_to_end(query)
                return self._lists[query]
            found: Int64 | None
            if query.order:
                found = self._sorted(self.select(Query(query.search, query.conditions)), query.order)
            else:
                found = self._filtered(query)
            self._lists[query] = found
            while len(self._lists) > 1 and sum(_size(kept) for kept in self._lists.values()) > _KEPT_BYTES:
                self._lists.popitem(last=False)
            return found

    def count(self, query: Query) -> int:
        """Return how many nodes a query asks for."""
        chosen = self.select(query)
        return len(self) if chosen is None else len(chosen)

    def rows(self, query: Query, start: int, end: int) -> list[Node]:
        """Return the nodes from `start` to `end` of a query's list."""
        chosen = self.select(query)
        places = range(start, min(end, len(self))) if chosen is None else chosen[start:end].tolist()
        return [self.node(place) for place in places]

    def node(self, place: int) -> Node:
        """Return one node of the list of all nodes."""
        at = int(np.searchsorted(self._offsets, place, side="right")) - 1
        rank, row = self.trace.ranks[at], int(place - self._offsets[at])
        graph, columns = self.trace.graph_of(rank), self._columns_of(rank.graph)
        collective, slot = int(columns.collective[row]), int(columns.group_slot[row])
        before = 0 if columns.again is None else int(columns.again[row])
        return Node(
            ref=f"{graph.id[row]}.{before}" if before else str(graph.id[row]),
            rank=rank.number,
            id=int(graph.id[row]),
            name=graph.strings[int(graph.name[row])],
            type=type_name(int(graph.type[row])),
            collective=_collective_text(collective),
            group=str(rank.slots[slot]) if slot != NONE else "",
            bytes=int(columns.bytes[row]),
            operations=int(columns.operations[row]),
            start_ns=int(columns.start_ns[row]),
            duration_ns=int(columns.duration_ns[row]),
            waits_for=int(columns.waits_for[row]),
        )

    def empty_columns(self) -> list[str]:
        """Return the columns in which no node of the job has a value."""
        if self._empty is None:
            columns = [self._columns_of(index) for index in range(len(self.trace.graphs))]
            slots = {"group": "group_slot"}
            names = ("collective", "group", "bytes", "operations", "start_ns", "duration_ns")
            self._empty = [
                name
                for name in names
                if all((getattr(one, slots.get(name, name)) == NONE).all() for one in columns)
            ]
        return self._empty

    def warm(self) -> None:
        """Do now what the first page, search and sort by name would wait for."""
        for index in range(len(self.trace.graphs)):
            self._columns_of(index)
        self._sorted_names()

    def place(self, rank: Rank, row: int) -> int:
        """Return the place of a node in the list of all nodes."""
        return int(self._offsets[self.trace.ranks.index(rank)]) + row

    def position(self, query: Query, place: int) -> int | None:
        """Return where in a query's list the node at `place` of the list of all nodes is, None if it is not in it."""
        chosen = self.select(query)
        if chosen is None:
            return place
        found = np.flatnonzero(chosen == place)
        return int(found[0]) if len(found) else None

    def _filtered(self, query: Query) -> Int64 | None:
        keep: Bool | None = None
        for alternatives in query.conditions:
            fits = np.logical_or.reduce([self._fits(condition) for condition in alternatives])
            keep = fits if keep is None else keep & fits
        if query.search:
            found = self._fits(Condition("name", "contains", query.search))
            if re.fullmatch("[0-9]{1,20}", query.search):
                found = found | self._fits(Condition("id", "equals", query.search))
            keep = found if keep is None else keep & found
        return None if keep is None else _compact(np.flatnonzero(keep), len(self))

    def _sorted(self, chosen: Int64 | None, order: tuple[tuple[str, bool], ...]) -> Int64:
        places = _compact(np.arange(len(self)), len(self)) if chosen is None else chosen
        for column, falling in reversed(order):
            keys = self._keys(column)
            # A stable sort of turned keys keeps equal nodes in their order also when it falls.
            turned = _sortable(keys[places], falling=falling)
            places = places[np.argsort(turned, kind="stable")]
        return places

    def _fits(self, condition: Condition) -> Bool:
        """Return for every node whether the condition holds."""
        if condition.column in TEXT_COLUMNS:
            return self._text_fits(condition)
        if condition.column not in NUMBER_COLUMNS:
            raise _no_column(condition.column)
        if condition.column == "rank":
            numbers = np.array([rank.number for rank in self.trace.ranks], np.int64)
            return np.repeat(_number_fits(numbers, condition), np.diff(self._offsets))
        by_graph = [
            _number_fits(self._numbers(i, condition.column), condition) for i in range(len(self.trace.graphs))
        ]
        return self._spread(by_graph)

    def _text_fits(self, condition: Condition) -> Bool:
        if condition.column == "name":
            names = self._pool()
            fits = _texts_fit(names.lower, condition)
            return self._spread([fits[index] for index in names.index])
        if condition.column == "group":
            parts = []
            for rank in self.trace.ranks:
                fits = _texts_fit(_lower([*map(str, rank.slots), ""]), condition)
                parts.append(fits[self._columns_of(rank.graph).group_slot])
            return np.concatenate(parts) if parts else np.zeros(0, bool)
        by_graph = []
        for index in range(len(self.trace.graphs)):
            numbers, inverse = _distinct(self._numbers(index, condition.column))
            fits = _texts_fit(_lower([_NAMES[condition.column](number) for number in numbers]), condition)
            by_graph.append(fits[inverse])
        return self._spread(by_graph)

    def _keys(self, column: str) -> NDArray[Any]:
        """Return for every node a number that sorts as the column does; -1 where the node has no value."""
        if column not in COLUMNS:
            raise _no_column(column)
        if column == "rank":
            return np.repeat(
                np.array([rank.number for rank in self.trace.ranks], np.int64), np.diff(self._offsets)
            )
        if column == "group":
            order = _order_of({str(value) for rank in self.trace.ranks for value in rank.slots})
            by_slot = [
                np.array([*(order[str(value)] for value in rank.slots), NONE]) for rank in self.trace.ranks
            ]
            parts = [
                slots[self._columns_of(rank.graph).group_slot]
                for rank, slots in zip(self.trace.ranks, by_slot, strict=True)
            ]
            return np.concatenate(parts) if parts else np.zeros(0, np.int64)
        if column == "name":
            names, keys = self._pool(), self._sorted_names()
            return self._spread([keys[index] for index in names.index])
        by_graph = [self._numbers(index, column) for index in range(len(self.trace.graphs))]
        if column in TEXT_COLUMNS:
            used = {number for numbers in by_graph for number in _distinct(numbers)[0]}
            order = _order_of({_NAMES[column](number) for number in used})
            by_graph = [
                _renumber(numbers, lambda number: order[_NAMES[column](number)]) for numbers in by_graph
            ]
        return self._spread(by_graph)

    def _numbers(self, index: int, column: str) -> NDArray[Any]:
        graph = self.trace.graphs[index]
        if column in ("id", "type"):
            found: NDArray[Any] = getattr(graph, column)
            return found
        values: Int64 = getattr(self._columns_of(index), column)
        return values

    def _spread(self, by_graph: list[NDArray[Any]]) -> NDArray[Any]:
        parts = [by_graph[rank.graph] for rank in self.trace.ranks]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _columns_of(self, index: int) -> _Columns:
        found = self._columns.get(index)
        if found is None:
            with self._lock:
                found = self._columns.setdefault(index, _columns(self.trace.graphs[index], self.origin_ns))
        return found

    def _pool(self) -> _Names:
        with self._naming:
            if self._names is None:
                self._names = _names(self.trace.graphs)
            return self._names

    def _sorted_names(self) -> Int64:
        with self._naming:
            if self._name_keys is None:
                self._name_keys = _text_keys(self._pool().lower)
            return self._name_keys


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of all graphs.

    M names, N nodes of a graph.

    Attributes:
        lower: (M,) names in lower case; those of different graphs may be equal.
        index: For each graph (N,) where the name of a node is.
    """

    lower: pa.LargeStringArray
    index: list[Int32]


def _names(graphs: tuple[Graph, ...]) -> _Names:
    chunks, index, before = [], [], 0
    for graph in graphs:
        used = np.zeros(len(graph.strings), bool)
        used[graph.name] = True
        codes = np.flatnonzero(used)
        where = np.zeros(len(used), np.int32)
        where[codes] = np.arange(before, before + len(codes), dtype=np.int32)
        index.append(where[graph.name])
        chunks.append(_lower(_texts(graph.strings, codes)))
        before += len(codes)
    lower = pa.concat_arrays(chunks) if chunks else _lower([])
    return _Names(lower, index)


def _texts(pool: Strings, codes: Int64) -> pa.Array | list[str]:
    """Return some texts of a pool, without making Python objects of them unless one is not UTF-8."""
    buffers = [None, pa.py_buffer(pool.offsets), pa.py_buffer(pool.data)]
    some = pa.Array.from_buffers(pa.large_binary(), len(pool), buffers).take(pa.array(codes))
    try:
        return some.cast(pa.large_string())
    except pa.ArrowInvalid:
        return [pool[code] for code in codes.tolist()]


def _lower(texts: pa.Array | list[str]) -> pa.LargeStringArray:
    if isinstance(texts, list):
        # Half a surrogate pair can come from an address, and no text that Arrow holds.
        texts = pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.large_string())
    return pc.utf8_lower(texts)


def _text_keys(lower: pa.LargeStringArray) -> Int64:
    """Return numbers that sort as the texts do, equal where the texts are, -1 for the empty text."""
    offsets = np.frombuffer(lower.buffers()[1], np.int64)[lower.offset : lower.offset + len(lower) + 1]
    lengths = np.diff(offsets)
    if lengths.max(initial=0) > _LONGEST_WORDED:
        coded = lower.dictionary_encode()
        order, at = pc.sort_indices(coded.dictionary).to_numpy(), coded.indices.to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        rank[order[: int((lengths == 0).any())]] = NONE  # the empty text comes first
        spread: Int64 = rank[at]
        return spread
    # Eight bytes at a time as one number, last ones first: half the time of comparing texts.
    data = np.frombuffer(lower.buffers()[2] or b"", np.uint8)
    order, differs = (
        np.argsort(lengths.astype(np.uint16), kind="stable"),
        np.zeros(max(len(lower) - 1, 0), bool),
    )
    words = [_word(data, offsets[:-1], lengths, start) for start in range(0, int(lengths.max(initial=0)), 8)]
    for word in reversed(words):
        order = order[np.argsort(word[order], kind="stable")]
    for column in (lengths, *words):
        differs |= column[order][1:] != column[order][:-1]
    keys = np.empty(len(lower), np.int64)
    keys[order] = np.append(np.zeros(min(len(lower), 1), np.int64), np.cumsum(differs))
    keys[lengths == 0] = NONE
    return keys


def _word(data: UInt8, starts: Int64, lengths: Int64, at: int) -> UInt64:
    """Return eight bytes of each text from byte `at` as a number that sorts as they do; missing bytes are 0."""
    there = np.clip(lengths - at, 0, 8)
    some = np.flatnonzero(there)
    padded = np.concatenate((data, np.zeros(8, np.uint8)))
    words = np.ndarray(len(data) + 1, ">u8", padded, strides=(1,))
    word = np.zeros(len(lengths), np.uint64)
    word[some] = words[starts[some] + at] & ~np.uint64(0) << (8 * (8 - there[some])).astype(np.uint64)
    return word


def _order_of(texts: set[str]) -> dict[str, int]:
    listed = sorted(texts)
    return dict(zip(listed, _text_keys(_lower(listed)).tolist(), strict=True))


def _columns(graph: Graph, origin_ns: int) -> _Columns:
    nodes = comm_nodes(graph)
    group_slot = np.full(len(graph), NONE, np.int64)
    group_slot[nodes.rows] = nodes.group_slot
    return _Columns(
        collective=np.where(graph.type == NodeType.COMM_COLL, dense_column(graph, "comm_type", NONE), NONE),
        bytes=dense_column(graph, "comm_size", NONE),
        operations=dense_column(graph, "num_ops", NONE),
        start_ns=np.where(graph.start_ns >= 0, graph.start_ns - origin_ns, NONE),
        duration_ns=np.where(graph.duration_ns == 0, NONE, graph.duration_ns),
        waits_for=np.diff(graph.ctrl.offsets) + np.diff(graph.data.offsets),
        group_slot=group_slot,
        again=_again(graph.id),
    )


def _again(ids: UInt64) -> Int64 | None:
    """Return how many ids before are equal to each, None where all differ."""
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


def _collective_text(number: int) -> str:
    return "" if number == NONE else collective_name(number)


_NAMES: dict[str, Callable[[int], str]] = {"type": type_name, "collective": _collective_text}


def _renumber(numbers: NDArray[Any], number_of: Callable[[int], int]) -> Int64:
    values, inverse = _distinct(numbers)
    renumbered: Int64 = np.array([number_of(value) for value in values], np.int64)[inverse]
    return renumbered


def _distinct(numbers: NDArray[Any]) -> tuple[list[int], NDArray[Any]]:
    """Return the distinct numbers, rising, and where each is among them; without sorting where they lie close."""
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if high - low >= _RADIX:
        values, inverse = np.unique(numbers, return_inverse=True)
        return values.tolist(), inverse
    there = np.zeros(high - low + 1, bool)
    there[numbers - low] = True
    return (np.flatnonzero(there) + low).tolist(), (np.cumsum(there) - 1)[numbers - low]


def _sortable(keys: NDArray[Any], *, falling: bool) -> NDArray[Any]:
    """Return keys whose rising order is the order asked for, missing ones (-1) last; as narrow as their range allows."""
    if keys.dtype == np.uint64:
        return np.iinfo(np.uint64).max - keys if falling else keys
    missing = keys == NONE
    turned = ~keys if falling else keys  # ~x = -1 - x turns every int64 without overflow
    there = turned[~missing]
    if not len(there):
        return np.zeros(len(keys), np.uint8)
    low, high = int(there.min()), int(there.max())
    if high - low + 1 < _RADIX:
        # numpy sorts two-byte integers by radix, in a tenth of the time.
        return np.where(missing, high - low + 1, turned - low).astype(np.uint16)
    last = np.int64(high + 1) if high < 2**63 - 1 else np.int64(high)
    return np.where(missing, last, turned)


def _compact(places: Int64, total: int) -> Int64:
    """Return places in half the memory where they fit."""
    return places.astype(np.int32) if total < 2**31 else places


def _size(places: Int64 | None) -> int:
    return 0 if places is None else places.nbytes


def _texts_fit(lower: pa.LargeStringArray, condition: Condition) -> Bool:
    value = _lower([condition.value])[0]
    text = value.as_py()
    tests: dict[str, Callable[[], pa.BooleanArray]] = {
        "contains": lambda: pc.match_substring(lower, text),
        "notContains": lambda: pc.invert(pc.match_substring(lower, text)),
        "equals": lambda: pc.equal(lower, value),
        "notEqual": lambda: pc.not_equal(lower, value),
        "startsWith": lambda: pc.starts_with(lower, text),
        "endsWith": lambda: pc.ends_with(lower, text),
        "blank": lambda: pc.equal(lower, pa.scalar("", pa.large_string())),
        "notBlank": lambda: pc.not_equal(lower, pa.scalar("", pa.large_string())),
    }
    if condition.operator not in tests:
        raise TraceError(
            f"Texts cannot be compared by {condition.operator!r}.", hint=f"Allowed: {', '.join(tests)}."
        )
    found: Bool = tests[condition.operator]().to_numpy(zero_copy_only=False)
    return found.astype(bool, copy=False)


def _number_fits(column: Int64 | UInt64, condition: Condition) -> Bool:
    there = np.ones(len(column), bool) if column.dtype == np.uint64 else column != NONE
    if condition.operator in ("blank", "notBlank"):
        return ~there if condition.operator == "blank" else there
    if condition.operator == "matches":
        return there & _asked(column, condition)
    value = _number(condition.value)
    tests: dict[str, Callable[[], Bool]] = {
        "equals": lambda: column == value,
        "notEqual": lambda: column != value,
        "lessThan": lambda: column < value,
        "lessThanOrEqual": lambda: column <= value,
        "greaterThan": lambda: column > value,
        "greaterThanOrEqual": lambda: column >= value,
        "inRange": lambda: (column >= value) & (column <= _number(condition.to)),
    }
    if condition.operator not in tests:
        raise TraceError(
            f"Numbers cannot be compared by {condition.operator!r}.",
            hint=f"Allowed: {', '.join(tests)}, matches.",
        )
    # A node without a value is neither less nor more nor different.
    return there & tests[condition.operator]()


def _asked(column: Int64 | UInt64, condition: Condition) -> Bool:
    try:
        asked: Wanted = wanted(condition.value, QUANTITIES.get(condition.column, "number"))
    except TraceError as error:
        name = condition.column.removesuffix("_ns").replace("_", " ").capitalize()
        raise TraceError(f"{name}: {error.message}", hint=error.hint) from error
    inside: Bool = (column >= asked.low) & (column <= asked.high)
    return ~inside if asked.outside else inside


def _number(text: str) -> int | float:
    try:
        return int(text) if re.fullmatch("[+-]?[0-9]{1,40}", text.strip()) else float(text)
    except ValueError:
        raise TraceError(
            f"{text[:40]!r} is not a number.", hint="Enter digits, such as 4096 or 1.5e6."
        ) from None


def _no_column(name: str) -> TraceError:
    return TraceError(f"There is no column {name[:40]!r}.", hint=f"Columns: {', '.join(COLUMNS)}.")


def node_ref(graph: Graph, row: int) -> str:
    """Return how addresses name a node: its id, with its number among the nodes of that id if it is not the first.

    Example: "118", or "118.1" for the second node with id 118.
    """
    before = int(np.count_nonzero(graph.id[:row] == graph.id[row]))
    return f"{graph.id[row]}.{before}" if before else str(graph.id[row])


def find_node(graph: Graph, ref: str) -> int:
    """Return the row of the node a ref names.

    Raises:
        TraceError: The graph has no such node.
    """
    found = _REF.fullmatch(ref)
    if found and int(found["id"]) < 2**64:
        rows = np.flatnonzero(graph.id == np.uint64(int(found["id"])))
        again = int(found["again"] or 0)
        if again < len(rows):
            return int(rows[again])
    raise TraceError(f"This rank has no node {ref[:40]!r}.", hint="Nodes are named by the id in their file.")
