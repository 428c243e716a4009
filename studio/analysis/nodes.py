"""Every node of every rank as one searchable, sortable list.

The list is never built: a place in it is a number, and columns are spread from the distinct graphs to the ranks
only while a filter or a sort order needs them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from studio.analysis.communication import WORLD, comm_nodes
from studio.errors import TraceError
from studio.trace import NONE, Bool, Graph, Int32, Int64, NodeType, Rank, Trace, UInt64, collective_name, int_column, type_name

TEXT_COLUMNS = ("name", "type", "collective", "group")
NUMBER_COLUMNS = ("rank", "id", "bytes", "operations", "start_ns", "duration_ns", "waits_for")
COLUMNS = (*TEXT_COLUMNS, *NUMBER_COLUMNS)
_ORDERS_KEPT = 8

Operator = Literal[
    "contains", "notContains", "equals", "notEqual", "startsWith", "endsWith", "blank", "notBlank",
    "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual", "inRange",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """What a column must hold. Texts compare without regard to case; `to` is the end of a range."""

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
        order: Columns to sort by, with whether the order falls.
    """

    search: str = ""
    conditions: tuple[tuple[Condition, ...], ...] = ()
    order: tuple[tuple[str, bool], ...] = ()


class NodeIndex:
    """The nodes of a trace, in order of rank and row, to be filtered and sorted."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        sizes = np.array([len(trace.graphs[rank.graph]) for rank in trace.ranks], np.int64)
        self.offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        self._columns: dict[str, NDArray[Any]] = {}
        self._texts: dict[str, list[str]] = {}
        self._orders: OrderedDict[Query, Int64 | None] = OrderedDict()

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def select(self, query: Query) -> Int64 | None:
        """Return the places of the nodes a query asks for, in its order; None where that is all nodes as they lie.

        Raises:
            TraceError: A condition is about a column that does not exist, or compares a number with something else.
        """
        if query in self._orders:
            self._orders.move_to_end(query)
            return self._orders[query]
        chosen = self._chosen(query)
        if query.order:
            chosen = np.arange(len(self), dtype=np.int64) if chosen is None else chosen
            for column, falling in reversed(query.order):
                keys = self._column(column)[chosen]
                # A stable sort of the negated keys keeps equal nodes in their order also when it falls.
                chosen = chosen[np.argsort(_falling(keys) if falling else keys, kind="stable")]
        self._orders[query] = chosen
        while len(self._orders) > _ORDERS_KEPT:
            self._orders.popitem(last=False)
        return chosen

    def count(self, query: Query) -> int:
        """Return how many nodes a query asks for."""
        chosen = self.select(query)
        return len(self) if chosen is None else len(chosen)

    def rows(self, query: Query, start: int, end: int) -> list[dict[str, Any]]:
        """Return the nodes from `start` to `end` of a query's list, with all columns."""
        chosen = self.select(query)
        end = min(end, len(self))
        places = np.arange(start, end) if chosen is None else chosen[start:end]
        return [self.node(int(place)) for place in places]

    def node(self, place: int) -> dict[str, Any]:
        """Return one node of the list, with all columns."""
        at = int(np.searchsorted(self.offsets, place, side="right")) - 1
        rank, row = self.trace.ranks[at], int(place - self.offsets[at])
        graph = self.trace.graph_of(rank)
        found: dict[str, Any] = {
            "ref": node_ref(graph, row),
            "rank": rank.number,
            "id": str(int(graph.id[row])),
            "name": graph.strings[int(graph.name[row])],
            "type": type_name(int(graph.type[row])),
        }
        for column in ("collective", "group"):
            found[column] = self._texts_of(column)[int(self._per_rank(column, rank)[row])]
        for column in ("bytes", "operations", "start_ns", "duration_ns", "waits_for"):
            found[column] = int(self._per_rank(column, rank)[row])
        return found

    def place(self, rank: Rank, row: int) -> int:
        """Return the place of a node in the list of all nodes."""
        at = next(i for i, one in enumerate(self.trace.ranks) if one.number == rank.number)
        return int(self.offsets[at]) + row

    def _chosen(self, query: Query) -> Int64 | None:
        keep: Bool | None = None
        for alternatives in query.conditions:
            fits = np.logical_or.reduce([self._fits(condition) for condition in alternatives])
            keep = fits if keep is None else keep & fits
        if query.search:
            found = self._fits(Condition("name", "contains", query.search))
            if query.search.isdecimal() and int(query.search) < 2**64:
                found |= self._column("id") == np.uint64(int(query.search))
            keep = found if keep is None else keep & found
        return None if keep is None else np.flatnonzero(keep)

    def _fits(self, condition: Condition) -> Bool:
        if condition.column in TEXT_COLUMNS:
            texts = self._texts_of(condition.column)
            keep = np.array([_text_fits(text.lower(), condition) for text in texts], bool)
            return keep[self._column(condition.column)]
        if condition.column in NUMBER_COLUMNS:
            return _number_fits(self._column(condition.column), condition)
        raise TraceError(f"There is no column {condition.column!r}.", hint=f"Columns: {', '.join(COLUMNS)}.")

    def _column(self, name: str) -> NDArray[Any]:
        """Return a column for all nodes: numbers, or indices into sorted texts."""
        if name not in COLUMNS:
            raise TraceError(f"There is no column {name!r}.", hint=f"Columns: {', '.join(COLUMNS)}.")
        if name not in self._columns:
            if name == "rank":
                numbers = np.array([rank.number for rank in self.trace.ranks], np.int64)
                self._columns[name] = np.repeat(numbers, np.diff(self.offsets))
            else:
                parts = [self._per_rank(name, rank) for rank in self.trace.ranks]
                self._columns[name] = np.concatenate(parts) if parts else np.empty(0, np.int64)
        return self._columns[name]

    def _texts_of(self, name: str) -> list[str]:
        """Return the distinct texts of a column, sorted, so that their indices sort as they do."""
        if name not in self._texts:
            find: dict[str, Callable[[], set[str]]] = {
                "name": self._names,
                "type": lambda: {type_name(n) for g in self.trace.graphs for n in np.unique(g.type).tolist()},
                "collective": self._collectives,
                "group": self._groups,
            }
            self._texts[name] = sorted(find[name](), key=lambda text: (text.lower(), text))
        return self._texts[name]

    def _names(self) -> set[str]:
        found: set[str] = set()
        for graph in self.trace.graphs:
            pool = list(graph.strings)
            found.update(pool[code] for code in np.unique(graph.name).tolist())
        return found

    def _collectives(self) -> set[str]:
        numbers = {n for graph in self.trace.graphs for n in np.unique(_collective(graph)).tolist()}
        return {"" if n == NONE else collective_name(n) for n in numbers} | {""}

    def _groups(self) -> set[str]:
        return {""} | {str(value) for rank in self.trace.ranks for value in rank.slots}

    def _per_rank(self, name: str, rank: Rank) -> NDArray[Any]:
        """Return a column for the nodes of one rank; ranks that share a graph share it, unless it is the group."""
        graph = self.trace.graph_of(rank)
        key = f"{name}/{rank.number if name == 'group' else f'graph {rank.graph}'}"
        if key not in self._columns:
            self._columns[key] = self._make(name, graph, rank)
        return self._columns[key]

    def _make(self, name: str, graph: Graph, rank: Rank) -> NDArray[Any]:
        if name in TEXT_COLUMNS:
            index = {text: at for at, text in enumerate(self._texts_of(name))}
            return _text_column(name, graph, rank, index)
        simple: dict[str, Callable[[], NDArray[Any]]] = {
            "id": lambda: graph.id,
            "start_ns": lambda: graph.start_ns,
            "duration_ns": lambda: graph.duration_ns,
            "bytes": lambda: _dense(graph, "comm_size"),
            "operations": lambda: _dense(graph, "num_ops"),
            "waits_for": lambda: np.diff(graph.ctrl.offsets) + np.diff(graph.data.offsets),
        }
        return simple[name]()


