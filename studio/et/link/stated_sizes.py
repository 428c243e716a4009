"""Infer the ranks of comm groups of which collectives state nothing but how many they are.

Old recorders do. All members of a group have the same collectives in the same order, and end them together. Where that leaves one way
to divide the ranks, it is taken; what comes from here is marked as inferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from studio.et.link.calls import Calls, collect_calls
from studio.et.link.draft import RankDraft
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.sequence import Place, get_facts, order_by_issue
from studio.trace import RECORDED_LATE_NS, Bool, Int64

_CLEARLY = 5.0
"""So many times nearer than others ends of members have to be."""
_LEAST_APART_NS = 20_000
"""By this much ends of other ranks have to be apart, half of the times."""
_LEAST_TIMED = 3
"""So many collectives have to be compared by their ends."""

Members = Mapping[str, tuple[int, ...]]
_Own = dict[int, list[Place]]
"""Collectives by place of the draft, in the order of their calls."""


@dataclass(frozen=True, slots=True)
class StatedGroup:
    """A group that nothing lists.

    Attributes:
        ranks: Its members.
        places: Its collectives by place of the draft.
        undecided: Those of them that fit another group as well.
    """

    ranks: tuple[int, ...]
    places: _Own
    undecided: dict[int, set[Place]]


def infer_stated_groups(drafts: Sequence[RankDraft], members: Members, world: int) -> list[StatedGroup]:
    """Return the groups that nothing lists, with the collectives that state their size.

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
    return [group for size, places in by_size.items() for group in _divide_by_kind(drafts, places, size)]


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


def _divide_by_kind(drafts: Sequence[RankDraft], places: _Own, size: int) -> list[StatedGroup]:
    """Return groups of a size: a rank may be in several, which differ in kinds and sizes of their collectives.

    What these leave open is in the group that the whole order tells, if it does; nothing proves that.
    """
    by_kind: dict[tuple[int, int], _Own] = {}
    for index, own in places.items():
        for place in own:
            facts = get_facts(drafts[index].communication, place)
            by_kind.setdefault((facts.kind, facts.bytes), {}).setdefault(index, []).append(place)
    whole = [frozenset(part) for part in _divide(drafts, places, size)]
    together: dict[frozenset[int], StatedGroup] = {}
    for alike in by_kind.values():
        parts_alike = [frozenset(part) for part in _divide(drafts, alike, size)]
        for part in parts_alike or whole:
            ranks = tuple(sorted(int(drafts[index].number or 0) for index in part))
            group = together.setdefault(part, StatedGroup(ranks, {}, {}))
            for index in part & alike.keys():
                group.places.setdefault(index, []).extend(alike[index])
                if not parts_alike:
                    group.undecided.setdefault(index, set()).update(alike[index])
    return list(together.values())


def _divide(drafts: Sequence[RankDraft], places: _Own, size: int) -> list[_Own]:
    """Return the one way to divide ranks into groups of a size whose collectives agree, empty where there is none or several."""
    classes = _collect_classes({index: collect_calls(drafts[index], own) for index, own in places.items()})
    fitting = _collect_fitting(classes, size)
    by_ends = any(_count(fits) > size for fits in fitting.values())
    parts: set[frozenset[int]] = set()
    for this in classes if fitting else ():
        for row, index in enumerate(this.ranks):
            fits = fitting[index]
            parts.add(_find_nearest(this, row, fits, size) if by_ends else _merge_fitting(fits))
            if frozenset() in parts:
                return []
    # All fit each other, so each rank is in one part.
    if any(len(part) != size for part in parts) or sum(map(len, parts)) != len(places):
        return []
    return [{index: places[index] for index in sorted(part)} for part in sorted(parts, key=min)]


# ---------------------------------------------------------------------------------------------------
# Which ranks have the same collectives


