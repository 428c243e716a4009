"""Repairs of nodes: their ids, their types, and where they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from studio.doctor import edit
from studio.doctor.changes import SHOWN, Change, Tick
from studio.doctor.content import find_call_rows, find_on_cpu_rows
from studio.doctor.diagnosis import Case, GraphCase
from studio.doctor.structure import find_copied_rows, find_repeated_rows
from studio.sim.agreement import label_node
from studio.trace import Graph, Int64, NodeType, Trace, UInt64
from studio.units import format_counted


def renumber(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Remove nodes that are written twice, and give the other nodes of a repeated id new ids."""
    graphs: dict[int, Graph] = {}
    count, removed, first, gone = 0, 0, [], []
    for case in Case(trace, tick).graphs:
        graph = case.graph
        copies = find_copied_rows(graph)
        if len(copies):
            removed += len(copies) * len(case.ranks)
            gone += [f"rank {case.ranks[0]}: {label_node(graph, row)}" for row in copies[:SHOWN].tolist()]
            graph = graphs[case.index] = edit.without_nodes(graph, copies)
        rows = find_repeated_rows(graph)
        if not len(rows):
            continue
        fresh = _find_free_ids(graph.id, len(rows))
        ids = graph.id.copy()
        ids[rows] = fresh
        graphs[case.index] = replace(graph, id=ids)
        count += len(rows) * len(case.ranks)
        pairs = zip(rows[:SHOWN].tolist(), fresh[:SHOWN].tolist(), strict=True)
        first += [f"rank {case.ranks[0]}: {label_node(graph, row)} became node {new}" for row, new in pairs]
    return edit.with_graphs(trace, graphs), [
        Change(f"{format_counted(removed, 'copy', 'copies')} of nodes removed", removed, tuple(gone[:SHOWN])),
        Change(f"{format_counted(count, 'node')} numbered anew", count, tuple(first[:SHOWN])),
    ]


def _find_free_ids(ids: UInt64, count: int) -> UInt64:
    """Return unused ids: those after the largest, or the lowest unused ones."""
    largest = int(ids.max())
    if largest + count < 2**63:
        return np.arange(largest + 1, largest + 1 + count, dtype=np.uint64)
    return np.setdiff1d(np.arange(len(ids) + count, dtype=np.uint64), ids)[:count]


def clear_cpu_flags(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Let communication that says it runs on the processor use the network."""

    def change(graph: Graph, rows: Int64) -> Graph:
        return edit.with_zero(graph, "is_cpu_op", rows)

    return _change_nodes(trace, tick, find_on_cpu_rows, change, "is_cpu_op set to false on")


def convert_calls(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Treat calls that communicate nothing as computation."""

    def change(graph: Graph, rows: Int64) -> Graph:
        types = graph.type.copy()
        types[rows] = NodeType.COMP
        return replace(graph, type=types)

    return _change_nodes(trace, tick, find_call_rows, change, "type set to COMP for")


def _change_nodes(
    trace: Trace,
    tick: Tick,
    chosen: Callable[[GraphCase], Int64],
    change: Callable[[Graph, Int64], Graph],
    done: str,
) -> tuple[Trace, list[Change]]:
    """Change the nodes that `chosen` picks; `done` describes the change, before their number."""
    graphs: dict[int, Graph] = {}
    count, first = 0, []
    for case in Case(trace, tick).graphs:
        rows = chosen(case)
        if len(rows):
            graphs[case.index] = change(case.graph, rows)
            count += len(rows) * len(case.ranks)
            first += [f"rank {case.ranks[0]}: {label_node(case.graph, row)}" for row in rows[:SHOWN].tolist()]
    what = f"{done} {format_counted(count, 'node')}"
    return edit.with_graphs(trace, graphs), [Change(what, count, tuple(first[:SHOWN]))]