def _dense(graph: Graph, key: str, missing: int = 0) -> Int64:
    column = np.full(len(graph), missing, np.int64)
    rows, values = int_column(graph, key)
    column[rows] = values
    return column


def _collective(graph: Graph) -> Int64:
    """Return the (N,) collective of each node, -1 for nodes that are no collective."""
    return np.where(graph.type == NodeType.COMM_COLL, _dense(graph, "comm_type", NONE), NONE)


def _text_column(name: str, graph: Graph, rank: Rank, index: dict[str, int]) -> Int32:
    if name == "name":
        pool = list(graph.strings)
        codes = np.zeros(len(pool), np.int32)
        for code in np.unique(graph.name).tolist():
            codes[code] = index[pool[code]]
        return codes[graph.name]
    if name == "group":
        nodes = comm_nodes(graph)
        by_slot = np.array([*(index.get(str(value), 0) for value in rank.slots), index[WORLD]], np.int32)
        column = np.full(len(graph), index[WORLD], np.int32)
        column[nodes.rows] = by_slot[nodes.group_slot]
        return column
    numbers = graph.type if name == "type" else _collective(graph)
    values, inverse = np.unique(numbers, return_inverse=True)
    label = type_name if name == "type" else (lambda n: "" if n == NONE else collective_name(n))
    return np.array([index[label(int(n))] for n in values], np.int32)[inverse]


