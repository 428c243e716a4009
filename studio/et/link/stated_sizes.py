"""Infer the ranks of comm groups of which collectives state nothing but how many they are.

Old recorders do. All members of a group have the same collectives in the same order, and end them together. Where that leaves one way
to divide the ranks, it is taken; what comes from here is marked as inferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from studio.et.link.calls import Calls, collect_calls
from studio.et.link.draft import RankDraft
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.sequence import Place, get_facts, order_by_issue
from studio.trace import Int64

_LATE_NS = 1_000_000
"""What recorders note late."""
_CLEARLY = 5.0
"""So many times nearer than others ends of members have to be."""
_LEAST_APART_NS = 20_000
"""By this much ends of other ranks have to be apart, half of the times."""
_LEAST_TIMED = 3
"""So many collectives have to be compared by their ends."""

Members = Mapping[str, tuple[int, ...]]
_Own = dict[int, list[Place]]
"""Collectives by place of the draft, in the order of their calls."""


def infer_stated_groups(
    drafts: Sequence[RankDraft], members: Members, world: int
) -> list[tuple[tuple[int, ...], _Own]]:
    """Return the ranks of groups that nothing lists, with the collectives that state their size, by place of the draft.

    Args:
        drafts: The ranks.
        members: The groups that are listed.
        world: How many ranks the job has: unless all are there, members may be missing.
    """
    numbers = [rank_draft.number for rank_draft in drafts]
    if len(drafts) != world or None in numbers:
        return []
    by_size: dict[int, _Own] = {}
    for index, rank_draft in enumerate(drafts):
        own = {len(ranks) for ranks in members.values() if rank_draft.number in ranks}
        for place in _list_unnamed(rank_draft):
            size = get_facts(rank_draft.communication, place).members
            if 1 < size < world and size not in own:
                by_size.setdefault(size, {}).setdefault(index, []).append(place)
    return [
        (tuple(sorted(int(drafts[index].number or 0) for index in part)), part)
        for size, places in by_size.items()
        for part in _divide_by_kind(drafts, places, size)
    ]


def _list_unnamed(rank_draft: RankDraft) -> list[Place]:
    """Return the collectives of a rank that tell neither name nor ranks of their group, but its size, in the order of their calls."""
    communication = rank_draft.communication
    unnamed = {
        (on_device, key)
        for on_device, facts_of in ((False, communication.operators), (True, communication.devices))
        for key, facts in facts_of.items()
        if facts.group is None
        and not facts.group_ranks
        and facts.members > 1
        and facts.kind not in (SEND, RECEIVE)
    }
    if not unnamed:
        return []
    order = order_by_issue(rank_draft.operations, rank_draft.device, rank_draft.launched, communication)
    return [place for place in order if place in unnamed]


def _divide_by_kind(drafts: Sequence[RankDraft], places: _Own, size: int) -> list[_Own]:
    """Return groups of a size: a rank may be in several, which differ in kinds and sizes of their collectives.

    What these leave open is in the group that the whole order tells, if it does.
    """
    by_kind: dict[tuple[int, int], _Own] = {}
    for index, own in places.items():
        for place in own:
            facts = get_facts(drafts[index].communication, place)
            by_kind.setdefault((facts.kind, facts.bytes), {}).setdefault(index, []).append(place)
    whole = [frozenset(part) for part in _divide(drafts, places, size)]
    together: dict[frozenset[int], _Own] = {}
    for alike in by_kind.values():
        parts = [frozenset(part) for part in _divide(drafts, alike, size)] or whole
        for part in parts:
            for index in part & alike.keys():
                together.setdefault(part, {}).setdefault(index, []).extend(alike[index])
    return list(together.values())


def _divide(drafts: Sequence[RankDraft], places: _Own, size: int) -> list[_Own]:
    """Return the one way to divide ranks into groups of a size whose collectives agree, empty where there is none or several."""
    calls = {index: collect_calls(drafts[index], own) for index, own in places.items()}
    fitting: dict[int, set[int]] = {index: {index} for index in calls}
    for this, other in combinations(calls, 2):
        if _may_be_same(calls[this], calls[other]):
            fitting[this].add(other)
            fitting[other].add(this)
    parts = {frozenset(own) for own in fitting.values()}
    if any(len(part) > size for part in parts):
        nearest = {index: _find_nearest(calls, index, fitting[index], size) for index in calls}
        if not all(nearest.values()):
            return []
        parts = set(nearest.values())
    # All fit each other, so each rank is in one part.
    if any(len(part) != size for part in parts) or sum(map(len, parts)) != len(calls):
        return []
    return [{index: places[index] for index in sorted(part)} for part in sorted(parts, key=min)]


def _may_be_same(these: Calls, others: Calls) -> bool:
    """Whether two ranks have the same collectives in the same order, all of which were under way together by a common clock."""
    if len(these) != len(others) or not np.array_equal(these.kind, others.kind):
        return False
    known = (these.size >= 0) & (others.size >= 0)
    if not (these.size == others.size)[known].all():
        return False
    timed = _find_timed(these, others)
    begin, end = np.maximum(these.begin, others.begin), np.minimum(these.end, others.end)
    return bool((begin <= end + _LATE_NS)[timed].all())


def _find_timed(these: Calls, others: Calls) -> Int64:
    """Return the places of the collectives whose times on two ranks can be compared."""
    if not these.machine or these.machine != others.machine:
        return np.zeros(0, np.int64)
    return np.flatnonzero(these.waits & others.waits & (these.begin >= 0) & (others.begin >= 0))


def _find_nearest(calls: Mapping[int, Calls], index: int, fitting: set[int], size: int) -> frozenset[int]:
    """Return a rank and those that end its collectives with it, clearly nearer than others do; empty where that is not so."""
    apart: dict[int, float] = {index: 0.0}
    for other in fitting - {index}:
        timed = _find_timed(calls[index], calls[other])
        if len(timed) < _LEAST_TIMED:
            return frozenset()
        apart[other] = float(np.median(np.abs(calls[index].end - calls[other].end)[timed]))
    ordered = sorted(apart, key=lambda other: apart[other])
    if len(ordered) < size:
        return frozenset()
    if len(ordered) > size:
        within, beyond = apart[ordered[size - 1]], apart[ordered[size]]
        if beyond < max(_CLEARLY * within, _LEAST_APART_NS):
            return frozenset()
    return frozenset(ordered[:size])
