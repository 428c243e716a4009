"""Find collectives whose members name different roots, or a root that is none of them: it never sends what they wait for."""

from __future__ import annotations

from collections import Counter

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.doctor.diagnosis import Case, Found, GraphCase, NodeAt
from studio.sim.agreement import describe_collective, format_ranks, label_group
from studio.trace import NONE, ROOTED_TYPES, Int64


def find_wrong_root(case: Case, group: GroupMatching) -> Found | None:
    """Return the first collective of a group of which members name different roots, or one outside it; None where there is none."""
    if not any(bool(np.isin(sequence.type, ROOTED_TYPES).any()) for sequence in group.sequences):
        return None
    # Members that share a sequence share a graph, which names the roots.
    present = np.flatnonzero(group.sequence_of != NONE)
    _, firsts, which = np.unique(group.sequence_of[present], return_index=True, return_inverse=True)
    rows = group.rows()[present[firsts]]
    cases = [case.by_rank[group.members[member]] for member in present[firsts].tolist()]
    roots = np.stack([_select_roots(own, own_rows) for own, own_rows in zip(cases, rows, strict=True)])
    position = _find_first_difference(roots)
    numbers = [group.members[member] for member in present.tolist()]
    if position is None:
        return _find_outside(case, group, numbers, roots[which.reshape(-1)], rows[which.reshape(-1)])
    named = dict(zip(numbers, roots[which.reshape(-1), position].tolist(), strict=True))
    usual = Counter(root for root in named.values() if root != NONE).most_common(1)[0][0]
    odd = min(number for number, root in named.items() if root not in (usual, NONE))
    other = min(number for number, root in named.items() if root == usual)
    of_rank = dict(zip(numbers, rows[which.reshape(-1), position].tolist(), strict=True))
    nodes = [(number, of_rank[number]) for number in (odd, other)]
    return Found(
        "error",
        f"Members of {label_group(group)} name different roots of its collective {position}: rank {odd} has "
        f"{describe_collective(case.trace, *nodes[0])} with the root {named[odd]}, where rank {other} has "
        f"{describe_collective(case.trace, *nodes[1])} with the root {usual}.",
        tuple(sorted((odd, other))),
        tuple(NodeAt(rank, row) for rank, row in nodes),
        1,
        (("they differ in", "root"), ("members", format_ranks(sorted(group.members)))),
        is_repairable=False,
    )


def _find_outside(
    case: Case, group: GroupMatching, numbers: list[int], roots: Int64, rows: Int64
) -> Found | None:
    """Return the first collective whose root is no member.

    Args:
        case: The job.
        group: The group.
        numbers: The ranks of S members.
        roots: (S, C) the roots they name, -1 for none.
        rows: (S, C) the nodes of the collectives.
    """
    outside = (roots != NONE) & ~np.isin(roots, group.members)
    if not outside.any():
        return None
    position = int(np.flatnonzero(outside.any(axis=0))[0])
    member = int(np.flatnonzero(outside[:, position])[0])
    number, row = numbers[member], int(rows[member, position])
    return Found(
        "error",
        f"{describe_collective(case.trace, number, row)} of rank {number}, collective {position} of {label_group(group)}, names the "
        f"root {int(roots[member, position])}, which is none of the members ({format_ranks(sorted(group.members))}).",
        (number,),
        (NodeAt(number, row),),
        int(outside.any(axis=0).sum()),
        (("they differ in", "root"),),
        advice="Roots are numbers of ranks of the job, not places in the group.",
        is_repairable=False,
    )


def _select_roots(case: GraphCase, rows: Int64) -> Int64:
    """Return the root that each collective (C,) with one names, -1 elsewhere and where there is no collective."""
    rooted = np.isin(case.collective[rows], ROOTED_TYPES) & (rows != NONE)
    return np.where(rooted, case.roots[rows], NONE)


def _find_first_difference(roots: Int64) -> int | None:
    """Return the first collective of which not all that name a root (S, C) name the same."""
    most = roots.max(axis=0, initial=NONE)
    apart = np.flatnonzero(((roots != NONE) & (roots != most)).any(axis=0))
    return int(apart[0]) if len(apart) else None
