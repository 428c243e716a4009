"""Ranks whose graphs differ in nothing but the ids of their nodes.

Converters of text workloads number the nodes of all ranks in one go. Such ranks run the same program: rows stand for each
other, and only what names a node has to look at the rank's own graph.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from weakref import ref

import numpy as np

from studio.trace import Graph, Trace, UInt64, iterate_arrays, list_other_columns

_MOST_COMPARED = 16
"""Graphs that look the same with which another one is compared."""
_known: dict[int, tuple[ref[Trace], Trace | None]] = {}
"""By address, jobs that are in use, and the same with shared graphs; None where there is nothing to share."""


def share_graphs(trace: Trace) -> Trace:
    """Return a job whose ranks share a graph where theirs differ in the ids of nodes alone.

    It is the graph of the first of these ranks. Ids stand in the same order in all: it decides which of two nodes that are
    ready is issued first. What is found is kept as long as the job is: every question about it begins with this one.
    """
    if len(trace.graphs) < 2:
        return trace
    address = id(trace)
    if address not in _known:
        _known[address] = ref(trace, lambda _: _known.pop(address, None)), _share_graphs(trace)
    return _known[address][1] or trace


def _share_graphs(trace: Trace) -> Trace | None:
    # By the first rank of each, so that the first of graphs that are alike is that of the first rank.
    used = list(dict.fromkeys(rank.graph for rank in trace.ranks))
    first = find_first_beside_ids([trace.graphs[index] for index in used])
    kept = sorted(set(first))
    if len(kept) == len(first):
        return None
    place_among = {place: among for among, place in enumerate(kept)}
    place_of = {index: place_among[place] for index, place in zip(used, first, strict=True)}
    ranks = tuple(replace(rank, graph=place_of[rank.graph]) for rank in trace.ranks)
    return replace(trace, graphs=tuple(trace.graphs[used[place]] for place in kept), ranks=ranks)


def find_first_beside_ids(graphs: Sequence[Graph]) -> list[int]:
    """Return for each graph the place of the first that differs from it in ids alone, which stand in the same order.

    Missing one costs time only: graphs that look the same are compared with a few others.
    """
    first: list[int] = []
    seen: dict[Hashable, list[int]] = {}
    # All graphs stay, so that no two arrays have the same address.
    shared: dict[tuple[int, ...], list[int]] = {}
    for place, graph in enumerate(graphs):
        same = shared.setdefault(tuple(map(id, list_other_columns(graph))), [])
        others = same or seen.setdefault(_summarise_graph(graph), [])
        alike = (other for other in others if _is_alike(graph, graphs[other], compare=others is not same))
        first.append(next(alike, place))
        if others is not same:
            # Graphs with these very columns need not be compared with others again.
            same.append(first[-1])
        if first[-1] == place and len(others) < _MOST_COMPARED:
            others.append(place)
    return first


def _summarise_graph(graph: Graph) -> Hashable:
    """Return what graphs with equal columns have in common and few others, quickly."""
    sums = (int(column.sum()) for column in (graph.start_ns, graph.duration_ns, graph.type))
    return len(graph), len(graph.ctrl.rows), len(graph.data.rows), len(graph.attrs.key), *sums


def _is_alike(graph: Graph, other: Graph, *, compare: bool) -> bool:
    """Whether two graphs differ in ids alone, in the same order; `compare` where they may differ in more."""
    if compare:
        columns = zip(iterate_arrays(graph), iterate_arrays(other), strict=True)
        if not all(name == "id" or a is b or np.array_equal(a, b) for (name, a), (_, b) in columns):
            return False
    return _have_same_order(graph.id, other.id)


def _have_same_order(ids: UInt64, others: UInt64) -> bool:
    if (ids[1:] > ids[:-1]).all() and (others[1:] > others[:-1]).all():
        return True
    order = np.argsort(ids, kind="stable")
    if not np.array_equal(order, np.argsort(others, kind="stable")):
        return False
    # Ids that appear twice do so on both.
    left, right = ids[order], others[order]
    return np.array_equal(left[1:] == left[:-1], right[1:] == right[:-1])
