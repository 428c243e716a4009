"""Lay out the tables of graphs, once per distinct graph.

Ranks that share a graph share its node table and bring their own slots (peers, comm groups). Graphs that differ in
recorded times only share it too.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from studio.distinct import find_distinct
from studio.errors import TraceError
from studio.sim.compute import ComputeColumns, find_compute_columns
from studio.sim.kernel import records as k
from studio.sim.lanes import Lanes, assign_lanes
from studio.sim.matched import are_sequence_only
from studio.sim.node_records import MEMORY_TYPES, Columns, Draft, name_node
from studio.sim.phase_lists import put_custom_list
from studio.sim.planning import GraphPlan, Planning
from studio.sim.retimed import have_equal_values
from studio.sim.slots import put_slots
from studio.trace import Graph, Int64, Rank, Trace, iterate_arrays

_UNREAD = ("start_ns", "duration_ns", "attrs.value")
_MOST_COMPARED = 16
"""Graphs that look the same with which another one is compared."""
_NO_PAIRS = np.zeros((2, 0), np.int64)


def plan_graphs(planning: Planning) -> dict[int, GraphPlan]:
    """Return the plan of every graph in use, by its number."""
    known, config = planning.known, planning.config
    if known is None or planning.bundles is None:
        return _plan_all_graphs(planning)
    # Nodes of flows refer to nothing else in the array, so that they serve every plan of these settings.
    key = (
        *(config.roofline, config.remote_memory, config.local_memory_bytes_per_ns, config.extensions),
        *(config.groups, config.topology.npus == 1),
    )
    plans, planning.first_alike = known.once(
        "graphs", key, lambda: (_plan_all_graphs(planning), planning.first_alike)
    )
    # Where a plan's nodes have their children is written into them.
    return {index: replace(plan, nodes=plan.nodes.copy()) for index, plan in plans.items()}


def _plan_all_graphs(planning: Planning) -> dict[int, GraphPlan]:
    """Work out the plan of every graph in use."""
    first_rank: dict[int, Rank] = {}
    for rank in planning.trace.ranks:
        first_rank.setdefault(rank.graph, rank)
    graphs = {index: planning.trace.graphs[index] for index in sorted(first_rank)}
    config = planning.config
    # All graphs differ only in times only if nodes take recorded times.
    recorded = config.roofline is None and config.remote_memory is None
    # What a number's collectives follow, and when communication was recorded, is stored for each graph.
    recorded = recorded and not planning.follows and not planning.replays
    planning.first_alike = _find_alike(planning, graphs) if recorded else {index: index for index in graphs}
    # With a roofline they take times from operations, each a table of its own, in which all else is that of the first.
    timed = _find_alike(planning, graphs) if not recorded and _may_retime(planning, graphs) else {}
    computing: dict[int, ComputeColumns] = {}
    plans: dict[int, GraphPlan] = {}
    for index, graph in graphs.items():
        first = planning.first_alike[index]
        other = timed.get(index, index)
        if other != index and _follow_alike(planning, index, other):
            if other not in computing:
                computing[other] = find_compute_columns(graphs[other])
            plans[index] = _retime_plan(planning, plans[other], graph, first_rank[index], computing[other])
        elif first == index:
            plans[index] = _plan_graph(planning, graph, first_rank[index])
        else:
            durations = np.maximum(graph.duration_ns[plans[first].order], 1)
            plans[index] = replace(plans[first], graph=graph, durations=durations)
    return plans


def _may_retime(planning: Planning, graphs: Mapping[int, Graph]) -> bool:
    """Whether graphs that differ in times and operations differ in the times of compute alone: in those of flows, without memory."""
    return (
        planning.bundles is not None
        and planning.extensions is not None
        and not any(np.isin(graph.type, MEMORY_TYPES).any() for graph in graphs.values())
    )


def _follow_alike(planning: Planning, index: int, other: int) -> bool:
    """Whether the collectives of two graphs follow each other by number in the same way."""
    return np.array_equal(planning.follows.get(index, _NO_PAIRS), planning.follows.get(other, _NO_PAIRS))


def _find_alike(planning: Planning, graphs: dict[int, Graph]) -> dict[int, int]:
    known = planning.known
    if known is None:
        return find_first_alike(graphs)
    return known.once("alike", None, lambda: find_first_alike(graphs))


def _retime_plan(
    planning: Planning, first: GraphPlan, graph: Graph, rank: Rank, columns: ComputeColumns
) -> GraphPlan:
    """Return the plan of a graph that differs from another one in times and operations only."""
    nodes = first.nodes.copy()
    Draft(planning, Columns(graph, first.order), rank, nodes, None).retime(columns)
    return replace(first, graph=graph, nodes=nodes, durations=nodes[:, k.Node.DURATION].copy())


def put_graph(planning: Planning, plan: GraphPlan) -> int:
    """Lay out a graph's nodes and children; returns their offsets."""
    plan.nodes[:, k.Node.CHILDREN] += planning.arena.put(plan.children)
    return planning.arena.put(plan.nodes)


