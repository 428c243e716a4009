"""Say why a run takes longer although all that differs is a faster network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from studio.analysis.collectives.members import Members, collect_members
from studio.analysis.compare.runs import Comparison
from studio.analysis.compare.sides import Side
from studio.trace import NONE, label_collective
from studio.units import format_count, format_counted, format_ns

_MOST_NODES = 2_000_000
"""Nodes of a job up to which its collectives are compared one by one."""


def describe_faster_network(comparison: Comparison, name_a: str = "A", name_b: str = "B") -> str:
    """Say what in the run on the faster network took longer, where it finished later; "" where that is not so.

    Args:
        comparison: The runs.
        name_a: What to call the first.
        name_b: What to call the other.
    """
    sides = ((comparison.a, name_a), (comparison.b, name_b))
    if comparison.difference_ns < 0:
        sides = sides[::-1]
    (base, _), (late, name) = sides
    faster = _find_faster_dimensions(base, late)
    if not comparison.difference_ns or not faster or base.trace is not late.trace:
        return ""
    where = " and ".join(f"dimension {number}" for number in faster)
    reasons = [
        reason for reason in (_describe_orders(base, late), _describe_collectives(base, late)) if reason
    ]
    if not reasons:
        return ""
    return f"The network of {name} is faster in {where} and slower nowhere, all else is the same: {'; '.join(reasons)}."


def _find_faster_dimensions(base: Side, late: Side) -> list[int]:
    """Return the dimensions in which the network of the late run is faster; none where anything else differs, or one is slower."""
    if base.system is None or base.system != late.system or base.speeds == late.speeds:
        return []
    pairs = list(zip(base.speeds, late.speeds, strict=True))
    if any(now[0] < before[0] or now[1] > before[1] for before, now in pairs):
        return []
    return [number for number, (before, now) in enumerate(pairs) if now != before]


def _describe_orders(base: Side, late: Side) -> str:
    """Say on how many ranks nodes begin in another order."""
    trace, changed, known = base.trace, 0, dict[tuple[int, int], bool]()
    for place, rank in enumerate(trace.ranks):
        firsts = int(base.times.first[place]), int(late.times.first[place])
        if NONE in firsts:
            continue
        if firsts not in known:
            size = len(trace.graph_of(rank))
            starts = [
                side.times.start_ns[first : first + size]
                for side, first in zip((base, late), firsts, strict=True)
            ]
            orders = [np.argsort(start, kind="stable") for start in starts]
            known[firsts] = bool((orders[0] != orders[1]).any())
        changed += known[firsts]
    if not changed:
        return ""
    ranks = f"{format_count(changed)} of {format_counted(len(trace.ranks), 'rank')}"
    return f"on {ranks} nodes begin in another order, since what is ready first goes first, and what others wait for may so come later"


def _describe_collectives(base: Side, late: Side) -> str:
    """Say which collectives of the same nodes take longer, from the last arrival to the end."""
    if base.trace.node_count > _MOST_NODES:
        return ""
    before, now = (collect_members(side.trace, side.times, side.groups) for side in (base, late))
    took = {nodes: ns for nodes, _, ns in _iterate_collectives(before)}
    more: Counter[tuple[int, str]] = Counter()
    worst: dict[tuple[int, str], tuple[int, int]] = {}
    often = compared = 0
    for nodes, which, ns in _iterate_collectives(now):
        if nodes not in took:
            continue
        compared += 1
        if ns > took[nodes]:
            often += 1
            kind_of = int(now.type[which]), now.groups[int(now.group[which])]
            more[kind_of] += ns - took[nodes]
            worst[kind_of] = max(worst.get(kind_of, (0, which)), (ns - took[nodes], which))
    if not often:
        return (
            f"none of {format_counted(compared, 'collective')} takes longer once all members have come"
            if compared
            else ""
        )
    (kind, name), ns = more.most_common(1)[0]
    group = f"group {name}" if name else "all ranks"
    return (
        f"{format_count(often)} of {format_counted(compared, 'collective')} {'takes' if often == 1 else 'take'} longer once all members have "
        f"come, most of all {label_collective(kind)} of {group} ({format_ns(ns)} in all){_explain_choice(late, now, worst[kind, name][1])}"
    )


def _explain_choice(late: Side, members: Members, which: int) -> str:
    """Return why a collective of the late run is not carried out in the quickest way, to go on with; "" where it is."""
    if late.explain_choice is None:
        return ""
    low, high = int(members.offsets[which]), int(members.offsets[which + 1])
    group = members.groups[int(members.group[which])]
    present = [late.trace.ranks[place].number for place in members.rank[low:high].tolist()]
    groups = late.trace.groups if late.groups is None else late.groups
    ranks = next((each.ranks for each in groups if each.name == group), present)
    reason = late.explain_choice(int(members.type[which]), int(members.bytes[low:high].max()), ranks)
    return f"; {reason.rstrip('.')}" if reason else ""


def _iterate_collectives(members: Members) -> Iterator[tuple[bytes, int, int]]:
    """Yield each collective of which all members have times: its nodes, its number, and how long it takes from the last arrival to the end."""
    for which, (low, high) in enumerate(
        zip(members.offsets[:-1].tolist(), members.offsets[1:].tolist(), strict=True)
    ):
        start, end = members.start_ns[low:high], members.end_ns[low:high]
        if high > low and (start >= 0).all() and (end >= 0).all() and not members.apart[which]:
            nodes = members.rank[low:high].tobytes() + members.row[low:high].tobytes()
            yield nodes, which, int(end.max() - start.max())
