"""Find ranks that wait for each other for ever, by the cycles in who waits for whom; nothing is simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.collectives.matching import find_disagreement
from studio.analysis.graph.digraph import find_cycle_components, find_shortest_cycle
from studio.analysis.job.completeness import is_recording
from studio.doctor.diagnosis import NODES_NAMED, Case, Found, NodeAt
from studio.doctor.inferred import RAN
from studio.doctor.orders import FEW_EVENTS, count_events, is_small, try_orders
from studio.doctor.waits import Waits, Why, build_parts, build_waits
from studio.machine_memory import read_available_bytes
from studio.sim.agreement import format_ranks, is_certain, label_group, label_node
from studio.trace import NONE, Int64, Level
from studio.units import format_bytes, format_count

_NODE_BYTES = 350
"""Of a node of a rank at the peak, where ranks share graphs: measured with 10.7 million and 67 million nodes."""
_RECEIVES_FIRST = "It may follow from the receives without a send: repair them first."
_STARTS = 200
_HOPS_SHOWN = 6
_SIMULATED = (Why.DEPENDENCY, Why.TURN, Why.MESSAGE)
_WORDS = {
    Why.DEPENDENCY: "waits for",
    Why.TURN: "begins after",
    Why.STREAM: "ran after",
    Why.MESSAGE: "receives from",
    Why.HANDOVER: "is not received before",
}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A way to hang.

    Attributes:
        waits: What counts.
        level, ends: How bad it is, and how the sentence begins.
        consequence: What follows; empty for that of the check.
    """

    waits: tuple[Why, ...]
    level: Level
    ends: str
    consequence: str = ""


_KINDS = (
    _Kind(_SIMULATED, "error", "This job will hang"),
    _Kind(
        (*_SIMULATED, Why.STREAM),
        "warning",
        "This job would hang on a machine that keeps the order of streams and threads",
        "A simulation does not hang: it keeps the order of streams only where dependencies say it. A machine does, "
        "so either the times or the matching of the ranks' communication is not as it was.",
    ),
    _Kind(
        (*_SIMULATED, Why.STREAM, Why.HANDOVER),
        "info",
        "This job needs sends that do not wait for their receive",
        "A simulation does not hang: what is sent arrives, whether it is awaited or not. On a machine it depends on the "
        "library: large messages of NCCL and MPI wait until the receiving rank has begun to receive.",
    ),
)


def is_searched(case: Case) -> bool:
    """Whether waiting across ranks is looked at: cycles within a rank come first, they hang by themselves."""
    return not any(
        (graph_case.circles != NONE).any() or (graph_case.pairs[0] == graph_case.pairs[1]).any()
        for graph_case in case.graphs
    )


def is_alike(case: Case) -> bool:
    """Whether the members of every group share a graph and no message is sent: then none waits for what comes later."""
    return not len(case.messages) and all(
        len(set(group.sequence_of[group.sequence_of != NONE].tolist())) < 2 and not group.outsiders
        for group in case.ordered
    )


def check_deadlocks(case: Case) -> Iterator[Found]:
    """Yield the first way in which ranks wait for each other for ever."""
    for finding in _search_deadlocks(case.settled):
        # All messages alike behind a lost send are paired with another than theirs.
        may_follow = finding.level == "error" and len(case.unmatched.receives)
        yield replace(finding, advice=_RECEIVES_FIRST) if may_follow else finding


def _search_deadlocks(case: Case) -> Iterator[Found]:
    if not is_searched(case) or is_alike(case):
        return
    nodes = case.trace.node_count
    free = read_available_bytes()
    if free is not None and nodes * _NODE_BYTES > free // 2:
        yield Found(
            "info",
            f"Whether ranks wait for each other was not looked at: for {format_count(nodes)} nodes it takes about "
            f"{format_bytes(nodes * _NODE_BYTES)} of memory, and half of the {format_bytes(free)} that are free is all it may take.",
            consequence="A job that hangs is found by simulating it, which folds equal ranks and needs less.",
            advice="Simulate the job, or check it on a machine with more memory.",
        )
        return
    parts = build_parts(case, case.tick)
    waits = build_waits(case, case.tick, parts=parts, hopeful=True)
    # The last kind counts every wait, so what is on no cycle of it is on none.
    is_open = not waits.apart and _find_shortest_cycle(waits, *waits.chosen(*_KINDS[-1].waits)) is None
    if is_open and not is_small(case):
        return
    waits = build_waits(case, case.tick, parts=parts)
    if is_open:
        yield from _check_orders(case, waits)
        return
    yield from _find_diverging_group(case, waits)
    for kind in _KINDS:
        case.tick()
        before, after, place = waits.chosen(*kind.waits)
        circle = _find_shortest_cycle(waits, before, after, place)
        if circle is not None:
            yield _report_deadlock(case, waits, kind, *circle)
            return
        if kind.level == "error" and (findings := list(_check_orders(case, waits))):
            yield from findings
            return