@dataclass(frozen=True, slots=True)
class _Class:
    """Ranks with collectives of the same kinds and sizes in the same order, with times by one clock.

    K ranks, C collectives.

    Attributes:
        ranks: (K,) places of their drafts.
        kind, size: (C,) what the collectives are, see `Calls`.
        timed: (C,) whether their times can be compared.
        begin, end: (K, C) when they began and ended.
        machine: Whose clock it is.
    """

    ranks: tuple[int, ...]
    kind: Int64
    size: Int64
    timed: Bool
    begin: Int64
    end: Int64
    machine: str


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Ranks of a class that may have had the collectives of a rank.

    Attributes:
        other: The class.
        rows: (F,) which of its ranks.
        timed: (T,) the collectives whose times tell.
    """

    other: _Class
    rows: Int64
    timed: Int64


def _count(fitting: Sequence[_Fitting]) -> int:
    return sum(len(fits.rows) for fits in fitting)


def _merge_fitting(fitting: Sequence[_Fitting]) -> frozenset[int]:
    return frozenset(fits.other.ranks[row] for fits in fitting for row in fits.rows.tolist())


def _collect_fitting(classes: Sequence[_Class], size: int) -> dict[int, list[_Fitting]]:
    """Return those that may have had the collectives of each rank, itself among them, by place of the draft.

    Empty where these are more than a group has and no clock tells which of them are nearest.
    """
    fitting: dict[int, list[_Fitting]] = {}
    by_ends = untimed = False
    for this, others in _iterate_agreeing(classes):
        fitting.update((index, []) for index in this.ranks)
        for other in others:
            timed = _find_timed(this, other)
            fitting_rows = _list_fitting(this, other, timed)
            for index, rows in zip(this.ranks, fitting_rows, strict=True):
                fitting[index].append(_Fitting(other, rows, timed))
            if len(timed) < _LEAST_TIMED:
                untimed = untimed or any(len(rows) > (this is other) for rows in fitting_rows)
        by_ends = by_ends or any(_count(fitting[index]) > size for index in this.ranks)
        if by_ends and untimed:
            return {}
    return fitting


def _collect_classes(calls: Mapping[int, Calls]) -> list[_Class]:
    """Return the classes of ranks, so that what is alike is compared once."""
    members: dict[tuple[bytes, bytes, bytes, str], list[int]] = {}
    timed = {index: own.waits & (own.begin >= 0) & (own.machine != "") for index, own in calls.items()}
    for index, own in calls.items():
        key = own.kind.tobytes(), own.size.tobytes(), timed[index].tobytes(), own.machine
        members.setdefault(key, []).append(index)
    return [
        _Class(
            tuple(ranks),
            calls[ranks[0]].kind,
            calls[ranks[0]].size,
            timed[ranks[0]],
            np.stack([calls[index].begin for index in ranks]),
            np.stack([calls[index].end for index in ranks]),
            calls[ranks[0]].machine,
        )
        for ranks in members.values()
    ]


def _iterate_agreeing(classes: Sequence[_Class]) -> Iterator[tuple[_Class, list[_Class]]]:
    """Yield each class with those, itself among them, whose kinds agree and whose sizes do where both are known."""
    by_size: dict[tuple[bytes, bytes], list[_Class]] = {}
    by_kind: dict[bytes, list[list[_Class]]] = {}
    for own in classes:
        key = own.kind.tobytes(), own.size.tobytes()
        if key not in by_size:
            by_kind.setdefault(key[0], []).append(by_size.setdefault(key, []))
        by_size[key].append(own)
    incomplete = {
        kind: [alike for alike in lists if (alike[0].size < 0).any()] for kind, lists in by_kind.items()
    }
    for own in classes:
        kind, alike = own.kind.tobytes(), by_size[own.kind.tobytes(), own.size.tobytes()]
        others = by_kind[kind] if (own.size < 0).any() else incomplete[kind]
        agreeing = [other for other in others if other is not alike and _have_same_sizes(own, other[0])]
        yield own, [*alike, *chain.from_iterable(agreeing)]


def _have_same_sizes(this: _Class, other: _Class) -> bool:
    known = (this.size >= 0) & (other.size >= 0)
    return bool((this.size == other.size)[known].all())


def _find_timed(this: _Class, other: _Class) -> Int64:
    """Return the places of the collectives whose times on ranks of two classes can be compared."""
    if this.machine != other.machine:
        return np.zeros(0, np.int64)
    return np.flatnonzero(this.timed & other.timed)


def _list_fitting(this: _Class, other: _Class, timed: Int64) -> list[Int64]:
    """Return for each rank of a class those of another that had all of the collectives under way when it had, by a common clock."""
    everyone = np.arange(len(other.ranks))
    if not len(timed):
        return [everyone] * len(this.ranks)
    begin, end = other.begin[:, timed], other.end[:, timed] + RECORDED_LATE_NS
    if this is other and (begin.max(axis=0) <= end.min(axis=0)).all():
        return [everyone] * len(this.ranks)
    fitting = []
    for row, (own_begin, own_end) in enumerate(
        zip(this.begin[:, timed], this.end[:, timed] + RECORDED_LATE_NS, strict=True)
    ):
        fits = (np.maximum(begin, own_begin) <= np.minimum(end, own_end)).all(axis=1)
        if this is other:
            fits[row] = True
        fitting.append(np.flatnonzero(fits))
    return fitting


def _find_nearest(this: _Class, row: int, fitting: Sequence[_Fitting], size: int) -> frozenset[int]:
    """Return a rank and those that end its collectives with it, clearly nearer than others do; empty where that is not so."""
    apart: dict[int, float] = {}
    for fits in fitting:
        ends = fits.other.end[np.ix_(fits.rows, fits.timed)]
        medians = (
            np.median(np.abs(ends - this.end[row, fits.timed]), axis=1)
            if len(fits.timed) >= _LEAST_TIMED
            else np.full(len(fits.rows), np.inf)
        )
        apart.update(
            zip((fits.other.ranks[place] for place in fits.rows.tolist()), medians.tolist(), strict=True)
        )
    apart[this.ranks[row]] = -1.0
    ordered = sorted(apart, key=lambda other: apart[other])
    if len(ordered) < size or apart[ordered[-1]] == np.inf:
        return frozenset()
    if len(ordered) > size:
        within, beyond = apart[ordered[size - 1]], apart[ordered[size]]
        if beyond < max(_CLEARLY * within, _LEAST_APART_NS):
            return frozenset()
    return frozenset(ordered[:size])
