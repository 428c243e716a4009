"""Tell comm groups of the same ranks apart where one of them cannot have had all that was put into it.

Members of a group begin its collectives in one order. Where those that were inferred to be of one group follow each other differently on
some ranks, and the job has other groups of the same ranks, they are of several. What goes into one of them is what one thread of the
program called for (a thread mostly works for one group, and several may work for the same), else what one thread of the library carried
out, else what is of one kind and size: the first of these that leaves one order in every group is taken. It stays inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from studio.et.link.draft import RankDraft
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.sequence import Place, find_call, get_facts, order_by_issue
from studio.et.link.shifts import have_one_order
from studio.trace import NONE

_MOST_CLASSES = 16
"""Classes of collectives up to which it is tried which are of one group."""


_Key = tuple[int, int]
"""Kind and size."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A collective of a rank.

    Attributes:
        place: Where it is.
        turn: Which of the rank's collectives it is, by when they were called for.
        key: What it is.
        caller, carrier: Numbers of the threads that called for it, and that carried it out.
        group: What it was put into.
    """

    place: Place
    turn: int
    key: _Key
    caller: int
    carrier: int
    group: str


_Part = dict[int, list[_Item]]
"""Collectives that are in one group, by place of the draft, in the order of their calls."""


def tell_apart(
    drafts: Sequence[RankDraft], members: Mapping[str, tuple[int, ...]], used: Mapping[str, int]
) -> list[tuple[int, Place, str, str]]:
    """Return what is of another group than it was put into: place of the draft, place, that group, and the other one.

    Args:
        drafts: The ranks.
        members: The ranks of each group.
        used: Groups that something was put into for which nothing names one.
    """
    families: dict[frozenset[int], list[str]] = {}
    for name, ranks in members.items():
        families.setdefault(frozenset(ranks), []).append(name)
    moved = []
    for family in families.values():
        if len(family) > 1 and any(used.get(name) for name in family):
            moved += _tell_family_apart(drafts, family)
    return moved


def _tell_family_apart(
    drafts: Sequence[RankDraft], family: Sequence[str]
) -> list[tuple[int, Place, str, str]]:
    """Return what is of another group of the same ranks than it was put into; empty where nothing speaks against that."""
    whole: _Part = {}
    for index, rank_draft in enumerate(drafts):
        items = _list_items(rank_draft, family)
        if any("group" not in get_facts(rank_draft.communication, item.place).inferred for item in items):
            return []
        if items:
            whole[index] = items
    if len(whole) < 2:
        return []
    present = [
        {index: [item for item in items if item.group == name] for index, items in whole.items()}
        for name in family
    ]
    if all(_agree(drafts, part) for part in present):
        return []
    for way in _WAYS:
        classes: dict[Hashable, _Part] = {}
        for index, items in whole.items():
            for signature, own in _classify(items, *way).items():
                classes.setdefault(signature, {})[index] = own
        parts = _divide(drafts, whole, classes, len(family))
        if parts is not None:
            return [
                (index, item.place, item.group, name)
                for name, part in _name_parts(parts, family).items()
                for index, items in part.items()
                for item in items
                if item.group != name
            ]
    return []


def _list_items(rank_draft: RankDraft, family: Sequence[str]) -> list[_Item]:
    """Return the collectives of a rank that are in a family of groups, in the order of their calls."""
    communication, operations = rank_draft.communication, rank_draft.operations
    items: list[_Item] = []
    for place in order_by_issue(operations, rank_draft.device, rank_draft.launched, communication):
        facts = get_facts(communication, place)
        if facts.group not in family or facts.kind in (SEND, RECEIVE):
            continue
        call = find_call(place, rank_draft.launched, communication)
        caller = communication.callers.get(call, NONE)
        carrier = NONE if place[0] else int(operations.thread[place[1]])
        timed = not place[0] and operations.start_ns[place[1]] >= 0 and place[1] != call
        items.append(
            _Item(
                place,
                len(items),
                (facts.kind, facts.bytes),
                caller,
                carrier if timed else NONE,
                facts.group or "",
            )
        )
    return items


# ---------------------------------------------------------------------------------------------------
# Ways to tell what is of one group


def _get_carrier(item: _Item) -> tuple[int, int]:
    return item.carrier, item.caller if item.carrier == NONE else NONE


_WAYS: tuple[tuple[Callable[[_Item], Hashable], Callable[[Iterable[_Key]], Hashable]], ...] = (
    (lambda item: item.caller, tuple),
    (lambda item: item.caller, frozenset),
    (_get_carrier, frozenset),
    (lambda item: item.key, frozenset),
)
"""By what collectives of a rank are of one group, such as their thread; and which of other ranks, and of other times, are like these."""


def _classify(
    items: Sequence[_Item], unit: Callable[[_Item], Hashable], sign: Callable[[Iterable[_Key]], Hashable]
) -> dict[Hashable, list[_Item]]:
    """Return the collectives of a rank by the class of their unit: what kinds and sizes it has."""
    units: dict[Hashable, list[_Item]] = {}
    for item in items:
        units.setdefault(unit(item), []).append(item)
    classes: dict[Hashable, list[_Item]] = {}
    for own in units.values():
        classes.setdefault(sign(item.key for item in own), []).extend(own)
    return classes


def _divide(
    drafts: Sequence[RankDraft], whole: _Part, classes: Mapping[Hashable, _Part], most: int
) -> list[_Part] | None:
    """Return classes in as few parts as leave one order in each, at most so many; None where that is not so.

    Args:
        drafts: The ranks.
        whole: All collectives.
        classes: The same by class.
        most: How many groups there are.
    """
    if not 1 < len(classes) <= _MOST_CLASSES:
        return None
    parts: list[_Part] = []
    # Those of most ranks first: what a few alone have, as at the borders of recordings, goes to the others.
    for own in sorted(classes.values(), key=lambda own: (-len(own), -sum(map(len, own.values())))):
        for place, part in enumerate(parts):
            merged = {
                index: sorted([*part.get(index, ()), *own.get(index, ())], key=lambda item: item.turn)
                for index in {*part, *own}
            }
            if _agree(drafts, merged):
                parts[place] = merged
                break
        else:
            parts.append({index: sorted(items, key=lambda item: item.turn) for index, items in own.items()})
    fits = 1 < len(parts) <= most and all(
        len(part) == len(whole) and _count_apart(part) <= _count_apart(whole) and _agree(drafts, part)
        for part in parts
    )
    return parts if fits else None


def _agree(drafts: Sequence[RankDraft], part: _Part) -> bool:
    """Whether the collectives of a part follow each other alike on all ranks that have some."""
    held = {index: [item.place for item in items] for index, items in part.items() if items}
    return have_one_order([drafts[index] for index in held], list(held.values()))


def _count_apart(part: _Part) -> int:
    """Return by how many collectives the ranks differ."""
    counts = [len(items) for items in part.values()]
    return max(counts) - min(counts)


def _name_parts(parts: Sequence[_Part], family: Sequence[str]) -> dict[str, _Part]:
    """Return parts by the group that most of each was put into; that of the most recorded first, as it is of the main thread."""
    named: dict[str, _Part] = {}
    for part in sorted(
        parts, key=lambda part: -sum(item.carrier != NONE for own in part.values() for item in own)
    ):
        held = Counter(item.group for own in part.values() for item in own)
        named[min((name for name in family if name not in named), key=lambda name: -held[name])] = part
    return named