def _check_orders(case: Case, waits: Waits) -> Iterator[Found]:
    """Yield whether ranks wait for each other in some order, where times decide about it; nothing where none does.

    What hangs in an unusual order is only worth knowing, and of larger jobs, most of which have such orders, not even that.
    """
    tried = None if waits.certain or waits.apart else try_orders(case, case.tick)
    if tried is None or not tried.hangs:
        return
    will = tried.complete and not tried.ends
    if not (will or tried.hangs_by_id or count_events(case) <= FEW_EVENTS):
        return
    ranks = [case.trace.ranks[place] for place, _ in tried.stuck]
    numbers = tuple(sorted(rank.number for rank in ranks))
    shown = [
        f"rank {rank.number} in {label_node(case.trace.graph_of(rank), row)}"
        for rank, (_, row) in zip(ranks, tried.stuck, strict=True)
    ]
    more = f", … ({format_count(len(shown) - _HOPS_SHOWN)} more)" if len(shown) > _HOPS_SHOWN else ""
    ran = is_recording(case.trace) and all(group.by_number for group in case.groups) and not will
    waiting = f"{format_ranks(numbers)} can come to wait for ever, {', '.join(shown[:_HOPS_SHOWN])}{more}."
    yield Found(
        "error" if will else "warning" if tried.hangs_by_id and not ran else "info",
        f"This job {'will hang, in every order' if will else 'may hang, in some of the orders'} that dependencies leave open: {waiting}"
        + (f" {RAN}" if ran else ""),
        numbers,
        tuple(NodeAt(rank.number, row) for rank, (_, row) in zip(ranks, tried.stuck, strict=True))[
            :NODES_NAMED
        ],
        len(tried.stuck),
        (("orders", "all were tried" if tried.complete else "tried until one hung"),),
        ""
        if will
        else "Times decide: with these it may end, with others its ranks wait for each other for ever.",
        doubtful=f"In every order that dependencies leave open {waiting}" if will else "",
    )


def _find_diverging_group(case: Case, waits: Waits) -> Iterator[Found]:
    """Yield the first group whose members are certain to begin different collectives, where only turns make it so."""
    for group in case.ordered:
        position = waits.apart.get(group.name, NONE)
        difference = find_disagreement(group)
        if position == NONE or (difference and is_certain(case.trace, group, difference)):
            continue
        numbers = tuple(sorted(set(group.members) & {rank.number for rank in case.trace.ranks}))
        yield Found(
            "error",
            f"This job will hang: members of {label_group(group)} begin its collectives in different orders, the first "
            f"that differs is collective {position}. Dependencies leave the order open; a simulated rank carries out one "
            "at a time, the lowest id first.",
            numbers,
            (),
            1,
        )
        return


def _find_shortest_cycle(
    waits: Waits, before: Int64, after: Int64, place: Int64
) -> tuple[list[int], int, int] | None:
    """Return the waits of a shortest cycle, in their order, and how many nodes and cycles there are; None for none."""
    itself = np.flatnonzero(before == after)
    if len(itself):
        return [int(place[itself[0]])], 1, 1
    component = find_cycle_components(len(waits.rank), before, after, *waits.keys)
    large = component != NONE
    if not large.any():
        return None
    circles = int(component.max()) + 1
    first = int(component[large].min())
    inside = np.flatnonzero((component[before] == first) & (component[after] == first))
    nodes = np.flatnonzero(component == first)
    start, end = np.searchsorted(nodes, before[inside]), np.searchsorted(nodes, after[inside])
    path = [int(nodes[row]) for row in find_shortest_cycle(len(nodes), start, end, starts=_STARTS)]
    hops = []
    for node, following in zip(path, [*path[1:], path[0]], strict=True):
        fits = inside[(before[inside] == node) & (after[inside] == following)]
        hops.append(int(place[fits[0]]))
    # From a node to the one it waits for, and on from there.
    return hops[::-1], int(large.sum()), circles


def _report_deadlock(
    case: Case, waits: Waits, kind: _Kind, hops: list[int], nodes: int, circles: int
) -> Found:
    texts = [_describe_hop(case, waits, hop) for hop in hops]
    more = f"; … ({format_count(len(texts) - _HOPS_SHOWN)} more)" if len(texts) > _HOPS_SHOWN else ""
    places = sorted({int(rank) for hop in hops for rank in waits.rank[[waits.before[hop], waits.after[hop]]]})
    numbers = tuple(sorted(case.trace.ranks[place].number for place in places))
    shown = [
        NodeAt(case.trace.ranks[int(waits.rank[end])].number, int(waits.row[end]))
        for hop in hops[:NODES_NAMED]
        for end in (waits.after[hop],)
    ]
    evidence = [("waits in the shortest cycle", format_count(len(hops))), ("cycles", format_count(circles))]
    if any(waits.why[hop] == Why.TURN for hop in hops):
        evidence.append(("begins after", "a simulated rank carries out one collective or send at a time"))
    waiting = f"{texts[0][0].upper()}{'; '.join(texts[:_HOPS_SHOWN])[1:]}{more}."
    itself = len(numbers) == 1
    return Found(
        kind.level,
        f"{kind.ends}: {format_ranks(numbers)} {'waits for itself' if itself else 'wait for each other'}. {waiting}",
        numbers,
        tuple(shown),
        nodes,
        tuple(evidence),
        kind.consequence,
        doubtful=""
        if kind.level == "info"
        else f"{format_ranks(numbers).capitalize()} {'seems to wait for itself' if itself else 'seem to wait for each other'}. {waiting}",
    )


def _describe_hop(case: Case, waits: Waits, hop: int) -> str:
    """Say who waits for whom."""
    before, after = int(waits.before[hop]), int(waits.after[hop])
    waiting_rank, awaited_rank = (case.trace.ranks[int(waits.rank[node])] for node in (after, before))
    own = label_node(case.trace.graph_of(waiting_rank), int(waits.row[after]))
    awaited = label_node(case.trace.graph_of(awaited_rank), int(waits.row[before]))
    where = "" if waiting_rank is awaited_rank else f" of rank {awaited_rank.number}"
    return f"rank {waiting_rank.number}'s {own} {_WORDS[Why(int(waits.why[hop]))]} {awaited}{where}"
