"""Checks of ids and dependencies, graph by graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from studio.analysis.digraph import build_network, reachable
from studio.doctor.cycles import Removal, removal
from studio.doctor.diagnosis import Case, Found, GraphCase, Where, where
from studio.doctor.streams import stream_order
from studio.sim.agreement import node_label, rank_list
from studio.trace import NONE, Dependencies, Graph, Int64
from studio.units import format_count

_EDGES_NAMED = 4
_SHARE_WORTH_WARNING = 0.5


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun.

    Example:
        >>> counted(1, "node"), counted(1200, "node")
        ('1 node', '1,200 nodes')
    """
    return f"{format_count(count)} {noun if count == 1 else plural or noun + 's'}"


def percent(part: int, whole: int) -> str:
    """Return a share as text.

    Example:
        >>> percent(1, 3), percent(1, 100_000), percent(3, 3)
        ('33.3 %', '< 0.1 %', '100 %')
    """
    share = 100 * part / max(whole, 1)
    if 0 < share < 0.1:
        return "< 0.1 %"
    return f"{share:.0f} %" if share == int(share) else f"{min(share, 99.9):.1f} %"


def dangling_rows(deps: Dependencies) -> tuple[Int64, Int64]:
    """Return the entries that name a node which is not there, and the rows that wait for it."""
    at = np.flatnonzero(deps.rows < 0)
    return at, np.searchsorted(deps.offsets, at, side="right") - 1


def dangling(case: Case) -> Iterator[Found]:
    """Yield dependencies on nodes that are not in the file."""
    entries, absent, rows = 0, 0, []
    text = ""
    for one in case.graphs:
        waiting = []
        for deps in (one.graph.ctrl, one.graph.data):
            at, of = dangling_rows(deps)
            if len(at) and not text:
                named = int(deps.dangling[-1 - int(deps.rows[at[0]])])
                text = f"{node_label(one.graph, int(of[0]))} of rank {one.ranks[0]} waits for node {named}"
            waiting.append(of)
            entries += len(at) * len(one.ranks)
        absent += len(np.union1d(one.graph.ctrl.dangling, one.graph.data.dangling)) * len(one.ranks)
        rows.append((one, np.unique(np.concatenate(waiting))))
    found = where(rows)
    if found.count:
        verb = "waits" if found.count == 1 else "wait"
        yield Found(
            "error",
            f"{counted(found.count, 'node')} of {rank_list(found.ranks)} {verb} for nodes that are not in the trace: "
            f"{text}.",
            found.ranks,
            found.nodes,
            found.count,
            (("dependencies", format_count(entries)), ("ids that are missing", format_count(absent))),
        )


def self_loop_rows(graph: GraphCase) -> Int64:
    """Return the rows of nodes that wait for themselves."""
    of, waited = graph.pairs
    return np.unique(of[of == waited])


def self_loops(case: Case) -> Iterator[Found]:
    """Yield nodes that wait for themselves."""
    found = where((one, self_loop_rows(one)) for one in case.graphs)
    if found.first:
        first = node_label(found.first[0].graph, found.first[1])
        verb = "waits" if found.count == 1 else "wait"
        message = f"{counted(found.count, 'node')} of {rank_list(found.ranks)} {verb} for itself, the first is {first}."
        if found.count > 1:
            message = message.replace("itself", "themselves")
        yield Found("error", message, found.ranks, found.nodes, found.count)


def edge_label(graph: Graph, of: int, waited: int) -> str:
    """Return a dependency in words."""
    return f"{node_label(graph, of)} waits for {node_label(graph, waited)}"


def cycles(case: Case) -> Iterator[Found]:
    """Yield nodes that wait for each other in a circle, with the fewest dependencies to remove."""
    some = [(one, np.flatnonzero(one.circles != NONE)) for one in case.graphs]
    some = [(one, rows) for one, rows in some if len(rows)]
    if not some:
        return
    found = where(some)
    removals = [(one, removal(one)) for one, _ in some]
    circles = sum((int(one.circles.max()) + 1) * len(one.ranks) for one, _ in some)
    edges = sum(len(cut.of) * len(one.ranks) for one, cut in removals)
    exact = all(cut.exact for _, cut in removals)
    one, cut = removals[0]
    named = "; ".join(
        edge_label(one.graph, of, waited)
        for of, waited in zip(cut.of[:3].tolist(), cut.waited[:3].tolist(), strict=True)
    )
    more = "; …" if len(cut.of) > 3 or len(removals) > 1 else "."
    which = "the fewest that open all of them" if exact else "as few as a heuristic finds; fewer may do"
    yield Found(
        "error",
        f"{counted(found.count, 'node')} of {rank_list(found.ranks)} wait for each other in "
        f"{counted(circles, 'circle')}. Removing {counted(edges, 'dependency', 'dependencies')} ({which}) mends it: "
        f"{named}{more}",
        found.ranks,
        found.nodes,
        found.count,
        (
            ("circles", format_count(circles)),
            ("largest circle", counted(max(int(np.bincount(c.circles[r]).max()) for c, r in some), "node")),
            ("nodes that wait behind", format_count(sum(_behind(c) * len(c.ranks) for c, _ in some))),
            ("to remove", f"{format_count(edges)} ({'exact' if exact else 'heuristic'})"),
            *(("remove", text) for text in edge_texts(one.graph, cut)),
        ),
    )


