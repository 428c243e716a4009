"""Repairs of dependencies: remove those that no run can obey, add those that keep an order, write nodes in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from studio.analysis.collectives.matching import (
    Collectives,
    GroupMatching,
    compute_issue_order,
    find_disagreement,
)
from studio.doctor import edit
from studio.doctor.across import drop_uneven_sizes
from studio.doctor.changes import SHOWN, Change, Tick
from studio.doctor.cycles import find_removal
from studio.doctor.diagnosis import Case, GraphCase
from studio.doctor.edit import Entries
from studio.doctor.structure import describe_edge, find_forward_rows, has_order
from studio.et.link.dep_kinds import DepKind
from studio.sim.agreement import is_certain, label_group, label_node
from studio.trace import NONE, Bool, Graph, Int64, Trace
from studio.units import format_counted

_ORDERS_TRIED = 16
"""Orders of the collectives of a comm group that are tried until one makes no cycle."""


def _drop_dependencies(
    trace: Trace,
    tick: Tick,
    drop: Callable[[GraphCase, Entries], Bool],
    word: Callable[[GraphCase, int, int], str],
) -> tuple[Trace, list[Change]]:
    """Remove the dependencies that `drop` picks; `word` describes one of them."""
    graphs: dict[int, Graph] = {}
    count, first = 0, []
    for case in Case(trace, tick).graphs:
        tick()
        graph = case.graph
        for deps in (graph.ctrl, graph.data):
            dependencies = edit.list_entries(graph, deps)
            goes = np.flatnonzero(drop(case, dependencies))[:SHOWN]
            pairs = zip(dependencies.of[goes].tolist(), dependencies.rows[goes].tolist(), strict=True)
            ids = deps.dangling
            first += [
                f"rank {case.ranks[0]}: {word(case, of, row if row >= 0 else -1 - int(ids[-1 - row]))}"
                for of, row in pairs
            ]
        graphs[case.index], dropped = edit.without_dependencies(graph, partial(drop, case))
        count += dropped * len(case.ranks)
    what = f"{format_counted(count, 'dependency', 'dependencies')} removed"
    return edit.with_graphs(trace, graphs), [Change(what, count, tuple(first[:SHOWN]))]


def drop_dangling(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Remove dependencies on nodes that are not in the file."""

    def describe(case: GraphCase, of: int, absent: int) -> str:
        return f"{label_node(case.graph, of)} waited for node {-1 - absent}, which is missing"

    return _drop_dependencies(
        trace, tick, lambda _, dependencies: np.asarray(dependencies.rows < 0), describe
    )


def _describe_removed_wait(case: GraphCase, of: int, waited: int) -> str:
    return describe_edge(case.graph, of, waited).replace(" waits for ", " waited for ", 1)


