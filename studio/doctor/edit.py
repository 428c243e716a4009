"""Edits of graphs for repairs; every function returns a new graph or trace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from studio.columns import join_ranges
from studio.completion.surgery import with_numbers
from studio.et.link.dep_kinds import find_dep_kinds, read_dep_kinds
from studio.trace import (
    INT_KINDS,
    NONE,
    Attributes,
    Bool,
    Dependencies,
    Graph,
    Int32,
    Int64,
    Trace,
    UInt64,
    ValueKind,
    build_kind_table,
)


def _compute_offsets(lengths: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


# ---------------------------------------------------------------------------------------------------
# Dependencies


@dataclass(frozen=True, slots=True)
class Entries:
    """Dependencies of one kind, one entry each.

    D entries.

    Attributes:
        of: (D,) rows that wait, rising.
        rows: (D,) rows waited for; negative ones are dangling.
        kinds: (D,) why, 0 where nothing says it.
    """

    of: Int64
    rows: Int32
    kinds: Int64

    def keep(self, keep: Bool) -> Entries:
        """Return the entries that `keep` picks."""
        return Entries(self.of[keep], self.rows[keep], self.kinds[keep])


def list_entries(graph: Graph, deps: Dependencies) -> Entries:
    """Return the control or data dependencies of a graph."""
    of = deps.list_waiting()
    kinds = np.zeros(len(of), np.int64)
    if deps is graph.data:
        places, noted = read_dep_kinds(graph)
        kinds[places] = noted
    return Entries(of, deps.rows, kinds)


def with_dependencies(graph: Graph, ctrl: Entries, data: Entries) -> Graph:
    """Return a graph with other dependencies; attributes with their reasons are updated."""
    rows, where = find_dep_kinds(graph)
    counts = np.bincount(data.of, minlength=len(graph))
    is_labelled = np.zeros(len(graph), bool)
    is_labelled[rows] = True
    attrs = _with_lists(graph.attrs, where, counts[rows], data.kinds[is_labelled[data.of]])
    return replace(
        graph,
        ctrl=_build_dependencies(ctrl, graph.ctrl.dangling, len(graph)),
        data=_build_dependencies(data, graph.data.dangling, len(graph)),
        attrs=attrs,
    )


def _build_dependencies(entered: Entries, dangling: UInt64, count: int) -> Dependencies:
    rows = entered.rows.astype(np.int32)
    # Ids that nothing names any more are dropped, the others numbered anew by their first use.
    absent = -1 - rows[rows < 0].astype(np.int64)
    used, first, number = np.unique(absent, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(used), np.int64)
    place[order] = np.arange(len(used))
    rows[rows < 0] = -1 - place[number]
    return Dependencies(
        _compute_offsets(np.bincount(entered.of, minlength=count)), rows, dangling[used[order]]
    )


def _with_lists(attrs: Attributes, where: Int64, lengths: Int64, items: Int64) -> Attributes:
    """Return attributes with other items in the lists at `where`.

    Args:
        attrs: The attributes.
        where: (M,) places of lists.
        lengths: (M,) their new lengths.
        items: The new items, list after list in the order of `where`.
    """
    if not len(where):
        return attrs
    listed = np.flatnonzero((attrs.kind % 2 == 0) & (attrs.kind > 0))
    starts, sizes = attrs.value[listed].copy(), attrs.length[listed].astype(np.int64)
    changed = np.searchsorted(listed, where)
    order = np.argsort(where, kind="stable")
    sizes[changed] = lengths
    starts[changed[order]] = len(attrs.items) + _compute_offsets(lengths[order])[:-1]
    pool = np.concatenate([attrs.items, items])
    value, length = attrs.value.copy(), attrs.length.copy()
    value[listed] = _compute_offsets(sizes)[:-1]
    length[listed] = sizes
    return replace(attrs, value=value, length=length, items=pool[join_ranges(starts, sizes)])


def without_dependencies(graph: Graph, drop: Callable[[Entries], Bool]) -> tuple[Graph, int]:
    """Return a graph without the dependencies that `drop` picks, and how many they were."""
    ctrl, data = list_entries(graph, graph.ctrl), list_entries(graph, graph.data)
    goes = [drop(kind) for kind in (ctrl, data)]
    count = int(goes[0].sum() + goes[1].sum())
    if not count:
        return graph, 0
    return with_dependencies(graph, ctrl.keep(~goes[0]), data.keep(~goes[1])), count


def with_data_dependencies(graph: Graph, of: Int64, waited: Int64, kind: int) -> Graph:
    """Return a graph with more data dependencies, of one kind."""
    ctrl, data = list_entries(graph, graph.ctrl), list_entries(graph, graph.data)
    every = np.concatenate([data.of, of])
    order = np.argsort(every, kind="stable")
    rows = np.concatenate([data.rows, waited.astype(np.int32)])[order]
    kinds = np.concatenate([data.kinds, np.full(len(of), kind, np.int64)])[order]
    return with_dependencies(graph, ctrl, Entries(every[order], rows, kinds))


# ---------------------------------------------------------------------------------------------------
# Nodes


def with_order(graph: Graph, order: Int64) -> Graph:
    """Return a graph with all or some of its nodes in another order; no node may wait for an omitted one.

    Args:
        graph: The graph.
        order: (M,) its rows in their new order.
    """
    place = np.full(len(graph), NONE, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    attrs = graph.attrs
    picked = join_ranges(attrs.offsets[order], np.diff(attrs.offsets)[order])
    listed = (attrs.kind[picked] % 2 == 0) & (attrs.kind[picked] > 0)
    lengths = attrs.length[picked].astype(np.int64) * listed
    value = attrs.value[picked].copy()
    items = attrs.items[join_ranges(value[listed], lengths[listed])]
    value[listed] = _compute_offsets(lengths[listed])[:-1]
    extra = place[graph.extra_row]
    extra_order = np.argsort(extra, kind="stable")
    extra_order = extra_order[extra[extra_order] != NONE]
    return replace(
        graph,
        id=graph.id[order],
        type=graph.type[order],
        name=graph.name[order],
        start_ns=graph.start_ns[order],
        duration_ns=graph.duration_ns[order],
        ctrl=_move_dependencies(graph.ctrl, order, place),
        data=_move_dependencies(graph.data, order, place),
        io=graph.io[order] if len(graph.io) else graph.io,
        attrs=Attributes(
            _compute_offsets(np.diff(attrs.offsets)[order]),
            attrs.key[picked],
            attrs.doc[picked],
            attrs.kind[picked],
            value,
            attrs.length[picked],
            attrs.slot[picked],
            items,
        ),
        extra_row=extra[extra_order],
        extra=graph.extra[extra_order],
    )


def _move_dependencies(deps: Dependencies, order: Int64, place: Int32) -> Dependencies:
    lengths = np.diff(deps.offsets)[order]
    rows = deps.rows[join_ranges(deps.offsets[order], lengths)].copy()
    of = np.repeat(np.arange(len(order), dtype=np.int64), lengths)
    rows[rows >= 0] = place[rows[rows >= 0]]
    moved = Entries(of, rows, np.zeros(len(of), np.int64))
    return _build_dependencies(moved, deps.dangling, len(order))


def without_nodes(graph: Graph, rows: Int64) -> Graph:
    """Return a graph without some nodes; nodes that waited for them wait for their predecessors."""
    gone = np.zeros(len(graph), bool)
    gone[rows] = True
    behind = _map_replacements(graph, rows, gone)
    bridged = [_bridge_entries(list_entries(graph, deps), gone, behind) for deps in (graph.ctrl, graph.data)]
    # The nodes that go keep no dependencies: they may not be waited for by each other.
    kept = [kind.keep(~gone[kind.of]) for kind in bridged]
    return with_order(with_dependencies(graph, *kept), np.flatnonzero(~gone))


def _map_replacements(graph: Graph, rows: Int64, gone: Bool) -> dict[int, list[int]]:
    """Return, for each removed node, the remaining nodes it waits for, directly or through removed ones."""
    behind: dict[int, list[int]] = {}
    for row in rows.tolist():
        seen, stack = {row}, [row]
        stays: dict[int, None] = {}
        while stack:
            node = stack.pop()
            for other in (*graph.ctrl.of(node).tolist(), *graph.data.of(node).tolist()):
                if other < 0 or other in seen:
                    continue
                seen.add(other)
                if gone[other]:
                    stack.append(other)
                else:
                    stays[other] = None
        behind[row] = list(stays)
    return behind


def _bridge_entries(entered: Entries, gone: Bool, behind: Mapping[int, list[int]]) -> Entries:
    hit = np.zeros(len(entered.rows), bool)
    hit[entered.rows >= 0] = gone[entered.rows[entered.rows >= 0]]
    hits = np.flatnonzero(hit)
    if not len(hits):
        return entered
    instead = [behind[row] for row in entered.rows[hits].tolist()]
    lengths = np.ones(len(entered.rows), np.int64)
    lengths[hits] = [len(rows) for rows in instead]
    rows = np.repeat(entered.rows, lengths)
    rows[np.repeat(hit, lengths)] = [row for rows in instead for row in rows]
    bridged = Entries(np.repeat(entered.of, lengths), rows, np.repeat(entered.kinds, lengths))
    # Where a circle led through what goes, a node would wait for itself.
    return bridged.keep((bridged.rows != bridged.of) | ~np.repeat(hit, lengths))


def with_zero(graph: Graph, key: str, rows: Int64) -> Graph:
    """Return a graph with an attribute of some nodes set to 0 or false wherever it is a whole number."""
    owners, where = graph.rows_with(key)
    value = graph.attrs.value.copy()
    whole = build_kind_table((*INT_KINDS, ValueKind.BOOL))[graph.attrs.kind[where]]
    value[where[np.isin(owners, rows) & whole]] = 0
    return replace(graph, attrs=replace(graph.attrs, value=value))


# ---------------------------------------------------------------------------------------------------
# Jobs


def with_graphs(trace: Trace, changed: Mapping[int, Graph]) -> Trace:
    """Return a trace with some graphs replaced."""
    return replace(trace, graphs=tuple(changed.get(index, graph) for index, graph in enumerate(trace.graphs)))


def change_ranks(
    trace: Trace,
    wanted: Mapping[int, Hashable],
    change: Callable[[Graph, Hashable], Graph],
    tick: Callable[[], None] = lambda: None,
) -> Trace:
    """Return a trace with some ranks changed; ranks with equal graphs and changes keep sharing graphs.

    Args:
        trace: The trace.
        wanted: What is wanted of a rank, by its place in the trace.
        change: Makes the new graph of an old one and what is wanted.
        tick: Called before each change; may raise to stop.
    """
    number: dict[tuple[int, Hashable | None], int] = {}
    graphs: list[Graph] = []
    ranks = []
    for index, rank in enumerate(trace.ranks):
        key = (rank.graph, wanted.get(index))
        if key not in number:
            tick()
            number[key] = len(graphs)
            graph = trace.graphs[rank.graph]
            graphs.append(graph if key[1] is None else change(graph, key[1]))
        ranks.append(replace(rank, graph=number[key]))
    return replace(trace, graphs=tuple(graphs), ranks=tuple(ranks))


def with_peers(graph: Graph, key: str, rows: Int64, values: Int64) -> Graph:
    """Return a graph with an attribute of some nodes that is a rank's own set to whole numbers, in slots behind those there are.

    Args:
        graph: The graph.
        key: The attribute.
        rows: (M,) nodes, rising.
        values: (M,) their numbers: each distinct one has a slot, in rising order.
    """
    graph = with_numbers(graph, key, rows, values)
    distinct, number = np.unique(values, return_inverse=True)
    owners, where = graph.rows_with(key)
    here = np.isin(owners, rows)
    attrs = graph.attrs
    value, slot = attrs.value.copy(), attrs.slot.copy()
    value[where[here]] = len(graph.slot_key) + number.reshape(-1)[np.searchsorted(rows, owners[here])]
    slot[where[here]] = True
    code = np.full(len(distinct), graph.strings.find(key), graph.slot_key.dtype)
    return replace(
        graph, attrs=replace(attrs, value=value, slot=slot), slot_key=np.append(graph.slot_key, code)
    )


def drop_unused_slots(trace: Trace) -> Trace:
    """Return a trace without the slots that no attribute has any more, so that ranks name no group and peer that no node names."""
    graphs: list[Graph] = []
    kept: list[Int64] = []
    for graph in trace.graphs:
        bound = graph.attrs.slot
        used, number = np.unique(graph.attrs.value[bound], return_inverse=True)
        kept.append(used)
        if len(used) < len(graph.slot_key):
            value = graph.attrs.value.copy()
            value[bound] = number.reshape(-1)
            attrs = replace(graph.attrs, value=value)
            graphs.append(replace(graph, attrs=attrs, slot_key=graph.slot_key[used]))
        else:
            graphs.append(graph)
    ranks = (
        replace(rank, slots=tuple(rank.slots[slot] for slot in kept[rank.graph].tolist()))
        if len(kept[rank.graph]) < len(rank.slots)
        else rank
        for rank in trace.ranks
    )
    return replace(trace, graphs=tuple(graphs), ranks=tuple(ranks))
