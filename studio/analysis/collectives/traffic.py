"""Bytes sent from rank to rank, by messages and all-to-alls, which have addressed parts.

Other collectives have none: which ranks an all-reduce moves data between is for the algorithm to say that carries it
out. They are counted, not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.matching import Collectives, GroupMatching, match_collectives
from studio.analysis.collectives.messages import match_messages
from studio.trace import NONE, WORLD, CollectiveType, CommGroup, Float64, Graph, Int64, Trace, group_slots

SPLITS = "split_bytes_in"
"""Attribute of an all-to-all: the bytes a rank gives to each member, in the order of the group."""
SPLITS_TAKEN = "split_bytes_out"
"""Likewise the bytes it takes from each."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes from rank to rank.

    R ranks. What a rank keeps for itself is in no figure but its own.

    Attributes:
        bytes: (R, R) from the rank of the row to the rank of the column, places in the trace; NaN on the diagonal and
            where two ranks have nothing to do with each other.
        message_bytes: Of them those of sends.
        split_bytes: Those of all-to-alls that say how much goes to whom.
        shared_bytes: Those of all-to-alls that do not, for which equal shares are taken.
        kept_bytes: The part of all-to-alls that ranks give themselves.
        elsewhere_bytes: What all other collectives are given, of which nobody says where it goes.
        groups: Names of the comm groups that have pairs, with the bytes between them; "" is the group of all ranks, None
            stands for messages that name no group.
    """

    bytes: Float64
    message_bytes: int
    split_bytes: int
    shared_bytes: int
    kept_bytes: int
    elsewhere_bytes: int
    groups: tuple[tuple[str | None, int], ...]


def sum_traffic(
    trace: Trace, groups: Sequence[CommGroup] | None = None, *, only: str | None = None, unnamed: bool = False
) -> Traffic:
    """Sum the bytes that ranks send each other.

    Args:
        trace: The trace.
        groups: Comm groups in place of the trace's.
        only: Name of the comm group that alone is counted; None counts all.
        unnamed: With `only` None: count messages that name no group alone.
    """
    count = len(trace.ranks)
    total = np.zeros((count, count))
    linked = np.zeros((count, count), bool)
    sums = {"message": 0, "split": 0, "shared": 0, "kept": 0, "elsewhere": 0}
    by_group: dict[str | None, int] = {}
    for name, source, target, size in _list_messages(trace):
        by_group[name] = by_group.get(name, 0) + int(size.sum())
        if (unnamed and name is not None) or (only is not None and name != only):
            continue
        np.add.at(total, (source, target), size)
        linked[source, target] = True
        sums["message"] += int(size.sum())
    place = {rank.number: index for index, rank in enumerate(trace.ranks)}
    for group in match_collectives(trace, groups):
        between, split, kept, elsewhere = _sum_all_to_alls(trace, group, place)
        amount = int(between.sum())
        if between.any():
            by_group[group.name] = by_group.get(group.name, 0) + amount
        if unnamed or (only is not None and group.name != only):
            continue
        sums["elsewhere"] += elsewhere
        sums["kept"] += kept
        if not between.any():
            continue
        indices = np.array([place.get(member, NONE) for member in group.members])
        is_present = indices != NONE
        part = between[np.ix_(is_present, is_present)]
        total[np.ix_(indices[is_present], indices[is_present])] += part
        linked[np.ix_(indices[is_present], indices[is_present])] = True
        sums["split"] += split
        sums["shared"] += round(part.sum()) - split
    np.fill_diagonal(linked, False)
    listed = sorted(by_group.items(), key=lambda item: -item[1])
    return Traffic(
        np.where(linked, total, np.nan),
        sums["message"],
        sums["split"],
        sums["shared"],
        sums["kept"],
        sums["elsewhere"],
        tuple(listed),
    )


def _list_messages(trace: Trace) -> list[tuple[str | None, Int64, Int64, Int64]]:
    """Return messages by the group they name: source and target indices, and bytes."""
    messages = match_messages(trace)
    numbers = np.array([rank.number for rank in trace.ranks], np.int64)
    ends = []
    for end in (messages.source, messages.target):
        place = np.minimum(np.searchsorted(numbers, end), max(len(numbers) - 1, 0))
        ends.append(np.where(numbers[place] == end, place, NONE) if len(numbers) else place)
    inside = (ends[0] != NONE) & (ends[1] != NONE) & (ends[0] != ends[1])
    sent = messages.send_rank != NONE
    rank, row = (
        np.where(sent, messages.send_rank, messages.receive_rank),
        np.where(sent, messages.send_row, messages.receive_row),
    )
    slots = [group_slots(graph) for graph in trace.graphs]
    slot = np.full(len(rank), NONE, np.int64)
    graph_of = np.array([rank.graph for rank in trace.ranks], np.int64)
    for index, table in enumerate(slots):
        chosen = graph_of[rank] == index if len(rank) else np.zeros(0, bool)
        slot[chosen] = table[row[chosen]]
    names: dict[str | None, list[int]] = {}
    pairs, inverse = np.unique(np.stack([rank, slot]), axis=1, return_inverse=True)
    for which, (rank_index, number) in enumerate(pairs.T.tolist()):
        name = None if number == NONE else str(trace.ranks[rank_index].slots[number])
        names.setdefault(name, []).append(which)
    result = []
    for name, listed in names.items():
        chosen = np.isin(inverse, listed) & inside
        result.append((name, ends[0][chosen], ends[1][chosen], messages.bytes[chosen]))
    return result


def _sum_all_to_alls(
    trace: Trace, group: GroupMatching, place: dict[int, int]
) -> tuple[Float64, int, int, int]:
    """Return (members, members) bytes of a group's all-to-alls: addressed, kept, and of others."""
    members = len(group.members)
    between = np.zeros((members, members))
    split = elsewhere = 0
    kept = 0.0
    known: dict[int, tuple[Float64, float, int]] = {}
    for index, sequence in enumerate(group.sequence_of.tolist()):
        if sequence == NONE:
            continue
        if sequence not in known:
            graph = trace.graph_of(trace.ranks[place[group.members[index]]])
            known[sequence] = _sum_given_bytes(graph, group.sequences[sequence], members)
        given, equal, others = known[sequence]
        share = given + equal / members
        kept += share[index]
        share[index] = 0
        between[index] = share
        split += int(given.sum() - given[index])
        elsewhere += others
    return between, split, round(kept), elsewhere


def _sum_given_bytes(graph: Graph, sequence: Collectives, members: int) -> tuple[Float64, float, int]:
    """Return (members,) bytes a rank addresses to each, unaddressed bytes, and those of other collectives."""
    exchanges = sequence.type == CollectiveType.ALL_TO_ALL
    given = np.zeros(members)
    wanted = set(sequence.rows[exchanges].tolist())
    rows, where = graph.rows_with(SPLITS)
    covered = set()
    for row, entry in zip(rows.tolist(), where.tolist(), strict=True):
        if row in wanted and int(graph.attrs.length[entry]) == members:
            start = int(graph.attrs.value[entry])
            given += graph.attrs.items[start : start + members]
            covered.add(row)
    alone = exchanges & ~np.isin(sequence.rows, list(covered))
    return given, float(sequence.bytes[alone].sum()), int(sequence.bytes[~exchanges].sum())


def label_group(name: str | None) -> str:
    """Return the displayed name of a comm group."""
    return "messages without a group" if name is None else "all ranks" if name == WORLD else name
