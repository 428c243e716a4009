"""Find calls for collectives that a recording lacks because gloo's own threads made them.

What is to follow a collective (`then` of its future, as hooks of PyTorch do) gloo runs on the thread that carried it out, and notes it
down as part of it. Unless all threads are recorded, a Kineto trace holds nothing of what it calls for there, and an execution trace the
calls without times. Which call a rank lacks varies, since a collective that is done at once is followed up on the thread that called.

What tells it in a Kineto trace: another member took part in a collective for which this rank has none at that time, while an operation
of gloo went on here that had ended there before. One of another size that was under way here at that time is no such call, but a disagreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.distinct import find_distinct
from studio.et.link.clock import have_same_clock
from studio.et.link.draft import RankDraft
from studio.trace import NEEDS_ALL, NONE, Bool, CollectiveType, Finding, Int64

_NEAR_NS = 1_000_000
"""What recorders note late: collectives that are apart by less may have met."""
_COMPARED = 4
"""Members of a group that each is compared with."""
_RANKS_LISTED = 8


@dataclass(frozen=True, slots=True)
class _Times:
    """The collectives of a comm group on one rank.

    C collectives that need all members.

    Attributes:
        begin, end: (C,) recorded times, begin rising.
        key: (C,) a number for type and size.
        kind: (C,) the type.
        empty: (C,) whether it moves nothing.
        apart: (C,) whether a thread of the library carried it out.
    """

    begin: Int64
    end: Int64
    key: Int64
    kind: Int64
    empty: Int64
    apart: Int64


def find_unrecorded(drafts: Sequence[RankDraft]) -> list[Finding]:
    """Set how many calls the recording of each rank lacks, or has without times; return a finding about those it lacks."""
    lacking: dict[int, int] = {}
    by_group: dict[str, list[int]] = {}
    for place, rank_draft in enumerate(drafts):
        communication = rank_draft.communication
        communication.unrecorded = _count_untimed(rank_draft)
        if communication.issued_by and rank_draft.device is not None:
            for group in {facts.group or "" for facts in communication.operators.values()}:
                by_group.setdefault(group, []).append(place)
    keys: dict[tuple[int, int], int] = {}
    for group, places in by_group.items():
        times = {place: _collect_times(drafts[place], group, keys) for place in places}
        # An execution trace holds all calls.
        for place in [place for place in places if drafts[place].host is None]:
            others = [
                other for other in places if other != place and have_same_clock(drafts[place], drafts[other])
            ]
            counts = [_count_lacking(times[place], times[other]) for other in others[:_COMPARED]]
            if any(counts):
                lacking[place] = lacking.get(place, 0) + max(counts)
    for place, count in lacking.items():
        drafts[place].communication.unrecorded += count
    return (
        [_build_finding({drafts[place].number or 0: count for place, count in lacking.items()})]
        if lacking
        else []
    )


def _count_untimed(rank_draft: RankDraft) -> int:
    """Return how many collectives have no time, although they were called for while the rank was recorded."""
    operations, communication = rank_draft.operations, rank_draft.communication
    timed = np.flatnonzero(operations.timed)
    rows = [row for row in communication.operators if operations.start_ns[row] < 0]
    if not len(timed) or not rows:
        return 0
    begin = operations.begin[[communication.issued_by.get(row, row) for row in rows]]
    first, last = int(operations.start_ns[timed].min()), int(operations.end_ns[timed].max())
    return int(((begin >= first) & (begin <= last)).sum())


def _collect_times(rank_draft: RankDraft, group: str, keys: dict[tuple[int, int], int]) -> _Times:
    """Return the collectives of a group on a rank; numbers of types and sizes are added to `keys`."""
    operations, known = rank_draft.operations, rank_draft.communication.issued_by
    collectives = []
    for row, facts in rank_draft.communication.operators.items():
        if facts.kind not in NEEDS_ALL or (facts.group or "") != group or operations.start_ns[row] < 0:
            continue
        size = NONE if facts.kind == CollectiveType.ALL_TO_ALL else facts.bytes
        key = keys.setdefault((facts.kind, size), len(keys))
        apart = row in known and operations.thread[row] != operations.thread[known[row]]
        collectives.append(
            (
                int(operations.start_ns[row]),
                int(operations.end_ns[row]),
                key,
                facts.kind,
                facts.is_empty,
                apart,
            )
        )
    return _Times(*np.array(sorted(collectives), np.int64).reshape(-1, 6).T)


def _count_lacking(own: _Times, other: _Times) -> int:
    """Return how many collectives of another member a rank lacks that gloo's threads called for while an operation went on."""
    if not own.apart.any() or np.array_equal(own.key, other.key):
        # Of the same collectives in one order none is missing: where they did not meet the clocks differ.
        return 0
    unmet = ~_find_met(other, own)
    lacking = np.flatnonzero((other.empty == 0) & unmet)
    lacking = lacking[~_meet_in_part(other, own, lacking, np.flatnonzero(~_find_met(own, other)))]
    if not len(lacking):
        return 0
    # Operations here that went on although what they are part of had ended there.
    until = np.where(own.empty > 0, own.begin, _find_partner_ends(own, other))
    holds = (own.apart > 0) & (until != NONE)
    begin, end = other.begin[lacking], other.end[lacking]
    within = (
        (until[holds] <= begin[:, np.newaxis] + _NEAR_NS)
        & (own.begin[holds] <= begin[:, np.newaxis] + _NEAR_NS)
        & (own.end[holds] >= end[:, np.newaxis] - _NEAR_NS)
        & (own.end[holds] - own.begin[holds] > _NEAR_NS)
    )
    return int(within.any(axis=1).sum())


