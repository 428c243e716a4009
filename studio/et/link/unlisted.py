"""Find the comm groups that a job made while it was recorded, and that none of its files lists.

Recorders list the groups there are when they begin. What `studio.collect` noted down names the others, and the ranks that name one are
its members. Otherwise the library's threads tell: gloo starts some for each group, so that more than one group has are of several. What a
thread carried out was met by the members of its group, and by others by chance only. Where that explains all of the job, it is taken and
marked as inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np

from studio.distinct import find_distinct
from studio.et.link.clock import have_same_clock
from studio.et.link.draft import RankDraft
from studio.et.link.stated_sizes import StatedGroup
from studio.et.link.strands import Item, collect_items, group_by_strand
from studio.trace import NEEDS_ALL, NONE, RECORDED_LATE_NS

_POOL = 2
"""How many threads gloo gives a group, if nothing else is asked for."""

_Key = tuple[int, int]
"""Kind and size."""
_Thread = tuple[int, int]
"""Place of the draft, and number of the library's thread."""
_Strands = Mapping[_Thread, Sequence[Item]]


def list_noted_groups(drafts: Sequence[RankDraft], world: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and ranks of each group that notes of `studio.collect` name, empty unless all ranks are there.

    Args:
        drafts: The ranks.
        world: How many ranks the job has.
    """
    numbers = [rank_draft.number for rank_draft in drafts if rank_draft.number is not None]
    if len(numbers) < world or any(
        rank_draft.device is None or not rank_draft.device.head.calls for rank_draft in drafts
    ):
        return
    naming: dict[str, set[int]] = {}
    for rank_draft in drafts:
        if rank_draft.device is not None and rank_draft.number is not None:
            for name in {note.group for note in rank_draft.device.head.calls}:
                naming.setdefault(name, set()).add(rank_draft.number)
    for name, ranks in sorted(naming.items()):
        if name:
            yield name, tuple(sorted(ranks))


def infer_unlisted_groups(
    drafts: Sequence[RankDraft], members: Mapping[str, tuple[int, ...]], world: int
) -> list[StatedGroup]:
    """Return the groups of part of the ranks whose threads a job with one listed group has, empty where they do not explain all.

    Args:
        drafts: The ranks.
        members: The groups that are listed.
        world: How many ranks the job has: unless all are there, members may be missing.
    """
    numbers = [rank_draft.number for rank_draft in drafts]
    if len(members) != 1 or len(drafts) != world or world < 3 or None in numbers:
        return []
    if max(map(_count_threads, drafts)) <= _POOL:
        return []
    if not all(have_same_clock(drafts[0], other) for other in drafts[1:]):
        return []
    strands = {
        (index, thread): items
        for index, rank_draft in enumerate(drafts)
        for (thread, _), items in group_by_strand(collect_items(rank_draft)).items()
    }
    threads = Counter(index for index, thread in strands if thread != NONE)
    unnamed = all(item.group is None for items in strands.values() for item in items)
    if (
        max(threads.values(), default=0) <= _POOL
        or not unnamed
        or any(thread == NONE for _, thread in strands)
    ):
        return []
    # Recorders may note down ends and beginnings late, which is allowed for where it has to be.
    for late_ns in (0, RECORDED_LATE_NS):
        groups = _divide(drafts, strands, _find_members(strands, late_ns))
        if groups:
            return groups
    return []


def _divide(
    drafts: Sequence[RankDraft], strands: _Strands, taking: Mapping[_Thread, frozenset[int]]
) -> list[StatedGroup]:
    """Return the groups of part of the ranks by who met what each thread carried out, empty where that does not explain all."""
    together: dict[frozenset[int], StatedGroup] = {}
    for (index, thread), items in strands.items():
        part = taking[index, thread]
        ranks = tuple(sorted(int(drafts[other].number or 0) for other in part))
        group = together.setdefault(part, StatedGroup(ranks, {}, {}))
        group.places.setdefault(index, []).extend(item.place for item in items)
    if not all(_agree(strands, taking, part) for part in together):
        return []
    return [group for part, group in together.items() if len(part) < len(drafts)]


def _count_threads(rank_draft: RankDraft) -> int:
    """Return how many threads of the library carried out what a rank called for."""
    carried = list(rank_draft.communication.issued_by)
    return len(find_distinct(rank_draft.operations.thread[carried])) if carried else 0


def _find_members(strands: _Strands, late_ns: int) -> dict[_Thread, frozenset[int]]:
    """Return the drafts that met all that each thread carried out; what need not meet tells nothing.

    Args:
        strands: What each thread of each draft carried out.
        late_ns: How much later than another one a collective may begin that met it.
    """
    spans: dict[int, dict[_Key, list[tuple[int, int]]]] = {}
    for (index, _), items in strands.items():
        for item in items:
            spans.setdefault(index, {}).setdefault(item.key, []).append((item.begin_ns, item.end_ns))
    known = {
        index: {key: np.array(own, np.int64).T for key, own in by_key.items()}
        for index, by_key in spans.items()
    }

    def find_met(item: Item) -> frozenset[int]:
        return frozenset(
            index
            for index, by_key in known.items()
            if item.key in by_key
            and (
                (by_key[item.key][0] - late_ns < item.end_ns)
                & (item.begin_ns - late_ns < by_key[item.key][1])
            ).any()
        )

    return {
        place: reduce(
            frozenset[int].intersection,
            (find_met(item) for item in items if item.key[0] in NEEDS_ALL),
            frozenset(known),
        ).union((place[0],))
        for place, items in strands.items()
    }


def _agree(strands: _Strands, taking: Mapping[_Thread, frozenset[int]], part: frozenset[int]) -> bool:
    """Whether a group has several members, and all of them have as many collectives of each kind and size in it."""
    counts = {index: Counter[_Key]() for index in part}
    for (index, thread), items in strands.items():
        if taking[index, thread] == part:
            counts[index].update(item.key for item in items)
    return len(part) > 1 and all(count == next(iter(counts.values())) for count in counts.values())
