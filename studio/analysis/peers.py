"""The bars that belong to one event on several ranks: the members of a collective, a send and its receive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.gantt import Bar, Gantt
from studio.analysis.matching import GroupMatching
from studio.trace import NONE, Int64, NodeType


@dataclass(frozen=True, slots=True)
class Peers:
    """One event and who takes part in it.

    Attributes:
        bars: The bars of all that take part, the one asked for among them, by start.
        group: Name of the comm group; "" for the group of all ranks and for messages.
        position: Which collective of the group it is, from 0; -1 for messages.
        members: Ranks of the group, also those without a time; 2 for messages.
    """

    bars: tuple[Bar, ...]
    group: str
    position: int
    members: int


def peers_of(gantt: Gantt, bar: Bar) -> Peers | None:
    """Return who takes part in the event of a bar; None for a node that runs on its own."""
    kind = int(gantt.trace.graph_of(bar.rank).type[bar.node])
    if kind == NodeType.COMM_COLL:
        return _collective(gantt, bar)
    if kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
        return _message(gantt, bar)
    return None


def _collective(gantt: Gantt, bar: Bar) -> Peers | None:
    for matching in gantt.matchings:
        if bar.rank.number not in matching.members:
            continue
        mine = matching.members.index(bar.rank.number)
        sequence = matching.sequence_of[mine]
        if sequence == NONE or bar.node not in matching.sequences[sequence].rows:
            continue
        rows = members_in_order(gantt, matching)
        position = int(np.flatnonzero(rows[mine] == bar.node)[0])
        found = [
            _bar(gantt, rank, row)
            for rank, row in zip(matching.members, rows[:, position].tolist(), strict=True)
        ]
        return _peers(found, matching.name, position, len(matching.members))
    return None


def members_in_order(gantt: Gantt, matching: GroupMatching) -> Int64:
    """Return (M, C) the rows of each member's collectives by number, or else in the order it began them.

    A member of which times are missing keeps the order its dependencies give; `collective_times` has the same rule.
    """
    rows = matching.rows()
    if matching.by_number:
        return rows
    for at, number in enumerate(matching.members):
        mine = rows[at][rows[at] != NONE]
        if not len(mine):
            continue
        places = gantt.places(gantt.rank(number))[mine]
        if (places != NONE).all():
            rows[at, : len(mine)] = mine[np.argsort(gantt.coverage.start_ns[places], kind="stable")]
    return rows


def _message(gantt: Gantt, bar: Bar) -> Peers | None:
    found = gantt.messages
    at = gantt.trace.ranks.index(bar.rank)
    halves = ((found.send_rank, found.send_row), (found.receive_rank, found.receive_row))
    for rank, row in halves:
        for pair in np.flatnonzero((rank == at) & (row == bar.node)).tolist():
            ends = [(int(ranks[pair]), int(rows[pair])) for ranks, rows in halves]
            bars = [_bar(gantt, gantt.trace.ranks[one].number, two) for one, two in ends if one != NONE]
            return _peers(bars, "", NONE, 2)
    return None


def _bar(gantt: Gantt, number: int, row: int) -> Bar | None:
    return None if row == NONE else gantt.bar(gantt.rank(number), int(row))


def _peers(found: list[Bar | None], group: str, position: int, members: int) -> Peers:
    bars = sorted((one for one in found if one is not None), key=lambda one: (one.start_ns, one.rank.number))
    return Peers(tuple(bars), group, position, members)
