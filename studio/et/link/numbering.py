"""Number the collectives of every comm group.

NCCL's recorders write that number (`seq`); elsewhere the order of the calls tells it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from studio.et.link.draft import RankDraft
from studio.et.link.facts import Communication
from studio.et.link.sequence import Place, get_facts, order_by_issue
from studio.et.link.shifts import find_shifts


def number_collectives(drafts: Sequence[RankDraft]) -> None:
    """Give every collective its number in its comm group, continuing recorded numbers, else from the first that any rank has.

    Where a recorder numbered those of some ranks of a group, the others are left without: theirs would not fit.
    """
    orders = [
        order_by_issue(
            rank_draft.operations, rank_draft.device, rank_draft.launched, rank_draft.communication
        )
        for rank_draft in drafts
    ]
    recorded = Counter[str]()
    for rank_draft, order in zip(drafts, orders, strict=True):
        known = [get_facts(rank_draft.communication, place) for place in order]
        recorded.update({facts.group for facts in known if facts.group and facts.seq >= 0})
    by_group: dict[str, list[tuple[RankDraft, list[Place]]]] = {}
    for rank_draft, order in zip(drafts, orders, strict=True):
        groups: dict[str, list[Place]] = {}
        for place in order:
            groups.setdefault(get_facts(rank_draft.communication, place).group or "", []).append(place)
        for name, places in groups.items():
            by_group.setdefault(name, []).append((rank_draft, places))
    for name, ranks in by_group.items():
        _number_group(name, ranks, is_recorded=recorded[name] > 0)


def _number_group(name: str, ranks: Sequence[tuple[RankDraft, list[Place]]], *, is_recorded: bool) -> None:
    """Number the collectives of a group, given those of each rank in the order of the calls."""
    drafts, places = zip(*ranks, strict=True)
    written = [
        [get_facts(rank_draft.communication, place).seq for place in own]
        for rank_draft, own in zip(drafts, places, strict=True)
    ]
    if is_recorded:
        counted = _count_all(written) or [_fill_numbers(own) for own in written]
    else:
        shifts = find_shifts(drafts, places)
        if any(shifts):
            for rank_draft in drafts:
                rank_draft.communication.begins_apart.add(name)
        counted = [list(range(shift, shift + len(own))) for shift, own in zip(shifts, written, strict=True)]
    for (rank_draft, own), before, numbers in zip(ranks, written, counted, strict=True):
        if is_recorded and max(before) < 0:
            continue
        for place, seq, old in zip(own, numbers, before, strict=True):
            if seq != old:
                _renumber(rank_draft.communication, place, seq)


def _fill_numbers(written: Sequence[int]) -> list[int]:
    """Fill in missing numbers by counting on; return the list unchanged where that does not fit.

    Example:
        >>> _fill_numbers([-1, -1]), _fill_numbers([-1, 7, -1, 9]), _fill_numbers([3, -1, 4])
        ([0, 1], [6, 7, 8, 9], [3, -1, 4])
    """
    first = next((index for index, seq in enumerate(written) if seq >= 0), None)
    start = 0 if first is None else written[first] - first
    numbers: list[int] = []
    for index, seq in enumerate(written):
        numbers.append(seq if seq >= 0 else (numbers[-1] + 1 if numbers else start + index))
    rising = all(this < other for this, other in pairwise(numbers))
    return numbers if rising and numbers[:1] >= [0] else list(written)


def _count_all(written: Sequence[Sequence[int]]) -> list[list[int]]:
    """Number all of a group where a recorder left some out between numbers that follow each other, on all ranks alike.

    Empty where numbers can be filled in, and where the ranks differ in more than when their recordings end.

    Args:
        written: The numbers of each rank in the order of its calls, -1 for those without.

    Example:
        >>> _count_all([[3, -1, 4, 5], [3, -1, 4]]), _count_all([[3, -1, 4], [3, 4]]), _count_all([[3, -1, 5]])
        ([[3, 4, 5, 6], [3, 4, 5]], [], [])
    """
    longest = max(written, key=len)
    known = [seq for seq in longest if seq >= 0]
    rising = all(this < other for this, other in pairwise(known))
    if not known or not rising or min(_fill_numbers(longest)) >= 0:
        return []
    if any(list(own) != list(longest[: len(own)]) for own in written):
        return []
    first = max(known[0] - longest.index(known[0]), 0)
    return [list(range(first, first + len(own))) for own in written]


def _renumber(communication: Communication, place: Place, seq: int) -> None:
    by_place = communication.devices if place[0] else communication.operators
    facts = by_place[place[1]]
    by_place[place[1]] = replace(facts, seq=seq, inferred=(*facts.inferred, "seq"))