def _find_met(these: _Times, others: _Times) -> Bool:
    """Return which of these (C,) another rank has one of the same type and size for, at the same time."""
    met = np.zeros(len(these.begin), np.bool_)
    for key in find_distinct(these.key):
        own_places, theirs = np.flatnonzero(these.key == key), others.key == key
        begin, latest = others.begin[theirs], np.maximum.accumulate(others.end[theirs])
        place = np.searchsorted(begin, these.end[own_places] + _NEAR_NS, "right") - 1
        has_earlier = place >= 0
        met[own_places[has_earlier]] = (
            latest[place[has_earlier]] >= these.begin[own_places[has_earlier]] - _NEAR_NS
        )
    return met


def _meet_in_part(these: _Times, others: _Times, rows: Int64, other_rows: Int64) -> Bool:
    """Return which of some of these another rank has one of the same type for at that time, which differs in size: they disagree."""
    same = these.kind[rows, np.newaxis] == others.kind[other_rows]
    same &= these.begin[rows, np.newaxis] < others.end[other_rows]
    same &= others.begin[other_rows] < these.end[rows, np.newaxis]
    return np.asarray(same.any(axis=1), np.bool_)


def _find_partner_ends(own: _Times, other: _Times) -> Int64:
    """Return when the first collective (C,) of another rank ended that may be the other part of each; -1 where there is none."""
    ends = np.full(len(own.begin), NONE, np.int64)
    for place, (begin, end, key) in enumerate(zip(own.begin, own.end, own.key, strict=True)):
        may = (other.key == key) & (other.begin <= end) & (other.end >= begin - _NEAR_NS)
        if may.any():
            ends[place] = other.end[may].min()
    return ends


def _build_finding(lacking: dict[int, int]) -> Finding:
    several = len(lacking) > 1
    ranks = ", ".join(
        f"{count:,} of rank {number}" for number, count in sorted(lacking.items())[:_RANKS_LISTED]
    )
    more = (
        f" and those of {len(lacking) - _RANKS_LISTED:,} more ranks" if len(lacking) > _RANKS_LISTED else ""
    )
    message = (
        f"Collectives that other members have are missing where gloo's own threads called for them ({ranks}{more}): the profiler "
        f"recorded none of what hooks do there, so counts and bytes of {'these ranks' if several else 'this rank'} are too low."
    )
    hint = "Record with studio.collect, which records all threads."
    return Finding("warning", "calls-unrecorded", message, hint)
