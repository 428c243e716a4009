"""Find how many collectives after that of another rank a recording begins, where no recorder numbers them.

Profilers that are started by time begin on each rank at another collective of a group. What tells it are the names of steps, else
which kinds and sizes follow each other and, on one machine, which were under way at the same time: none ends on one rank before it begins on another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studio.et.link.calls import Calls, collect_calls
from studio.et.link.draft import RankDraft
from studio.et.link.named_steps import count_by_steps
from studio.et.link.sequence import Place
from studio.trace import RECORDED_LATE_NS, Int64

_FARTHEST = 64
"""By so many collectives recordings may begin apart."""
_LEAST = 3
"""So many collectives have to agree."""
_LEAST_SPREAD = 6
"""So many collectives have to be compared by the intervals between them."""
_CLEARLY = 5.0
"""So many times steadier than for any other beginning the distance of clocks has to be."""
_LEAST_APART_NS = 20_000
"""By so much it has to vary for any other beginning."""
_MET, _MISSED = 0.9, 0.5
"""Shares of collectives that have to have been under way at the same time, and that may have been where they were not the same."""


def find_shifts(drafts: Sequence[RankDraft], places: Sequence[Sequence[Place]]) -> list[int]:
    """Return with which collective of a group each rank begins, counted from the first that any of them has.

    All are 0 where nothing proves another beginning.

    Args:
        drafts: The ranks that have collectives of the group.
        places: Their collectives, in the order of their calls.
    """
    if len(drafts) < 2:
        return [0] * len(drafts)
    return _find_shifts(drafts, _collect_all(drafts, places))


def have_one_order(drafts: Sequence[RankDraft], places: Sequence[Sequence[Place]]) -> bool:
    """Whether the kinds and sizes of collectives follow each other alike on all ranks, as far as their recordings overlap.

    Args:
        drafts: Some ranks.
        places: Collectives of each, in the order of their calls.
    """
    if len(drafts) < 2:
        return True
    calls = _collect_all(drafts, places)
    shifts = _find_shifts(drafts, calls)
    first = _find_longest(calls)
    return all(
        _agree(calls[first], own, shift - shifts[first]) for own, shift in zip(calls, shifts, strict=True)
    )


def _collect_all(drafts: Sequence[RankDraft], places: Sequence[Sequence[Place]]) -> list[Calls]:
    return [collect_calls(rank_draft, own) for rank_draft, own in zip(drafts, places, strict=True)]


def _find_longest(calls: Sequence[Calls]) -> int:
    return max(range(len(calls)), key=lambda rank: len(calls[rank]))


def _find_shifts(drafts: Sequence[RankDraft], calls: Sequence[Calls]) -> list[int]:
    """Do what `find_shifts` does, of two ranks at least, given their collectives."""
    place = _find_longest(calls)
    longest = calls[place]
    named = count_by_steps([rank_draft.steps for rank_draft in drafts], [own.issued for own in calls])
    begins = named[place]
    by_name = [None if first is None or begins is None else first - begins for first in named]
    steady = [
        _find_steady_shift(longest, own) if shift and not _share_clock(longest, own) else None
        for own, shift in zip(calls, by_name, strict=True)
    ]
    # Where a rank counts its steps from its own beginning the others may, too.
    believed = all(shift in (None, name) for shift, name in zip(steady, by_name, strict=True))
    shifts = [
        0
        if own is longest
        else _settle_shift(longest, own, name if believed else None)
        if shift is None
        else shift
        for own, name, shift in zip(calls, by_name, steady, strict=True)
    ]
    return [shift - min(shifts) for shift in shifts]


def _share_clock(longest: Calls, own: Calls) -> bool:
    return longest.machine != "" and longest.machine == own.machine


def _settle_shift(longest: Calls, own: Calls, named: int | None) -> int:
    """Return after how many collectives of the longest recording another one begins: as steps tell, unless what they hold refutes it.

    Args:
        longest: The collectives of the longest recording.
        own: Those of the other one.
        named: What named steps tell.
    """
    return _find_shift(longest, own) if named is None or _is_refuted(longest, own, named) else named


def _find_steady_shift(longest: Calls, own: Calls) -> int | None:
    """Return the one beginning for which the clocks of both stay as far apart from collective to collective, None where it is not clear.

    Those that met end together on all ranks, so what lies between them does not differ.
    """
    spreads: dict[int, float] = {}
    most = min(_FARTHEST, max(len(longest), len(own)) - _LEAST)
    for shift in range(-most, most + 1):
        own_places, other_places = _find_overlap(longest, own, shift)
        if not _fits(longest, own, shift):
            continue
        timed = longest.waits[own_places] & own.waits[other_places]
        timed &= (longest.begin[own_places] >= 0) & (own.begin[other_places] >= 0)
        if int(timed.sum()) >= _LEAST_SPREAD:
            spreads[shift] = measure_spread(longest.end[own_places][timed], own.end[other_places][timed])
    if len(spreads) < 2:
        return None
    best, second = sorted(spreads, key=lambda shift: spreads[shift])[:2]
    return best if is_steadier(spreads[best], spreads[second]) else None


def measure_spread(these: Int64, others: Int64) -> float:
    """Return by how much at most the distance of times (T,) on two clocks differs from the usual, in three of four cases.

    Half would be too few: of two collectives in each step every other one may end as far apart.
    """
    apart = these - others
    return float(np.quantile(np.abs(apart - np.median(apart)), 0.75))


def is_steadier(spread: float, other: float) -> bool:
    """Whether the distance of two clocks varies clearly less by one way to match times than by another."""
    return other > max(_CLEARLY * spread, _LEAST_APART_NS)


def _is_refuted(longest: Calls, own: Calls, shift: int) -> bool:
    """Whether other collectives meet than names of steps tell, as where each rank counts from its own beginning."""
    same_clock = longest.machine != "" and longest.machine == own.machine
    these, _ = _find_overlap(longest, own, shift)
    if these.stop <= these.start:
        return same_clock and _fits(longest, own, 0) and _share_met(longest, own, 0, untimed=0.0) >= _MET
    if same_clock and _share_met(longest, own, shift) <= _MISSED:
        return True
    return shift != 0 and not _agree(longest, own, shift)


def _find_shift(longest: Calls, own: Calls) -> int:
    """Return after how many collectives of the longest recording another one begins; less than 0 where it began before that."""
    if _may_begin_together(longest, own):
        return 0
    most = min(_FARTHEST, max(len(longest), len(own)) - _LEAST)
    fitting = [shift for shift in range(-most, most + 1) if shift and _fits(longest, own, shift)]
    if longest.machine and longest.machine == own.machine:
        fitting = [shift for shift in fitting if _share_met(longest, own, shift) >= _MET]
    # Where several fit, as in a job that repeats itself, nothing tells which it is.
    return fitting[0] if len(fitting) == 1 else 0


def _may_begin_together(longest: Calls, own: Calls) -> bool:
    """Whether both begin with the same collective, by what they hold and when that was."""
    if not _fits(longest, own, 0):
        return False
    same_clock = longest.machine != "" and longest.machine == own.machine
    return not same_clock or _share_met(longest, own, 0) > _MISSED


def _find_overlap(longest: Calls, own: Calls, shift: int) -> tuple[slice, slice]:
    """Return the collectives that both hold, on either."""
    first = max(shift, 0)
    count = min(len(longest) - first, len(own) - max(-shift, 0))
    return slice(first, first + max(count, 0)), slice(first - shift, first - shift + max(count, 0))


def _fits(longest: Calls, own: Calls, shift: int) -> bool:
    """Whether kinds and sizes agree, of enough collectives."""
    own_places, _ = _find_overlap(longest, own, shift)
    enough = max(_LEAST, len(own) // 2) if shift else 0
    return own_places.stop - own_places.start >= enough and _agree(longest, own, shift)


def _agree(longest: Calls, own: Calls, shift: int) -> bool:
    """Whether kinds and sizes agree of those that both hold."""
    own_places, other_places = _find_overlap(longest, own, shift)
    sizes, others = longest.size[own_places], own.size[other_places]
    known = (sizes >= 0) & (others >= 0)
    kinds_agree = np.array_equal(longest.kind[own_places], own.kind[other_places])
    return kinds_agree and bool((sizes == others)[known].all())


def _share_met(longest: Calls, own: Calls, shift: int, untimed: float = 1.0) -> float:
    """Return which share of the collectives was under way on both at some time, or what is given where no times tell."""
    own_places, other_places = _find_overlap(longest, own, shift)
    timed = (
        longest.waits[own_places]
        & own.waits[other_places]
        & (longest.begin[own_places] >= 0)
        & (own.begin[other_places] >= 0)
    )
    if not timed.any():
        return untimed
    begin = np.maximum(longest.begin[own_places], own.begin[other_places])[timed]
    end = np.minimum(longest.end[own_places], own.end[other_places])[timed]
    return float((begin <= end + RECORDED_LATE_NS).mean())