def edge_texts(graph: Graph, cut: Removal) -> list[str]:
    """Return the first dependencies of a removal in words."""
    pairs = zip(cut.of[:_EDGES_NAMED].tolist(), cut.waited[:_EDGES_NAMED].tolist(), strict=True)
    return [edge_label(graph, of, waited) for of, waited in pairs]


def _behind(case: GraphCase) -> int:
    """Return how many nodes are on no circle and wait, directly or not, for one that is."""
    of, waited = case.pairs
    count = len(case.graph)
    members = np.flatnonzero(case.circles != NONE)
    before = np.append(waited, np.full(len(members), count))
    network = build_network(count + 1, before, np.append(of, members))
    return len(reachable(network, count)) - 1 - len(members)


def forward_rows(case: GraphCase) -> Int64:
    """Return the rows of nodes that wait for one that is written later in the file."""
    of, waited = case.pairs
    return np.unique(of[waited > of])


def forward(case: Case) -> Iterator[Found]:
    """Yield nodes that wait for nodes written later in the file."""
    found = where((one, forward_rows(one)) for one in case.graphs)
    if found.first:
        one, row = found.first
        of, waited = one.pairs
        later = int(waited[(of == row) & (waited > of)][0])
        verb = "waits" if found.count == 1 else "wait"
        yield Found(
            "info",
            f"{counted(found.count, 'node')} of {rank_list(found.ranks)} {verb} for nodes that come later in the file: "
            f"{edge_label(one.graph, row, later)}.",
            found.ranks,
            found.nodes,
            found.count,
            (("share of all nodes", percent(found.count, case.trace.node_count)),),
        )


def repeated_rows(graph: Graph) -> Int64:
    """Return the rows of nodes whose id an earlier node has."""
    order = np.argsort(graph.id, kind="stable")
    again = graph.id[order][1:] == graph.id[order][:-1]
    return np.sort(order[1:][again])


def duplicate_ids(case: Case) -> Iterator[Found]:
    """Yield nodes whose id another node of the rank has."""
    found = where((one, repeated_rows(one.graph)) for one in case.graphs)
    if found.first:
        one, row = found.first
        verb = "has" if found.count == 1 else "have"
        yield Found(
            "error",
            f"{counted(found.count, 'node')} of {rank_list(found.ranks)} {verb} an id that an earlier node has: "
            f"{node_label(one.graph, row)}.",
            found.ranks,
            found.nodes,
            found.count,
        )


def unordered(case: GraphCase) -> Int64:
    """Return the rows of kernels that do not wait for the one before them on their stream."""
    order = stream_order(case)
    return np.sort(order.after[~order.ordered])


def streams(case: Case) -> Iterator[Found]:
    """Yield kernels that nothing keeps in the order of their stream."""
    orders = [(one, stream_order(one)) for one in case.graphs]
    found: Where = where((one, np.sort(order.after[~order.ordered])) for one, order in orders)
    if not found.first:
        return
    pairs = sum(len(order.before) * len(one.ranks) for one, order in orders)
    one, row = found.first
    order = next(order for other, order in orders if other is one)
    before = int(order.before[order.after == row][0])
    verb = "does" if found.count == 1 else "do"
    guessed = not all(order.recorded for _, order in orders)
    direct = any(order.direct_only for _, order in orders)
    yield Found(
        "warning",
        f"{counted(found.count, 'kernel')} of {rank_list(found.ranks)} {verb} not wait for the one before on the same "
        f"stream: {node_label(one.graph, row)} comes after {node_label(one.graph, before)}.",
        found.ranks,
        found.nodes,
        found.count,
        (
            (
                "neighbours on a stream without order",
                f"{percent(found.count, pairs)} of {format_count(pairs)}",
            ),
            ("streams", format_count(sum(order.streams * len(one.ranks) for one, order in orders))),
            *(
                (("order taken from", "the order of launch, as no start times are recorded"),)
                if guessed
                else ()
            ),
            *((("looked at", "direct dependencies alone, the graph being large"),) if direct else ()),
        ),
    )


def worth_warning(part: int, whole: int) -> bool:
    """Return whether a share is so large that it is probably no peculiarity of a few nodes."""
    return part >= _SHARE_WORTH_WARNING * whole
