"""The list of every node of every rank, searchable and sortable.

The list is never built: a place in it is a number. Filters and sort keys are computed once for each distinct
graph and spread to the ranks that share it, those of a run's times taken from the run as they are; what the answers
need is looked up row by row.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studio.analysis.job.kinds import label_counted_type
from studio.analysis.job.names import index_text_keys, lower_case
from studio.analysis.job.node_columns import (
    COLUMNS,
    LABELS,
    NUMBER_COLUMNS,
    RECORDED_COLUMNS,
    TEXT_COLUMNS,
    TIME_COLUMNS,
    JobColumns,
    label_named_collective,
)
from studio.analysis.job.node_conditions import Condition, build_column_error, match_numbers, match_texts
from studio.analysis.job.node_sorting import index_distinct, narrow_keys, renumber, sort_keys
from studio.timeline import NodeTimes
from studio.trace import NONE, Bool, Int64, Rank, Trace

_KEPT_BYTES = 64 << 20


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
        self.job: JobColumns = JobColumns(trace) if like is None else like.job
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
            collective=label_named_collective(collective),
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
            times = TIME_COLUMNS if self._run is None else RECORDED_COLUMNS  # in a run every node has times
            names = ("collective", "group", "bytes", "operations", *times)
            held = {"group": "group_slot", **RECORDED_COLUMNS}
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
            turned = narrow_keys(keys[places], falling=falling)
            places = places[sort_keys(turned)]
        return places

    def _fits(self, condition: Condition) -> Bool:
        """Return for every node whether a condition holds."""
        if condition.column in TEXT_COLUMNS:
            return self._match_text(condition)
        if condition.column not in NUMBER_COLUMNS:
            raise build_column_error(condition.column)
        if condition.column == "rank":
            numbers = np.array([rank.number for rank in self.trace.ranks], np.int64)
            return np.repeat(match_numbers(numbers, condition), np.diff(self._offsets))
        if self._run is not None and condition.column in TIME_COLUMNS:
            return match_numbers(self._compute_run_column(self._run, condition.column), condition)
        by_graph = [
            match_numbers(self._get_numbers(i, condition.column), condition)
            for i in range(len(self.trace.graphs))
        ]
        return self._spread_over_ranks(by_graph)

    def _match_text(self, condition: Condition) -> Bool:
        if condition.column == "name":
            names = self.job.names.pool()
            fits = match_texts(names.lower, condition)
            return self._spread_over_ranks([fits[index] for index in names.index])
        if condition.column == "group":
            parts = []
            for rank in self.trace.ranks:
                fits = match_texts(lower_case([*map(str, rank.slots), ""]), condition)
                parts.append(fits[self.job.columns_of(rank.graph).group_slot])
            return np.concatenate(parts) if parts else np.zeros(0, bool)
        by_graph = []
        for index in range(len(self.trace.graphs)):
            numbers, inverse = index_distinct(self._get_numbers(index, condition.column))
            fits = match_texts(
                lower_case([LABELS[condition.column](number) for number in numbers]), condition
            )
            by_graph.append(fits[inverse])
        return self._spread_over_ranks(by_graph)

    def _compute_keys(self, column: str) -> NDArray[Any]:
        """Return for every node a number that sorts like the column; -1 where it has no value."""
        if column not in COLUMNS:
            raise build_column_error(column)
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
            used = {number for numbers in by_graph for number in index_distinct(numbers)[0]}
            order = index_text_keys({LABELS[column](number) for number in used})
            by_graph = [
                renumber(numbers, lambda number: order[LABELS[column](number)]) for numbers in by_graph
            ]
        return self._spread_over_ranks(by_graph)

    def _get_numbers(self, index: int, column: str) -> NDArray[Any]:
        if column == "id":
            stored: NDArray[Any] = self.trace.graphs[index].id
            return stored
        values: Int64 = getattr(self.job.columns_of(index), RECORDED_COLUMNS.get(column, column))
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


def _narrow_indices(places: Int64, total: int) -> Int64:
    """Return indices as 32-bit numbers where they fit."""
    return places.astype(np.int32) if total < 2**31 else places


def _count_bytes(places: Int64 | None) -> int:
    return 0 if places is None else places.nbytes
