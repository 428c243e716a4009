"""Nodes of both runs that changed most, and nodes that only one of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from studio.analysis.compare.alignment import Alignment, GraphPairs
from studio.analysis.compare.sides import Side, compute_durations
from studio.notebook import format_record
from studio.trace import Graph, Int64

MOST_LISTED = 50


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node of both sides, on the rank where it changed most.

    Attributes:
        rank_a, row_a, rank_b, row_b: Places in the traces, and rows of the graphs.
        a_ns, b_ns: How long it ran there.
        ranks: Pairs of ranks that have it.
        total_ns: Its differences on all of them together.
    """

    rank_a: int
    row_a: int
    rank_b: int
    row_b: int
    a_ns: int
    b_ns: int
    ranks: int
    total_ns: int

    __repr__ = format_record

    @property
    def difference_ns(self) -> int:
        """How much longer it runs in B."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class NodeAlone:
    """A node that only one side has, among ranks that both have.

    Attributes:
        rank, row: Place in its trace, and row of the graph, on the rank where it runs longest.
        ns: How long it runs there, -1 where it has no times.
        ranks: Ranks that have it, counted over those whose longest nodes it is among.
    """

    rank: int
    row: int
    ns: int
    ranks: int

    __repr__ = format_record


@dataclass(slots=True)
class _Extremes:
    """For each pair of nodes the ranks on which it grew most and least."""

    least: Int64
    most: Int64
    least_at: Int64
    most_at: Int64
    total: Int64
    count: Int64


def _list_rank_pairs(a: Side, b: Side, alignment: Alignment, pairs: int) -> tuple[Int64, Int64]:
    """Return rank pairs matched by `pairs`, one for ranks with equal times, and how many each stands for."""
    pairs_here = np.flatnonzero(alignment.pairs_of == pairs)
    times = np.stack(
        [a.times.first[alignment.rank_a[pairs_here]], b.times.first[alignment.rank_b[pairs_here]]]
    )
    _, index, count = np.unique(times, axis=1, return_index=True, return_counts=True)
    order = np.argsort(index)
    return pairs_here[index[order]], count[order]


def find_changes(
    a: Side, b: Side, alignment: Alignment
) -> tuple[tuple[NodeChange, ...], tuple[NodeChange, ...]]:
    """Return the nodes that run longer in B and those that run shorter, those that changed most first."""
    combined = [_list_rank_pairs(a, b, alignment, index) for index in range(len(alignment.pairs))]
    extremes_of = [
        _find_extremes(a, b, alignment, pairs, chosen)
        for pairs, chosen in zip(alignment.pairs, combined, strict=True)
    ]

    def order_changes(*, longer: bool) -> tuple[NodeChange, ...]:
        listed = [
            change
            for pairs, extremes in zip(alignment.pairs, extremes_of, strict=True)
            for change in _find_most_changed(a, b, alignment, pairs, extremes, longer=longer)
        ]
        listed.sort(key=lambda change: (-abs(change.difference_ns), change.rank_a, change.row_a))
        chosen = _drop_repeats(listed, [_build_key(a, change.rank_a, change.row_a) for change in listed])
        return tuple(_count_on_all_ranks(a, alignment, extremes_of, change) for change in chosen)

    return order_changes(longer=True), order_changes(longer=False)


_Listed = TypeVar("_Listed")


def _drop_repeats(listed: Sequence[_Listed], keys: Sequence[object]) -> list[_Listed]:
    """Return the first entry of each key, at most `MOST_LISTED`; similar graphs repeat nodes."""
    first = dict(zip(reversed(keys), reversed(listed), strict=True))
    order = dict.fromkeys(keys)
    return [first[key] for key in order][:MOST_LISTED]


def _build_key(side: Side, rank: int, row: int) -> tuple[int, str]:
    """Return the id and name of a node."""
    graph = side.trace.graph_of(side.trace.ranks[rank])
    return int(graph.id[row]), graph.strings[int(graph.name[row])]


def _count_on_all_ranks(
    a: Side, alignment: Alignment, extremes_of: Sequence[_Extremes], change: NodeChange
) -> NodeChange:
    """Return a change that counts the ranks of every graph with its node."""
    key = _build_key(a, change.rank_a, change.row_a)
    ranks = total = 0
    for pairs, extremes in zip(alignment.pairs, extremes_of, strict=True):
        for place in _find_by_key(a.trace.graphs[pairs.graph_a], pairs.row_a, key):
            ranks += int(extremes.count[place])
            total += int(extremes.total[place])
    return replace(change, ranks=ranks, total_ns=total)


def _find_by_key(graph: Graph, rows: Int64, key: tuple[int, str]) -> list[int]:
    """Return the indices among `rows` of nodes with this id and name."""
    places: list[int] = np.flatnonzero(graph.id[rows] == np.uint64(key[0])).tolist()
    return [place for place in places if graph.strings[int(graph.name[rows[place]])] == key[1]]


def _find_extremes(
    a: Side, b: Side, alignment: Alignment, pairs: GraphPairs, chosen: tuple[Int64, Int64]
) -> _Extremes:
    zeros = [np.zeros(len(pairs.row_a), np.int64) for _ in range(6)]
    extremes = _Extremes(*zeros)
    for pair, count in zip(*(column.tolist() for column in chosen), strict=True):
        before = compute_durations(a, int(alignment.rank_a[pair]), pairs.row_a)
        after = compute_durations(b, int(alignment.rank_b[pair]), pairs.row_b)
        known = (before >= 0) & (after >= 0)
        grew = np.where(known, after - before, 0)
        for better, extreme, where in (
            (grew > extremes.most, extremes.most, extremes.most_at),
            (grew < extremes.least, extremes.least, extremes.least_at),
        ):
            extreme[better], where[better] = grew[better], pair
        extremes.total += count * grew
        extremes.count += count * known
    return extremes


def _find_most_changed(
    a: Side, b: Side, alignment: Alignment, pairs: GraphPairs, extremes: _Extremes, *, longer: bool
) -> list[NodeChange]:
    """Return the nodes that changed most in one direction."""
    grew, where = (extremes.most, extremes.most_at) if longer else (-extremes.least, extremes.least_at)
    chosen = _find_largest(grew)
    listed = []
    for place in chosen.tolist():
        pair = int(where[place])
        rank_a, rank_b = int(alignment.rank_a[pair]), int(alignment.rank_b[pair])
        row_a, row_b = int(pairs.row_a[place]), int(pairs.row_b[place])
        before = int(compute_durations(a, rank_a, np.array([row_a]))[0])
        after = int(compute_durations(b, rank_b, np.array([row_b]))[0])
        total = int(extremes.total[place])
        listed.append(
            NodeChange(rank_a, row_a, rank_b, row_b, before, after, int(extremes.count[place]), total)
        )
    return listed


def _find_largest(values: Int64) -> Int64:
    """Return the indices of the largest positive values, the largest first, at most `MOST_LISTED`."""
    most = min(MOST_LISTED, len(values))
    chosen = np.argpartition(-values, most - 1)[:most] if most else np.zeros(0, np.int64)
    chosen = chosen[values[chosen] > 0]
    return chosen[np.lexsort((chosen, -values[chosen]))]


def find_alone(side: Side, alignment: Alignment, *, of_b: bool) -> tuple[tuple[NodeAlone, ...], int]:
    """Return the longest nodes of one side only, and how many there are on all ranks."""
    alone: list[NodeAlone] = []
    count = 0
    ranks = alignment.rank_b if of_b else alignment.rank_a
    for index, pairs in enumerate(alignment.pairs):
        rows = pairs.only_b if of_b else pairs.only_a
        own_ranks = ranks[alignment.pairs_of == index]
        count += len(rows) * len(own_ranks)
        if not len(rows):
            continue
        longest, where = np.full(len(rows), -2, np.int64), np.zeros(len(rows), np.int64)
        _, distinct = np.unique(side.times.first[own_ranks], return_index=True)
        for rank in own_ranks[np.sort(distinct)].tolist():
            lasted = compute_durations(side, rank, rows)
            longer = lasted > longest
            longest[longer], where[longer] = lasted[longer], rank
        for place in _find_largest(longest + 2).tolist():
            row, ns = int(rows[place]), int(longest[place])
            alone.append(NodeAlone(int(where[place]), row, ns, len(own_ranks)))
    alone.sort(key=lambda node: (-node.ns, node.rank, node.row))
    keys = [_build_key(side, node.rank, node.row) for node in alone]
    having: Counter[tuple[int, str]] = Counter()
    for candidate, key in zip(alone, keys, strict=True):
        having[key] += candidate.ranks
    chosen = _drop_repeats(list(zip(alone, keys, strict=True)), keys)
    return tuple(replace(node, ranks=having[key]) for node, key in chosen), count
