"""Build the graph that a replay plays in the order of recorded times, and read what it holds beyond others.

Nodes keep their rows; time for which a node waited besides is a node of its own behind them. Where gloo carried out a collective on a
thread of its own, that operator meets those of the other ranks; the call returned before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from studio.completion.surgery import append_attributes, build_dependencies, intern_texts, with_numbers
from studio.et.link.dep_kinds import DEP_KINDS
from studio.et.link.operations import LIBRARY
from studio.sim.recorded_waits import BEGINNING, Order, find_callers
from studio.trace import (
    NONE,
    Attributes,
    Graph,
    Int64,
    NodeType,
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
_NO_KINDS = "recorded_dep_kinds"
_COMMUNICATION = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
_CALLS_UP = 3
"""So many callers further out the call may be that an operator of gloo carries out."""


def is_ordered(graph: Graph) -> bool:
    """Whether a graph was ordered by its recorded times."""
    return graph.has_attribute(_LAG)


def read_meeting_rows(graph: Graph) -> Int64:
    """Return (N,) which node meets those of other ranks for each: itself, or the operator of gloo that carries out a call."""
    rows = np.arange(len(graph))
    if is_ordered(graph):
        carriers, calls = read_int_column(graph, _CARRIES)
        rows[calls] = carriers
    return rows


def build_ordered_graph(graph: Graph, order: Order) -> Graph:
    """Return the graph with other dependencies, and with nodes for the time that others waited besides, or that came last."""
    count = len(graph)
    lists: list[list[int]] = [[] for _ in range(count)]
    # What waits equally long after the same end waits for the same node.
    lags: dict[tuple[int, int], int] = {}
    for row in order.rows:
        for source, lag in order.waits[row]:
            if lag:
                lists[row].append(count + lags.setdefault((source, lag), len(lags)))
            elif source != BEGINNING:
                lists[row].append(source)
    for tail in order.tails:
        lags.setdefault(tail, len(lags))
    lags = lags or {(BEGINNING, 0): 0}
    lists += [[] if source == BEGINNING else [source] for source, _ in lags]
    start = [order.begin if source == BEGINNING else order.over[source] for source, _ in lags]
    calls = {row: call for call, row in _find_carriers(graph).items()}
    carriers = np.array(sorted(calls), np.int64)
    graph = with_numbers(
        graph, _CARRIES, carriers, np.array([calls[row] for row in carriers.tolist()], np.int64)
    )
    strings, [name, *codes] = intern_texts(graph.strings, ("replay lag", _LAG, "is_cpu_op", _NO_KINDS))
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


def _find_carriers(graph: Graph) -> dict[int, int]:
    """Return the calls for communication of a rank that an operator of gloo carried out beyond their end: call → operator.

    That is the operator below the call, or, where the recorder noted another caller, the first one that began after the call.
    """
    names = np.array([name.startswith(LIBRARY) for name in graph.strings], np.bool_)
    operators = np.flatnonzero(names[graph.name] & (graph.start_ns >= 0))
    on_device = (read_dense_column(graph, "stream", NONE) >= 0) & ~is_flagged(graph, "is_cpu_op")
    calls = np.flatnonzero(np.isin(graph.type, _COMMUNICATION) & (graph.start_ns >= 0) & ~on_device)
    if not len(operators) or not len(calls):
        return {}
    callers, start = find_callers(graph), graph.start_ns
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