def _plan_graph(planning: Planning, graph: Graph, rank: Rank, custom: bool = False) -> GraphPlan:
    count = len(graph)
    if not count:
        raise TraceError(
            f"rank {rank.number} ({rank.file or 'no file'}): the trace has no nodes",
            hint="Is the file complete? Write or record it again.",
        )
    order = np.argsort(graph.id, kind="stable")
    children, offsets, parents = _build_edges(planning, graph, order, rank, custom=custom)
    columns = Columns(graph, order)
    nodes = np.zeros((count, k.Node.WORDS), np.int64)
    nodes[:, k.Node.CHILDREN] = offsets[:-1]
    nodes[:, k.Node.CHILD_COUNT] = np.diff(offsets)
    draft = Draft(planning, columns, rank, nodes, None if custom else partial(put_custom_lists, planning))
    draft.fill()
    own = (
        assign_lanes(graph, order, nodes[:, k.Node.SLOT], planning.extensions)
        if not custom
        else Lanes(None, 0)
    )
    if own.lane is not None:
        nodes[:, k.Node.LANE] = own.lane
    return GraphPlan(
        graph,
        order,
        nodes,
        children,
        parents,
        nodes[:, k.Node.DURATION].copy(),
        tuple(draft.literals),
        draft.collective_slots,
        frozenset(draft.peer_slots),
        own.count,
    )


def _build_edges(
    planning: Planning, graph: Graph, order: Int64, rank: Rank, *, custom: bool
) -> tuple[Int64, Int64, Int64]:
    """Return children, node after node, where each node's begin, and the number of parents of each."""
    count = len(graph)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    pairs = []
    for deps in (graph.ctrl, graph.data):
        if len(deps.dangling):
            row = int(np.searchsorted(deps.offsets, np.flatnonzero(deps.rows < 0)[0], side="right")) - 1
            raise TraceError(
                f"rank {rank.number}: {name_node(graph, row)} waits for node {deps.dangling[0]}, which is not there",
                hint="The trace is incomplete: record it again, or remove the dependency.",
            )
        child = deps.list_waiting()
        pairs.append(place[deps.rows] * count + place[child])
    if planning.replays and not custom:
        pairs[1] = pairs[1][~are_sequence_only(graph)]
    before, after = planning.follows.get(rank.graph, _NO_PAIRS) if not custom else _NO_PAIRS
    pairs.append(place[before] * count + place[after])
    both = find_distinct(np.concatenate(pairs)) if sum(map(len, pairs)) else np.zeros(0, np.int64)
    parent, child = both // count, both % count
    parents = np.bincount(child, minlength=count).astype(np.int64)
    if parents.all():
        raise TraceError(
            f"rank {rank.number}: no node is without dependencies, so none can start",
            hint="The dependencies form a cycle.",
        )
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(parent, minlength=count), out=offsets[1:])
    return child, offsets, parents


def put_custom_lists(planning: Planning, trace: Trace) -> tuple[int, int]:
    """Lay out a collective given as a trace; returns its phase lists for all ranks and for groups."""
    key = ("custom", id(trace))
    if key not in planning.lists:
        # Places without a trace have no nodes: their phase never ends, and the report says so.
        tables = np.zeros((max(len(trace.ranks), planning.npus), 8), np.int64)
        plans = {}
        for place, rank in enumerate(trace.ranks):
            if rank.graph not in plans:
                plan = _plan_graph(planning, trace.graphs[rank.graph], rank, custom=True)
                plans[rank.graph] = plan, put_graph(planning, plan), planning.arena.put(plan.parents)
                planning.longest_custom = max(planning.longest_custom, len(plan.order))
            plan, nodes, parents = plans[rank.graph]
            tables[place, :4] = nodes, parents, put_slots(planning, rank, plan), len(plan.order)
        start = planning.arena.put(tables)
        planning.lists[key] = put_custom_list(planning, start, planning.npus)
        planning.lists[key, "group"] = put_custom_list(planning, start, 0)
    return planning.lists[key], planning.lists[key, "group"]


def find_first_alike(graphs: dict[int, Graph]) -> dict[int, int]:
    """Return for each graph the first that differs from it in what decides about recorded times only.

    These are the times, operations and sizes of tensors; graphs are identified by their numbers.
    """
    alike: dict[int, int] = {}
    seen: dict[tuple[int, ...], list[tuple[int, list[Any]]]] = {}
    # Graphs share arrays, so each is read once; all of them stay, so no two have the same address.
    digests: dict[int, int] = {}
    for index, graph in graphs.items():
        parts = [values for name, values in iterate_arrays(graph) if name not in _UNREAD]
        for values in parts:
            if id(values) not in digests:
                digests[id(values)] = zlib.crc32(values.tobytes())
        # Only some graphs are compared; missing one costs only time.
        others = seen.setdefault(tuple(digests[id(values)] for values in parts), [])
        for first, theirs in others:
            same = all(a is b or np.array_equal(a, b) for a, b in zip(parts, theirs, strict=True))
            if same and have_equal_values(graph, graphs[first]):
                alike[index] = first
                break
        else:
            alike[index] = index
            if len(others) < _MOST_COMPARED:
                others.append((index, parts))
    return alike