def _falling(keys: NDArray[Any]) -> NDArray[Any]:
    """Return keys whose rising order is the falling order of `keys`."""
    return np.iinfo(np.uint64).max - keys if keys.dtype == np.uint64 else -keys.astype(np.int64)


def _text_fits(text: str, condition: Condition) -> bool:
    value = condition.value.lower()
    tests: dict[str, Callable[[], bool]] = {
        "contains": lambda: value in text,
        "notContains": lambda: value not in text,
        "equals": lambda: text == value,
        "notEqual": lambda: text != value,
        "startsWith": lambda: text.startswith(value),
        "endsWith": lambda: text.endswith(value),
        "blank": lambda: not text,
        "notBlank": lambda: bool(text),
    }
    if condition.operator not in tests:
        raise TraceError(f"Texts cannot be compared by {condition.operator!r}.", hint=f"Allowed: {', '.join(tests)}.")
    return tests[condition.operator]()


def _number_fits(column: Int64 | UInt64, condition: Condition) -> Bool:
    if condition.operator in ("blank", "notBlank"):
        return (column < 0) if condition.operator == "blank" else (column >= 0)
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
        raise TraceError(f"Numbers cannot be compared by {condition.operator!r}.", hint=f"Allowed: {', '.join(tests)}.")
    return tests[condition.operator]()


def _number(text: str) -> int | float:
    try:
        return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise TraceError(f"{text!r} is not a number.", hint="Enter digits, such as 4096 or 1.5e6.") from None


def node_ref(graph: Graph, row: int) -> str:
    """Return how addresses name a node: its id, with its number among the nodes of that id if it is not the first.

    Example: "118", or "118.1" for the second node with id 118.
    """
    number = graph.id[row]
    before = int((graph.id[:row] == number).sum()) if _repeats(graph) else 0
    return f"{int(number)}.{before}" if before else str(int(number))


def find_node(graph: Graph, ref: str) -> int:
    """Return the row of the node a ref names.

    Raises:
        TraceError: The graph has no such node.
    """
    number, _, again = ref.partition(".")
    if number.isdecimal() and int(number) < 2**64 and (again.isdecimal() or not again):
        rows = np.flatnonzero(graph.id == np.uint64(int(number)))
        if int(again or 0) < len(rows):
            return int(rows[int(again or 0)])
    raise TraceError(f"This rank has no node {ref[:40]!r}.", hint="Nodes are named by the id in their file.")


def _repeats(graph: Graph) -> bool:
    rising = bool((graph.id[1:] > graph.id[:-1]).all())
    return not rising and len(np.unique(graph.id)) < len(graph)


