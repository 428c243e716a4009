"""Checks of ids and dependencies, graph by graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from studio.analysis.graph.digraph import build_network, find_reachable
from studio.distinct import find_distinct
from studio.doctor.cycles import Removal, find_removal
from studio.doctor.diagnosis import Case, Found, GraphCase, Where, locate_nodes
from studio.sim.agreement import format_ranks, label_node
from studio.trace import NONE, Dependencies, Graph, Int64, list_node_attributes
from studio.units import format_count, format_counted

_EDGES_NAMED = 4
_CYCLE_FIRST = "Open the cycle first: nodes that wait for each other have no order."
_SHARE_WORTH_WARNING = 0.5


def format_percent_of(part: int, whole: int) -> str:
    """Return a share as text.

    Example:
        >>> format_percent_of(1, 3), format_percent_of(1, 100_000), format_percent_of(3, 3)
        ('33.3 %', '< 0.1 %', '100 %')
    """
    share = 100 * part / max(whole, 1)
    if 0 < share < 0.1:
        return "< 0.1 %"
    return f"{share:.0f} %" if share == int(share) else f"{min(share, 99.9):.1f} %"


def find_dangling_rows(deps: Dependencies) -> tuple[Int64, Int64]:
    """Return the entries that name a missing node, and the rows that wait for it."""
    entries = np.flatnonzero(deps.rows < 0)
    return entries, np.searchsorted(deps.offsets, entries, side="right") - 1


def check_dangling(case: Case) -> Iterator[Found]:
    """Yield dependencies on nodes that are not in the file."""
    entries, absent, rows = 0, 0, []
    text = ""
    for graph_case in case.graphs:
        waiting = []
        for deps in (graph_case.graph.ctrl, graph_case.graph.data):
            missing, of = find_dangling_rows(deps)
            if len(missing) and not text:
                named = int(deps.dangling[-1 - int(deps.rows[missing[0]])])
                text = f"{label_node(graph_case.graph, int(of[0]))} of rank {graph_case.ranks[0]} waits for node {named}"
            waiting.append(of)
            entries += len(missing) * len(graph_case.ranks)
        absent += len(np.union1d(graph_case.graph.ctrl.dangling, graph_case.graph.data.dangling)) * len(
            graph_case.ranks
        )
        rows.append((graph_case, find_distinct(np.concatenate(waiting))))
    nodes = locate_nodes(rows)
    if nodes.count:
        verb = "waits" if nodes.count == 1 else "wait"
        yield Found(
            "error",
            f"{format_counted(nodes.count, 'node')} of {format_ranks(nodes.ranks)} {verb} for nodes that are not in the trace: "
            f"{text}.",
            nodes.ranks,
            nodes.nodes,
            nodes.count,
            (("dependencies", format_count(entries)), ("ids that are missing", format_count(absent))),
        )


def find_self_loop_rows(graph: GraphCase) -> Int64:
    """Return the rows of nodes that wait for themselves."""
    of, waited = graph.pairs
    return find_distinct(of[of == waited])


def check_self_loops(case: Case) -> Iterator[Found]:
    """Yield nodes that wait for themselves."""
    nodes = locate_nodes((graph_case, find_self_loop_rows(graph_case)) for graph_case in case.graphs)
    if nodes.first:
        first = label_node(nodes.first[0].graph, nodes.first[1])
        verb = "waits" if nodes.count == 1 else "wait"
        message = f"{format_counted(nodes.count, 'node')} of {format_ranks(nodes.ranks)} {verb} for itself, the first is {first}."
        if nodes.count > 1:
            message = message.replace("itself", "themselves")
        yield Found("error", message, nodes.ranks, nodes.nodes, nodes.count)


def describe_edge(graph: Graph, of: int, waited: int) -> str:
    """Return a dependency in words."""
    return f"{label_node(graph, of)} waits for {label_node(graph, waited)}"


def check_cycles(case: Case) -> Iterator[Found]:
    """Yield nodes that wait for each other in a cycle, with the fewest dependencies to remove."""
    some = [(graph_case, np.flatnonzero(graph_case.circles != NONE)) for graph_case in case.graphs]
    some = [(graph_case, rows) for graph_case, rows in some if len(rows)]
    if not some:
        return
    nodes = locate_nodes(some)
    removals = [(graph_case, find_removal(graph_case)) for graph_case, _ in some]
    circles = sum((int(graph_case.circles.max()) + 1) * len(graph_case.ranks) for graph_case, _ in some)
    edges = sum(len(cut.of) * len(graph_case.ranks) for graph_case, cut in removals)
    exact = all(cut.exact for _, cut in removals)
    graph_case, cut = removals[0]
    named = "; ".join(
        describe_edge(graph_case.graph, of, waited)
        for of, waited in zip(cut.of[:3].tolist(), cut.waited[:3].tolist(), strict=True)
    )
    more = "; …" if len(cut.of) > 3 or len(removals) > 1 else "."
    which = "the fewest that open all cycles" if exact else "as few as a heuristic finds; fewer may be enough"
    yield Found(
        "error",
        f"{format_counted(nodes.count, 'node')} of {format_ranks(nodes.ranks)} wait for each other in "
        f"{format_counted(circles, 'cycle')}. Removing {format_counted(edges, 'dependency', 'dependencies')} ({which}) fixes it: "
        f"{named}{more}",
        nodes.ranks,
        nodes.nodes,
        nodes.count,
        (
            ("cycles", format_count(circles)),
            (
                "largest cycle",
                format_counted(max(int(np.bincount(c.circles[r]).max()) for c, r in some), "node"),
            ),
            ("nodes that wait behind", format_count(sum(_count_behind(c) * len(c.ranks) for c, _ in some))),
            ("to remove", f"{format_count(edges)} ({'exact' if exact else 'heuristic'})"),
            *(("remove", text) for text in describe_removed_edges(graph_case.graph, cut)),
        ),
    )


def describe_removed_edges(graph: Graph, cut: Removal) -> list[str]:
    """Return the first dependencies of a removal in words."""
    pairs = zip(cut.of[:_EDGES_NAMED].tolist(), cut.waited[:_EDGES_NAMED].tolist(), strict=True)
    return [describe_edge(graph, of, waited) for of, waited in pairs]


def _count_behind(case: GraphCase) -> int:
    """Return how many nodes are on no circle and wait, directly or not, for one that is."""
    of, waited = case.pairs
    count = len(case.graph)
    on_circle = case.circles != NONE
    # All cycles are one node, which nothing leads to.
    leads = ~on_circle[of]
    before = np.where(on_circle[waited[leads]], count, waited[leads])
    network = build_network(count + 1, before, of[leads])
    return len(find_reachable(network, count)) - 1


def find_forward_rows(case: GraphCase) -> Int64:
    """Return the rows of nodes that wait for one that is written later in the file."""
    of, waited = case.pairs
    return find_distinct(of[waited > of])


def has_order(case: GraphCase) -> bool:
    """Whether nodes can be written after all that they wait for: none waits for itself, directly or not."""
    of, waited = case.pairs
    return not ((case.circles != NONE).any() or (of == waited).any())


def check_forward(case: Case) -> Iterator[Found]:
    """Yield nodes that wait for nodes written later in the file."""
    some = [(graph_case, find_forward_rows(graph_case)) for graph_case in case.graphs]
    nodes = locate_nodes(some)
    if nodes.first:
        graph_case, row = nodes.first
        of, waited = graph_case.pairs
        later = int(waited[(of == row) & (waited > of)][0])
        verb = "waits" if nodes.count == 1 else "wait"
        is_repairable = any(len(rows) and has_order(graph_case) for graph_case, rows in some)
        yield Found(
            "info",
            f"{format_counted(nodes.count, 'node')} of {format_ranks(nodes.ranks)} {verb} for nodes later in the file: "
            f"{describe_edge(graph_case.graph, row, later)}.",
            nodes.ranks,
            nodes.nodes,
            nodes.count,
            (("share of all nodes", format_percent_of(nodes.count, case.trace.node_count)),),
            advice="" if is_repairable else _CYCLE_FIRST,
            is_repairable=is_repairable,
        )


def find_repeated_rows(graph: Graph) -> Int64:
    """Return the rows of nodes whose id an earlier node has."""
    ids = np.sort(graph.id)
    if not (ids[1:] == ids[:-1]).any():
        # As nearly always; where each of them lies takes eight times as long to find.
        return np.zeros(0, np.int64)
    order = np.argsort(graph.id, kind="stable")
    again = graph.id[order][1:] == graph.id[order][:-1]
    return np.sort(order[1:][again])


def find_copied_rows(graph: Graph) -> Int64:
    """Return the rows of nodes that are alike in everything to an earlier node of their id."""
    rows = find_repeated_rows(graph)
    if not len(rows):
        return rows
    ids, firsts = np.unique(graph.id, return_index=True)
    first = firsts[np.searchsorted(ids, graph.id[rows])]
    same = np.ones(len(rows), bool)
    for column in (graph.type, graph.name, graph.start_ns, graph.duration_ns):
        same &= column[rows] == column[first]
    if len(graph.io):
        same &= (graph.io[rows] == graph.io[first]).all(axis=1)
    # Values of ranks' own are alike where they are in one slot.
    slots = range(len(graph.slot_key))

    def is_alike(row: int, other: int) -> bool:
        return (
            np.array_equal(graph.ctrl.of(row), graph.ctrl.of(other))
            and np.array_equal(graph.data.of(row), graph.data.of(other))
            and list_node_attributes(graph, row, slots) == list_node_attributes(graph, other, slots)
        )

    for at in np.flatnonzero(same).tolist():
        same[at] = is_alike(int(rows[at]), int(first[at]))
    return rows[same]


def check_duplicate_ids(case: Case) -> Iterator[Found]:
    """Yield nodes that share their id with another node of the rank."""
    nodes = locate_nodes((graph_case, find_repeated_rows(graph_case.graph)) for graph_case in case.graphs)
    if nodes.first:
        graph_case, row = nodes.first
        verb = "has" if nodes.count == 1 else "have"
        copies = sum(
            len(find_copied_rows(graph_case.graph)) * len(graph_case.ranks) for graph_case in case.graphs
        )
        yield Found(
            "error",
            f"{format_counted(nodes.count, 'node')} of {format_ranks(nodes.ranks)} {verb} the id of an earlier node: "
            f"{label_node(graph_case.graph, row)}.",
            nodes.ranks,
            nodes.nodes,
            nodes.count,
            (("alike in everything", f"{format_count(copies)}, written twice"),) if copies else (),
        )


def check_streams(case: Case) -> Iterator[Found]:
    """Yield kernels that no dependency keeps in the order of their stream."""
    orders = [(graph_case, graph_case.streams) for graph_case in case.graphs]
    nodes: Where = locate_nodes(
        (graph_case, np.sort(order.after[~order.ordered])) for graph_case, order in orders
    )
    if not nodes.first:
        return
    pairs = sum(len(order.before) * len(graph_case.ranks) for graph_case, order in orders)
    graph_case, row = nodes.first
    order = next(order for other, order in orders if other is graph_case)
    before = int(order.before[order.after == row][0])
    verb = "does" if nodes.count == 1 else "do"
    guessed = not all(order.recorded for _, order in orders)
    direct = any(order.direct_only for _, order in orders)
    is_repairable = any(not order.ordered.all() and (other.circles == NONE).all() for other, order in orders)
    yield Found(
        "warning",
        f"{format_counted(nodes.count, 'kernel')} of {format_ranks(nodes.ranks)} {verb} not wait for the previous kernel on the "
        f"same stream: {label_node(graph_case.graph, row)} comes after {label_node(graph_case.graph, before)}.",
        nodes.ranks,
        nodes.nodes,
        nodes.count,
        (
            (
                "consecutive kernels without order",
                f"{format_percent_of(nodes.count, pairs)} of {format_count(pairs)}",
            ),
            (
                "streams",
                format_count(sum(order.streams * len(graph_case.ranks) for graph_case, order in orders)),
            ),
            *(
                (("order taken from", "the order of launch, as no start times are recorded"),)
                if guessed
                else ()
            ),
            *((("looked at", "direct dependencies alone, the graph being large"),) if direct else ()),
        ),
        advice="" if is_repairable else _CYCLE_FIRST,
        is_repairable=is_repairable,
    )


def is_worth_warning(part: int, whole: int) -> bool:
    """Whether a share is so large that it is probably no peculiarity of a few nodes."""
    return part >= _SHARE_WORTH_WARNING * whole
