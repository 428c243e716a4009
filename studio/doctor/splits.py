"""Find all-to-alls in which one rank gives another more or less than that one takes from it."""

from __future__ import annotations

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.analysis.collectives.traffic import SPLITS, SPLITS_TAKEN
from studio.analysis.job.completeness import is_recording
from studio.doctor.diagnosis import Case, Found, GraphCase, NodeAt
from studio.sim.agreement import label_group, label_node
from studio.trace import NONE, Bool, CollectiveType, Int64
from studio.units import format_count

_MOST = 1 << 26
"""Parts of all all-to-alls of a group up to which they are compared."""


def find_differing_split(case: Case, group: GroupMatching) -> Found | None:
    """Return the first all-to-all of a group whose parts do not fit, None where all do, or do not say whom they go to."""
    rows = group.rows()
    members = len(rows)
    exchanges = np.flatnonzero((group.content()[0] == CollectiveType.ALL_TO_ALL).any(axis=0))
    if not len(exchanges) or members * members * len(exchanges) > _MOST:
        return None
    own = [case.by_rank.get(number) for number in group.members]
    given, taken = (
        {
            id(graph_case): _read_lists(graph_case, key, members)
            for graph_case in own
            if graph_case is not None
        }
        for key in (SPLITS, SPLITS_TAKEN)
    )
    for position in exchanges.tolist():
        gives, takes = (_stack_lists(lists, own, rows[:, position], members) for lists in (given, taken))
        wrong = (gives != takes.T) & (gives != NONE) & (takes.T != NONE)
        if wrong.any():
            return _build_finding(case, group, position, rows[:, position], (gives, takes, wrong))
    return None


def _read_lists(case: GraphCase, key: str, members: int) -> dict[int, Int64]:
    """Return (members,) bytes to or from each member, by row, of the nodes that say it of so many."""
    attrs = case.graph.attrs
    rows, where = case.graph.rows_with(key)
    whole = attrs.length[where] == members
    starts = attrs.value[where[whole]].tolist()
    return {
        row: attrs.items[start : start + members]
        for row, start in zip(rows[whole].tolist(), starts, strict=True)
    }


def _stack_lists(
    lists: dict[int, dict[int, Int64]], own: list[GraphCase | None], rows: Int64, members: int
) -> Int64:
    """Return (members, members) what each member says of each, -1 where it says nothing."""
    table = np.full((members, members), NONE, np.int64)
    for index, (graph_case, row) in enumerate(zip(own, rows.tolist(), strict=True)):
        if graph_case is not None and row != NONE and row in lists[id(graph_case)]:
            table[index] = lists[id(graph_case)][row]
    return table


def _build_finding(
    case: Case, group: GroupMatching, position: int, rows: Int64, parts: tuple[Int64, Int64, Bool]
) -> Found:
    gives, takes, wrong = parts
    source, target = (int(place[0]) for place in np.nonzero(wrong))
    ranks = group.members[source], group.members[target]
    nodes = [NodeAt(ranks[0], int(rows[source])), NodeAt(ranks[1], int(rows[target]))]
    names = [label_node(case.by_rank[node.rank].graph, node.row) for node in nodes]
    return Found(
        "warning" if is_recording(case.trace) else "error",
        f"In collective {position} of {label_group(group)}, an all-to-all, rank {ranks[0]} gives rank {ranks[1]} "
        f"{int(gives[source, target]):,} B ({names[0]}), and that takes {int(takes[target, source]):,} B from it ({names[1]}).",
        tuple(sorted(set(ranks))),
        tuple(nodes),
        int(wrong.sum()),
        (("they differ in", "parts"), ("parts that differ", format_count(int(wrong.sum())))),
        "A simulation goes by the sums of each rank, and ends; on a machine such an exchange fails, or waits forever.",
        "What one member gives another has to be what that one takes from it: correct the list of one of the two.",
        is_repairable=False,
    )