def drop_self_loops(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Remove dependencies of nodes on themselves."""
    return _drop_dependencies(
        trace,
        tick,
        lambda _, dependencies: np.asarray(dependencies.rows == dependencies.of),
        _describe_removed_wait,
    )


def open_cycles(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Remove dependencies until no nodes wait for each other."""
    keys: dict[int, Int64] = {}

    def drop(case: GraphCase, dependencies: Entries) -> Bool:
        size = max(len(case.graph), 1)
        if case.index not in keys:
            if (case.circles == NONE).all():
                keys[case.index] = np.zeros(0, np.int64)
            else:
                cut = find_removal(case)
                keys[case.index] = cut.of * size + cut.waited
        return np.asarray(
            (dependencies.rows >= 0) & np.isin(dependencies.of * size + dependencies.rows, keys[case.index])
        )

    return _drop_dependencies(trace, tick, drop, _describe_removed_wait)


def add_stream_order(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Let operations of a stream wait for the one before them, where nothing makes them wait yet and no cycle follows."""
    graphs: dict[int, Graph] = {}
    count, first = 0, []
    for case in Case(trace, tick).graphs:
        if (case.circles != NONE).any():
            continue
        order = case.streams
        before, after = order.before[~order.ordered], order.after[~order.ordered]
        graph, keep = _add_without_cycles(case.graph, before, after)
        if not keep.any():
            continue
        graphs[case.index] = graph
        pairs = list(zip(before[keep].tolist(), after[keep].tolist(), strict=True))
        count += len(pairs) * len(case.ranks)
        first += [
            f"rank {case.ranks[0]}: {describe_edge(case.graph, before, other)}"
            for other, before in pairs[:SHOWN]
        ]
    what = f"{format_counted(count, 'dependency', 'dependencies')} added"
    return edit.with_graphs(trace, graphs), [Change(what, count, tuple(first[:SHOWN]))]


def _add_without_cycles(graph: Graph, before: Int64, after: Int64) -> tuple[Graph, Bool]:
    """Return a graph with added dependencies, without those that would close a cycle, and which were added."""
    keep = np.ones(len(before), bool)
    while True:
        extended = edit.with_data_dependencies(graph, after[keep], before[keep], DepKind.STREAM)
        circles = GraphCase(0, extended, ()).circles
        closing = keep & (circles[before] != NONE) & (circles[before] == circles[after])
        if not closing.any():
            return extended, keep
        keep &= ~closing


def chain_collectives(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Put the collectives of a group in one order on all members, where nothing else fixes another."""
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    wanted: dict[int, _Pairs] = {}
    names = []
    case = Case(trace, tick)
    for numbered, group in zip(case.groups, map(drop_uneven_sizes, case.ordered), strict=True):
        tick()
        difference = find_disagreement(group)
        if difference is None or is_certain(trace, group, difference):
            continue
        for members in _iterate_chains(trace, numbered, group, difference.other_rank):
            chains = {place[number]: chain for number, chain in members.items()}
            more = {index: (*wanted.get(index, ()), *chain) for index, chain in chains.items()}
            apart = {(trace.ranks[index].graph, chain) for index, chain in more.items()}
            if chains and all(_is_acyclic(_add_chain(trace.graphs[graph], chain)) for graph, chain in apart):
                wanted |= more
                names.append(label_group(group))
                break
    count = sum(map(len, wanted.values()))
    first = [
        f"rank {trace.ranks[index].number}: {describe_edge(trace.graph_of(trace.ranks[index]), after, before)}"
        for index, chain in wanted.items()
        for before, after in chain[:SHOWN]
    ]
    what = f"{format_counted(count, 'dependency', 'dependencies')} added, {format_counted(len(names), 'group')} put in order"
    repaired = edit.change_ranks(trace, wanted, _add_chain, tick) if wanted else trace
    return repaired, [Change(what, count, tuple(first[:SHOWN]))]


_Pairs = tuple[tuple[int, int], ...]
"""Rows: the second is to wait for the first."""
_Contents = list[tuple[int, int]]
"""Type and size of collectives, one after another."""


def _list_contents(sequence: Collectives) -> _Contents:
    return list(zip(sequence.type.tolist(), sequence.bytes.tolist(), strict=True))


def _iterate_chains(
    trace: Trace, numbered: GroupMatching, group: GroupMatching, usual: int
) -> Iterator[dict[int, _Pairs]]:
    """Yield chains to try, by member: as the collectives are numbered, else in the orders of `_list_orders`."""
    if numbered.by_number:
        if find_disagreement(drop_uneven_sizes(numbered)) is None:
            rows = zip(numbered.members, numbered.sequence_of.tolist(), numbered.rows().tolist(), strict=True)
            yield {number: tuple(pairwise(chain)) for number, index, chain in rows if index != NONE}
        return
    yield from (_build_chains(group, order) for order in _list_orders(trace, group, usual))


def _list_orders(trace: Trace, group: GroupMatching, usual: int) -> list[_Contents]:
    """Return the orders to try: as recorded on a usual member, the most frequent, then all others."""
    usual_index = int(group.sequence_of[group.members.index(usual)])
    rank = trace.rank(usual)
    assert rank is not None
    starts = trace.graph_of(rank).start_ns[group.sequences[usual_index].rows]
    contents = [_list_contents(sequence) for sequence in group.sequences]
    recorded = [contents[usual_index][place] for place in np.argsort(starts, kind="stable").tolist()]
    tried = [recorded] if (starts >= 0).all() else []
    return [*tried, contents[usual_index], *(order for order in contents if order != contents[usual_index])][
        :_ORDERS_TRIED
    ]


def _build_chains(group: GroupMatching, order: _Contents) -> dict[int, _Pairs]:
    """Return each member's collectives in a given order; empty where members have different ones."""
    chains: dict[int, _Pairs] = {}
    for number, index in zip(group.members, group.sequence_of.tolist(), strict=True):
        if index == NONE:
            continue
        own = _list_contents(group.sequences[index])
        if sorted(own) != sorted(order):
            return {}
        left: dict[tuple[int, int], list[int]] = {}
        for content, row in zip(own, group.sequences[index].rows.tolist(), strict=True):
            left.setdefault(content, []).append(row)
        chains[number] = tuple(pairwise(left[content].pop(0) for content in order))
    return chains


def _add_chain(graph: Graph, chain: object) -> Graph:
    """Return a graph in which the second of each pair waits for the first."""
    assert isinstance(chain, tuple)
    before, after = np.array(chain, np.int64).reshape(-1, 2).T
    return edit.with_data_dependencies(graph, after, before, 0)


def _is_acyclic(graph: Graph) -> bool:
    return bool((GraphCase(0, graph, ()).circles == NONE).all())


def write_in_order(trace: Trace, tick: Tick) -> tuple[Trace, list[Change]]:
    """Write nodes after the nodes they wait for."""
    graphs: dict[int, Graph] = {}
    count = 0
    for case in Case(trace, tick).graphs:
        # Circles have no order, and have a finding of their own.
        if not len(find_forward_rows(case)) or not has_order(case):
            continue
        graphs[case.index] = edit.with_order(
            case.graph, np.argsort(compute_issue_order(case.graph), kind="stable")
        )
        count += len(case.graph) * len(case.ranks)
    return edit.with_graphs(trace, graphs), [
        Change(f"{format_counted(count, 'node')} put in another order", count)
    ]
