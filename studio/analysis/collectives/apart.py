"""Collectives that were matched and are none: at their place in the group, members do different things.

Where nothing numbers collectives, the n-th of one member is matched with the n-th of another. A recording that lacks one, or a comm
group that was inferred, shifts them; then an all-reduce of one rank stands beside an all-to-all of another. They did not meet, so
neither a bandwidth nor a wait follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.trace import NONE, WORLD, Bool, CollectiveType, Int64
from studio.units import format_counted

_OF_EQUAL_SIZES = (CollectiveType.ALL_REDUCE, CollectiveType.BROADCAST, CollectiveType.REDUCE)
"""Kinds in which every member has the whole array; of the others they may put in parts of different sizes."""
_NEVER = np.iinfo(np.int64).max


def may_differ(group: GroupMatching, order: Int64 | None) -> bool:
    """Return whether members may do different things at some place; where they do not, nobody needs to look at each.

    Args:
        group: The group.
        order: (M, C) which collective of its sequence each member has at each place; None for the order of the sequences.
    """
    if order is not None and not (order == order[:1]).all():
        return True
    return any(
        not np.array_equal(each.type, first.type) or not np.array_equal(each.bytes, first.bytes)
        for first, each in pairwise(group.sequences)
    )


def find_apart(kind: Int64, size: Int64, is_present: Bool) -> Bool:
    """Return (C,) at which places members do what cannot be one collective: of different types, or sizes where these must be equal.

    What is not known, type -1 or 0 bytes, contradicts nothing.

    Args:
        kind: (M, C) CollectiveType of each member's collective.
        size: (M, C) what it puts in, in bytes.
        is_present: (M, C) whether it has one there.

    Example:
        >>> kind = np.array([[0, 0, 6], [6, 0, 6]])
        >>> find_apart(kind, np.array([[8, 8, 8], [8, 4, 4]]), kind >= 0).tolist()
        [True, True, False]
    """
    whole = np.isin(kind, _OF_EQUAL_SIZES)
    return _are_unequal(kind, is_present & (kind != NONE)) | _are_unequal(
        size, is_present & whole & (size > 0)
    )


def _are_unequal(value: Int64, known: Bool) -> Bool:
    most = np.where(known, value, NONE).max(axis=0, initial=NONE)
    unequal: Bool = (most != NONE) & (np.where(known, value, _NEVER).min(axis=0, initial=_NEVER) != most)
    return unequal


def list_apart(apart: Iterable[tuple[str, Int64]]) -> list[dict[str, object]]:
    """Return as plain data which matched collectives are none: the comm group, and the positions in it.

    Example:
        >>> list_apart([("tp", np.array([3, 4])), ("dp", np.array([], int))])
        [{'group': 'tp', 'positions': [3, 4]}]
    """
    return [{"group": name, "positions": places.tolist()} for name, places in apart if len(places)]


def describe_apart(apart: Iterable[tuple[str, Int64]]) -> str:
    """Say how many matched collectives are none; "" where all are.

    Args:
        apart: Names of comm groups, and at which places of each (counted from 0) members do different things.

    Example:
        >>> describe_apart([("tp", np.array([3, 4]))])
        'left out: 2 collectives whose members differ in type or size, first collective 3 of group tp; nothing tells that they met, so no waiting, skew or bandwidth is computed from them (see check)'
    """
    named = [(name, places) for name, places in apart if len(places)]
    if not named:
        return ""
    count = sum(len(places) for _, places in named)
    name, places = named[0]
    where = "the group of all ranks" if name == WORLD else f"group {name}"
    them = "it" if count == 1 else "them"
    return (
        f"left out: {format_counted(count, 'collective')} whose members differ in type or size, first collective "
        f"{int(places.min())} of {where}; nothing tells that they met, so no waiting, skew or bandwidth is computed from {them} (see check)"
    )
