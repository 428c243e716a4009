"""Let collectives follow each other in the groups that they turned out to be in.

Dependencies of a rank are derived before ranks are compared, and what names no group counts as of one group then.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from studio.et.link.dep_kinds import DepKind
from studio.et.link.depend import Plan
from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.options import LinkOptions
from studio.trace import NONE, Int64


def follow_groups(rank_draft: RankDraft, by_row: dict[int, Facts], options: LinkOptions) -> Plan:
    """Return the plan of a rank whose collectives wait for the one before in their own group, and in no other.

    Args:
        rank_draft: The rank, its groups settled.
        by_row: Its communication by row of the graph.
        options: What is derived.
    """
    plan = rank_draft.plan
    follows = np.flatnonzero(plan.kinds & int(DepKind.SEQUENCE))
    codes: dict[str | None, int] = {}
    group = np.full(len(plan.order), NONE, np.int64)
    for row, facts in by_row.items():
        if facts.kind not in (SEND, RECEIVE):
            group[row] = codes.setdefault(facts.group, len(codes))
    crossing = follows[group[plan.source[follows]] != group[plan.target[follows]]]
    if not len(crossing) or DepKind.SEQUENCE not in options.kinds:
        return plan
    kinds = plan.kinds.copy()
    kinds[crossing] &= ~int(DepKind.SEQUENCE)
    earlier, later = _list_chains(rank_draft, group)
    forward = plan.order[earlier] < plan.order[later]
    source = np.concatenate((plan.source, earlier[forward]))
    target = np.concatenate((plan.target, later[forward]))
    kinds = np.append(kinds, np.full(int(forward.sum()), int(DepKind.SEQUENCE), kinds.dtype))
    key, inverse = np.unique(target * len(plan.order) + source, return_inverse=True)
    merged = np.zeros(len(key), kinds.dtype)
    np.bitwise_or.at(merged, inverse, kinds)
    left = merged != 0
    return replace(
        plan,
        source=(key % len(plan.order))[left],
        target=(key // len(plan.order))[left],
        kinds=merged[left],
    )


def _list_chains(rank_draft: RankDraft, group: Int64) -> tuple[Int64, Int64]:
    """Return the rows of collectives that follow each other in a group: the earlier, and the later.

    Args:
        rank_draft: The rank.
        group: Number of the group of every row of the graph that is a collective, -1 for others.
    """
    rows = np.flatnonzero(group != NONE)
    calls = rows.copy()
    first_device = len(rank_draft.operations) + len(rank_draft.plan.gaps)
    issued_by, launched = rank_draft.communication.issued_by, rank_draft.launched
    for place, row in enumerate(rows.tolist()):
        call = row
        if row >= first_device and launched is not None:
            call = int(launched.operator[row - first_device])
            call = row if call < 0 else call
        calls[place] = issued_by.get(call, call)
    order = rank_draft.plan.order
    sort = np.lexsort((order[rows], order[calls], group[rows]))
    pairs = [(this, other) for this, other in pairwise(rows[sort].tolist()) if group[this] == group[other]]
    earlier, later = np.array(pairs, np.int64).reshape(-1, 2).T
    return earlier, later
