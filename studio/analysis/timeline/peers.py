"""Find the bars of one event on several ranks: members of a collective, a send and its receive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.matching import GroupMatching
from studio.analysis.timeline.gantt import Bar, Gantt
from studio.trace import NONE, Int64, NodeType


@dataclass(frozen=True, slots=True)
class Peers:
    """One event and its participants.

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


def find_peers(gantt: Gantt, bar: Bar) -> Peers | None:
    """Return the participants of a bar's event; None for a node that runs on its own."""
    kind = int(gantt.trace.graph_of(bar.rank).type[bar.node])
    if kind == NodeType.COMM_COLL:
        return _find_collective_peers(gantt, bar)
    if kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
        return _find_message_peers(gantt, bar)
    return None


def _find_collective_peers(gantt: Gantt, bar: Bar) -> Peers | None:
    for matching in gantt.matchings:
        if bar.rank.number not in matching.members:
            continue
        member = matching.members.index(bar.rank.number)
        sequence = matching.sequence_of[member]
        if sequence == NONE or bar.node not in matching.sequences[sequence].rows:
            continue
        rows = order_members(gantt, matching)
        position = int(np.flatnonzero(rows[member] == bar.node)[0])
        bars = [
            _get_bar(gantt, rank, row)
            for rank, row in zip(matching.members, rows[:, position].tolist(), strict=True)
        ]
        return _build_peers(bars, matching.name, position, len(matching.members))
    return None


def order_members(gantt: Gantt, matching: GroupMatching) -> Int64:
    """Return (M, C) the rows of each member's collectives, by number or else by start.

    A member of which times are missing keeps the order its dependencies give, as in `compute_collective_times`.
    """
    rows = matching.rows()
    if matching.by_number:
        return rows
    for index, number in enumerate(matching.members):
        own_rows = rows[index][rows[index] != NONE]
        if not len(own_rows):
            continue
        places = gantt.places(gantt.rank(number))[own_rows]
        if (places != NONE).all():
            rows[index, : len(own_rows)] = own_rows[
                np.argsort(gantt.coverage.start_ns[places], kind="stable")
            ]
    return rows


def _find_message_peers(gantt: Gantt, bar: Bar) -> Peers | None:
    messages = gantt.messages
    rank_index = gantt.trace.ranks.index(bar.rank)
    halves = ((messages.send_rank, messages.send_row), (messages.receive_rank, messages.receive_row))
    for rank, row in halves:
        for pair in np.flatnonzero((rank == rank_index) & (row == bar.node)).tolist():
            ends = [(int(ranks[pair]), int(rows[pair])) for ranks, rows in halves]
            bars = [
                _get_bar(gantt, gantt.trace.ranks[rank_of].number, two)
                for rank_of, two in ends
                if rank_of != NONE
            ]
            return _build_peers(bars, "", NONE, 2)
    return None


def _get_bar(gantt: Gantt, number: int, row: int) -> Bar | None:
    return None if row == NONE else gantt.bar(gantt.rank(number), int(row))


def _build_peers(member_bars: list[Bar | None], group: str, position: int, members: int) -> Peers:
    bars = sorted(
        (bar for bar in member_bars if bar is not None), key=lambda bar: (bar.start_ns, bar.rank.number)
    )
    return Peers(tuple(bars), group, position, members)
