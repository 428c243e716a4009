"""Changes to graphs that repairs are made of. Nothing is changed in place: every function returns a new graph or trace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from studio.et.link.options import DEP_KINDS
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
    kind_table,
)


def _places(starts: Int64, lengths: Int64) -> Int64:
    """Return starts[i], starts[i] + 1, … lengths[i] of them, for every i, one after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(starts - (ends - lengths), lengths), np.int64)


def _offsets(lengths: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


# ---------------------------------------------------------------------------------------------------
# Dependencies


@dataclass(frozen=True, slots=True)
class Entries:
    """Dependencies of one kind, entry by entry.

    D entries.

    Attributes:
        of: (D,) rows that wait, rising.
        rows: (D,) rows waited for; negative ones are dangling.
        kinds: (D,) why, 0 where nothing says it.
    """

    of: Int64
    rows: Int32
    kinds: Int64

    def kept(self, keep: Bool) -> Entries:
        """Return the entries that `keep` picks."""
        return Entries(self.of[keep], self.rows[keep], self.kinds[keep])


def entries(graph: Graph, deps: Dependencies) -> Entries:
    """Return the control or data dependencies of a graph."""
    of = np.repeat(np.arange(len(graph), dtype=np.int64), np.diff(deps.offsets))
    kinds = np.zeros(len(of), np.int64)
    if deps is graph.data:
        rows, where = _labelled(graph)
        starts, lengths = deps.offsets[rows], graph.attrs.length[where].astype(np.int64)
        kinds[_places(starts, lengths)] = graph.attrs.items[_places(graph.attrs.value[where], lengths)]
    return Entries(of, deps.rows, kinds)


def _labelled(graph: Graph) -> tuple[Int64, Int64]:
    """Return the nodes whose every data dependency says why, and the attribute that does."""
    rows, where = graph.rows_with(DEP_KINDS)
    fits = (graph.attrs.kind[where] == ValueKind.INT32_LIST) & (
        graph.attrs.length[where] == np.diff(graph.data.offsets)[rows]
    )
    rows, where = rows[fits].astype(np.int64), where[fits]
    last = np.append(rows[1:] != rows[:-1], True) if len(rows) else np.zeros(0, bool)
    return rows[last], where[last]


def with_dependencies(graph: Graph, ctrl: Entries, data: Entries) -> Graph:
    """Return a graph with other dependencies; what says why nodes have them follows."""
    rows, where = _labelled(graph)
    counts = np.bincount(data.of, minlength=len(graph))
    mine = np.zeros(len(graph), bool)
    mine[rows] = True
    attrs = _with_lists(graph.attrs, where, counts[rows], data.kinds[mine[data.of]])
    return replace(
        graph,
        ctrl=_dependencies(ctrl, graph.ctrl.dangling, len(graph)),
        data=_dependencies(data, graph.data.dangling, len(graph)),
        attrs=attrs,
    )


def _dependencies(found: Entries, dangling: UInt64, count: int) -> Dependencies:
    rows = found.rows.astype(np.int32)
    # Ids that nothing names any more are dropped, the others numbered anew by their first use.
    absent = -1 - rows[rows < 0].astype(np.int64)
    used, first, number = np.unique(absent, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(used), np.int64)
    place[order] = np.arange(len(used))
    rows[rows < 0] = -1 - place[number]
    return Dependencies(_offsets(np.bincount(found.of, minlength=count)), rows, dangling[used[order]])


def _with_lists(attrs: Attributes, where: Int64, lengths: Int64, items: Int64) -> Attributes:
    """Return attributes with other items in the lists at `where`, all lists laid out anew.

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
    at = np.searchsorted(listed, where)
    order = np.argsort(where, kind="stable")
    sizes[at] = lengths
    starts[at[order]] = len(attrs.items) + _offsets(lengths[order])[:-1]
    pool = np.concatenate([attrs.items, items])
    value, length = attrs.value.copy(), attrs.length.copy()
    value[listed] = _offsets(sizes)[:-1]
    length[listed] = sizes
    return replace(attrs, value=value, length=length, items=pool[_places(starts, sizes)])


def without_dependencies(graph: Graph, drop: Callable[[Entries], Bool]) -> tuple[Graph, int]:
    """Return a graph without the dependencies that `drop` picks, and how many they were."""
    ctrl, data = entries(graph, graph.ctrl), entries(graph, graph.data)
    goes = [drop(one) for one in (ctrl, data)]
    count = int(goes[0].sum() + goes[1].sum())
    if not count:
        return graph, 0
    return with_dependencies(graph, ctrl.kept(~goes[0]), data.kept(~goes[1])), count


def with_data_dependencies(graph: Graph, of: Int64, waited: Int64, kind: int) -> Graph:
    """Return a graph with more data dependencies, of one kind."""
    ctrl, data = entries(graph, graph.ctrl), entries(graph, graph.data)
    every = np.concatenate([data.of, of])
    order = np.argsort(every, kind="stable")
    rows = np.concatenate([data.rows, waited.astype(np.int32)])[order]
    kinds = np.concatenate([data.kinds, np.full(len(of), kind, np.int64)])[order]
    return with_dependencies(graph, ctrl, Entries(every[order], rows, kinds))


# ---------------------------------------------------------------------------------------------------
# Nodes


def with_order(graph: Graph, order: Int64) -> Graph:
    """Return a graph with its nodes, or some of them, in another order; nothing may wait for one that is left out.

    Args:
        graph: The graph.
        order: (M,) its rows in their new order.
    """
    place = np.full(len(graph), NONE, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    attrs = graph.attrs
    picked = _places(attrs.offsets[order], np.diff(attrs.offsets)[order])
    listed = (attrs.kind[picked] % 2 == 0) & (attrs.kind[picked] > 0)
    lengths = attrs.length[picked].astype(np.int64) * listed
    value = attrs.value[picked].copy()
    items = attrs.items[_places(value[listed], lengths[listed])]
    value[listed] = _offsets(lengths[listed])[:-1]
    extra = place[graph.extra_row]
    there = np.argsort(extra, kind="stable")
    there = there[extra[there] != NONE]
    return replace(
        graph,
        id=graph.id[order],
        type=graph.type[order],
        name=graph.name[order],
        start_ns=graph.start_ns[order],
        duration_ns=graph.duration_ns[order],
        ctrl=_moved(graph.ctrl, order, place),
        data=_moved(graph.data, order, place),
        io=graph.io[order] if len(graph.io) else graph.io,
        attrs=Attributes(
            _offsets(np.diff(attrs.offsets)[order]),
            attrs.key[picked],
            attrs.doc[picked],
            attrs.kind[picked],
            value,
            attrs.length[picked],
            attrs.slot[picked],
            items,
        ),
        extra_row=extra[there],
        extra=graph.extra[there],
    )


def _moved(deps: Dependencies, order: Int64, place: Int32) -> Dependencies:
    lengths = np.diff(deps.offsets)[order]
    rows = deps.rows[_places(deps.offsets[order], lengths)].copy()
    of = np.repeat(np.arange(len(order), dtype=np.int64), lengths)
    rows[rows >= 0] = place[rows[rows >= 0]]
    found = Entries(of, rows, np.zeros(len(of), np.int64))
    return _dependencies(found, deps.dangling, len(order))


def without_nodes(graph: Graph, rows: Int64) -> Graph:
    """Return a graph without some nodes; what waited for them waits for what they waited for."""
    gone = np.zeros(len(graph), bool)
    gone[rows] = True
    behind = _behind(graph, rows, gone)
    bridged = [_bridged(entries(graph, deps), gone, behind) for deps in (graph.ctrl, graph.data)]
    # The nodes that go keep no dependencies: they may not be waited for by each other.
    kept = [one.kept(~gone[one.of]) for one in bridged]
    return with_order(with_dependencies(graph, *kept), np.flatnonzero(~gone))


def _behind(graph: Graph, rows: Int64, gone: Bool) -> dict[int, list[int]]:
    """Return, for each node that goes, the nodes it waits for that stay, through others that go."""
    found: dict[int, list[int]] = {}
    for row in rows.tolist():
        seen, stack = {row}, [row]
        stays: dict[int, None] = {}
        while stack:
            at = stack.pop()
            for other in (*graph.ctrl.of(at).tolist(), *graph.data.of(at).tolist()):
                if other < 0 or other in seen:
                    continue
                seen.add(other)
                if gone[other]:
                    stack.append(other)
                else:
                    stays[other] = None
        found[row] = list(stays)
    return found


def _bridged(found: Entries, gone: Bool, behind: Mapping[int, list[int]]) -> Entries:
    hit = np.zeros(len(found.rows), bool)
    hit[found.rows >= 0] = gone[found.rows[found.rows >= 0]]
    at = np.flatnonzero(hit)
    if not len(at):
        return found
    instead = [behind[row] for row in found.rows[at].tolist()]
    lengths = np.ones(len(found.rows), np.int64)
    lengths[at] = [len(rows) for rows in instead]
    rows = np.repeat(found.rows, lengths)
    rows[np.repeat(hit, lengths)] = [row for rows in instead for row in rows]
    bridged = Entries(np.repeat(found.of, lengths), rows, np.repeat(found.kinds, lengths))
    # Where a circle led through what goes, a node would wait for itself.
    return bridged.kept((bridged.rows != bridged.of) | ~np.repeat(hit, lengths))


def with_zero(graph: Graph, key: str, rows: Int64) -> Graph:
    """Return a graph in which some nodes have 0, or false, for an attribute wherever they have a whole number."""
    at, where = graph.rows_with(key)
    value = graph.attrs.value.copy()
    whole = kind_table((*INT_KINDS, ValueKind.BOOL))[graph.attrs.kind[where]]
    value[where[np.isin(at, rows) & whole]] = 0
    return replace(graph, attrs=replace(graph.attrs, value=value))


# ---------------------------------------------------------------------------------------------------
# Jobs


def with_graphs(trace: Trace, made: Mapping[int, Graph]) -> Trace:
    """Return a trace with other graphs in place of some."""
    return replace(trace, graphs=tuple(made.get(index, graph) for index, graph in enumerate(trace.graphs)))


def rank_by_rank(
    trace: Trace, wanted: Mapping[int, Hashable], change: Callable[[Graph, Hashable], Graph]
) -> Trace:
    """Return a trace with the graphs of some ranks changed; ranks of equal graph and wish go on sharing theirs.

    Args:
        trace: The trace.
        wanted: What is wanted of a rank, by its place in the trace.
        change: Makes the new graph of an old one and what is wanted.
    """
    number: dict[tuple[int, Hashable | None], int] = {}
    graphs: list[Graph] = []
    ranks = []
    for at, rank in enumerate(trace.ranks):
        key = (rank.graph, wanted.get(at))
        if key not in number:
            number[key] = len(graphs)
            graph = trace.graphs[rank.graph]
            graphs.append(graph if key[1] is None else change(graph, key[1]))
        ranks.append(replace(rank, graph=number[key]))
    return replace(trace, graphs=tuple(graphs), ranks=tuple(ranks))
