"""Find collectives whose members name different roots: one rank sends to, or waits for, another than the rest."""

from __future__ import annotations

from collections import Counter

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.doctor.diagnosis import Case, Found, NodeAt
from studio.sim.agreement import collective_label, group_label, rank_list
from studio.sim.collectives import ROOT_KEYS
from studio.trace import NONE, CollectiveType, Int64, Rank, int_column

_ROOTED = (CollectiveType.BROADCAST, CollectiveType.REDUCE, CollectiveType.GATHER, CollectiveType.SCATTER)


def differing_root(case: Case, group: GroupMatching) -> Found | None:
    """Return the first collective of a group of which members name different roots; None where there is none."""
    first: Int64 | None = None
    roots: dict[int, Int64] = {}
    position = NONE
    for number, rows in _members(group):
        rank = case.trace.rank(number)
        if rank is None or not any(case.trace.graph_of(rank).has_attribute(key) for key in ROOT_KEYS):
            continue
        mine = np.where(rows == NONE, NONE, _roots(case, rank)[rows])
        roots[number] = mine
        first = mine.copy() if first is None else first
        apart = np.flatnonzero((first != NONE) & (mine != NONE) & (first != mine))
        if len(apart) and (position == NONE or apart[0] < position):
            position = int(apart[0])
        first[first == NONE] = mine[first == NONE]
    if position == NONE:
        return None
    named = {number: int(mine[position]) for number, mine in roots.items() if mine[position] != NONE}
    usual = Counter(named.values()).most_common(1)[0][0]
    odd = min(number for number, root in named.items() if root != usual)
    other = min(number for number, root in named.items() if root == usual)
    nodes = [(number, int(dict(_members(group))[number][position])) for number in (odd, other)]
    return Found(
        "error",
        f"Members of {group_label(group)} name different roots of its collective {position}: rank {odd} has "
        f"{collective_label(case.trace, *nodes[0])} with the root {named[odd]}, where rank {other} has "
        f"{collective_label(case.trace, *nodes[1])} with the root {usual}.",
        tuple(sorted((odd, other))),
        tuple(NodeAt(rank, row) for rank, row in nodes),
        1,
        (("they differ in", "root"), ("members", rank_list(sorted(group.members)))),
        mends=False,
    )


def _members(group: GroupMatching) -> list[tuple[int, Int64]]:
    """Return the members that have collectives of a group, each with the rows (C,) of these, -1 where it lacks one; without any if none has a root."""
    if not any(bool(np.isin(sequence.type, _ROOTED).any()) for sequence in group.sequences):
        return []
    return [
        (number, rows)
        for number, rows, index in zip(group.members, group.rows(), group.sequence_of.tolist(), strict=True)
        if index != NONE
    ]


def _roots(case: Case, rank: Rank) -> Int64:
    """Return the root (N,) that each collective with one names, -1 elsewhere."""
    graph = case.trace.graph_of(rank)
    roots = np.full(len(graph), NONE, np.int64)
    for key in reversed(ROOT_KEYS):
        rows, values = int_column(graph, key, rank.slots)
        roots[rows] = values
    kinds = next(one.collective for one in case.graphs if one.index == rank.graph)
    return np.where(np.isin(kinds, _ROOTED), roots, NONE)
