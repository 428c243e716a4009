"""Use the matching of collectives and messages across ranks in the simulator.

Two switches of the extended mode rest on it. With `collective_order` the collectives of a comm group begin in the order
of their numbers (`comm_seq`) where every member numbers them, so that two that are ready at once cannot pass each other
on one rank and not on another. With `communication_times` set to `recorded` no message is simulated: those who take part
in a collective meet, and the recording says how long it takes from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.groups import find_empty_collectives
from studio.analysis.collectives.matching import GroupMatching, match_collectives
from studio.analysis.collectives.messages import match_messages
from studio.analysis.job.completeness import is_recording
from studio.distinct import find_distinct
from studio.et.link.dep_kinds import DepKind, read_dep_kinds
from studio.sim.agreement import find_dispute, format_ranks
from studio.sim.config import SystemConfig
from studio.sim.ordered_graph import is_ordered, read_meeting_rows
from studio.sim.unrecorded import find_unrecorded_ranks
from studio.trace import (
    NONE,
    ROOTED_TYPES,
    Bool,
    CommGroup,
    Finding,
    Graph,
    Int64,
    NodeType,
    Trace,
)


def matches_by_number(config: SystemConfig) -> bool:
    """Whether the numbers of collectives count."""
    extensions = config.extensions
    return extensions is not None and extensions.collective_order == "sequence"


def replays_communication(config: SystemConfig) -> bool:
    """Whether communication takes its recorded time."""
    return config.extensions is not None and config.extensions.communication_times == "recorded"


def collect_sequences(trace: Trace, groups: Sequence[CommGroup] | None) -> dict[int, Int64]:
    """Return, by graph, the collectives that follow each other by number: (2, P) rows, the second after the first.

    Groups of which some member does not number its collectives are left out.
    """
    if not any(len(graph.rows_with("comm_seq")[0]) for graph in trace.graphs):
        return {}
    graph_of = {rank.number: rank.graph for rank in trace.ranks}
    pairs_of: dict[int, list[Int64]] = {}
    for matching in match_collectives(trace, groups):
        if not matching.by_number:
            continue
        rows_of = {}
        for member, position in zip(matching.members, matching.sequence_of.tolist(), strict=True):
            if position != NONE:
                rows_of[graph_of[member], position] = matching.sequences[position].rows
        for (graph, _), rows in rows_of.items():
            present = rows[rows != NONE]
            pairs_of.setdefault(graph, []).append(np.stack([present[:-1], present[1:]]))
    return {graph: np.unique(np.concatenate(pairs, axis=1), axis=1) for graph, pairs in pairs_of.items()}


def are_sequence_only(graph: Graph) -> Bool:
    """Return (D,) which data dependencies keep collectives in their sequence and have no other reason.

    In a recording collectives may overlap that such a dependency keeps apart.
    """
    alone = np.zeros(len(graph.data.rows), np.bool_)
    places, kinds = read_dep_kinds(graph)
    alone[places] = kinds == int(DepKind.SEQUENCE)
    return alone


@dataclass(frozen=True, slots=True)
class Meetings:
    """Collectives and messages that take their recorded time.

    M meetings, P nodes that take part.

    Attributes:
        count: (M,) how many ranks meet.
        rank: (P,) place of the rank in the trace.
        row: (P,) the node there.
        meeting: (P,) the meeting.
        waits: (P,) whether the node waits until all have come.
        time_ns: (P,) how long it takes from then on; of one that does not wait, from its own beginning on.
    """

    count: Int64
    rank: Int64
    row: Int64
    meeting: Int64
    waits: Bool
    time_ns: Int64


def find_meetings(trace: Trace, groups: Sequence[CommGroup] | None) -> Meetings:
    """Return which nodes meet, and how long that took in the recording.

    A node ends as long after the last arrival as it did in the recording, where all who take part have start times;
    else after the shortest time that one of them recorded, for the others' hold their waiting for that one. A send
    waits for nobody, nor does a member of a collective with a root, or of no bytes, that had ended before the last one
    came, nor a receive that had ended before its send began, which recorders of gloo note down late. In groups of which a
    member's recording lacks calls, or whose members were recorded with different ones, which meet is not known: all take the time they
    recorded, their waiting included.
    """
    place = {rank.number: place for place, rank in enumerate(trace.ranks)}
    columns, counts, known = [np.zeros((4, 0), np.int64)], [np.zeros(0, np.int64)], 0
    lacking, recorded = find_unrecorded_ranks(trace), is_recording(trace)
    for matching in match_collectives(trace, groups):
        inside = np.array([place.get(member, NONE) for member in matching.members], np.int64)
        rows = matching.rows()
        member, position = np.nonzero(rows != NONE)
        ends = _end_kinds(matching)[position]
        if not lacking.isdisjoint(matching.members) or (recorded and find_dispute(matching) is not None):
            ends[:] = _ALONE
        columns.append(np.stack([inside[member], rows[member, position], known + position, ends]))
        # Members that never issue it count too, and it never completes; ranks of which nothing is known cannot come.
        counts.append(np.full(rows.shape[1], int((matching.sequence_of != NONE).sum())))
        known += rows.shape[1]
    messages = match_messages(trace)
    number = known + np.arange(len(messages))
    known_ends = [np.isin(end, list(place)) for end in (messages.source, messages.target)]
    counts.append(known_ends[0].astype(np.int64) + known_ends[1])
    for place_of, row, how in (
        (messages.send_rank, messages.send_row, _ALONE),
        (messages.receive_rank, messages.receive_row, _ONE_WAY),
    ):
        is_present = row != NONE
        columns.append(
            np.stack(
                [
                    place_of[is_present],
                    row[is_present],
                    number[is_present],
                    np.full(int(is_present.sum()), how),
                ]
            )
        )
    rank, row, meeting, how = np.concatenate(columns, axis=1)
    count = np.concatenate(counts)
    how[(how == _TOGETHER) & _are_empty(trace, rank, row)] = _ONE_WAY
    row, ordered = _find_carrying(trace, rank, row)
    # Of recordings that were not linked it is not known that a call waited: it did not where it had returned before.
    how[(how == _TOGETHER) & ordered] = _ONE_WAY
    start, own = _read_times(trace, rank, row)
    waits, time_ns = _compute_waits(len(count), meeting, how, start, own)
    return Meetings(count, rank, row, meeting, waits, time_ns)


_TOGETHER, _ONE_WAY, _ALONE = range(3)
"""How nodes end: not before all have come; not so where one had ended before that; by themselves."""


def _end_kinds(matching: GroupMatching) -> Int64:
    """Return (C,) whether the members of each collective end together."""
    longest = max(map(len, matching.sequences), default=0)
    ends = np.full(longest, _TOGETHER, np.int64)
    for sequence in matching.sequences:
        ends[: len(sequence)][np.isin(sequence.type, ROOTED_TYPES)] = _ONE_WAY
    return ends


def _find_carrying(trace: Trace, rank: Int64, row: Int64) -> tuple[Int64, Bool]:
    """Return which nodes (P,) of their ranks meet for some, and which are of a rank in the order of its recording."""
    carrying, ordered = row.copy(), np.zeros(len(rank), np.bool_)
    graph_of = np.array([item.graph for item in trace.ranks], np.int64)[rank]
    for index in find_distinct(graph_of).tolist():
        graph = trace.graphs[index]
        if is_ordered(graph):
            is_own = graph_of == index
            carrying[is_own], ordered[is_own] = read_meeting_rows(graph)[row[is_own]], True
    return carrying, ordered


def _are_empty(trace: Trace, rank: Int64, row: Int64) -> Bool:
    """Return which nodes (P,) are collectives of no bytes."""
    empty = np.zeros(len(rank), np.bool_)
    graph_of = np.array([item.graph for item in trace.ranks], np.int64)[rank]
    for index in find_distinct(graph_of).tolist():
        is_own = graph_of == index
        empty[is_own] = find_empty_collectives(trace.graphs[index], row[is_own])
    return empty


def _read_times(trace: Trace, rank: Int64, row: Int64) -> tuple[Int64, Int64]:
    """Return start, -1 where there is none, and duration (P,) of nodes."""
    start, own = np.empty(len(rank), np.int64), np.empty(len(rank), np.int64)
    graph_of = np.array([item.graph for item in trace.ranks], np.int64)[rank]
    for index in find_distinct(graph_of).tolist():
        is_own, graph = graph_of == index, trace.graphs[index]
        start[is_own], own[is_own] = graph.start_ns[row[is_own]], graph.duration_ns[row[is_own]]
    return start, np.maximum(own, 1)


def _compute_waits(count: int, meeting: Int64, how: Int64, start: Int64, own: Int64) -> tuple[Bool, Int64]:
    """Return whether nodes (P,) wait for the others of their meeting, and how long they take."""
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, meeting, own)
    last, timed = np.full(count, NONE, np.int64), np.ones(count, np.bool_)
    np.maximum.at(last, meeting, start)
    np.logical_and.at(timed, meeting, start >= 0)
    after = start + own - last[meeting]
    waits = (how != _ALONE) & ~((how == _ONE_WAY) & timed[meeting] & (after <= 0))
    together = np.where(timed[meeting], np.maximum(after, 1), shortest[meeting])
    return waits, np.where(waits, together, own)


def rank_starts(trace: Trace) -> Int64:
    """Return (R,) how long after the first rank each begins in the recording; 0 where it has no times."""
    first = []
    for rank in trace.ranks:
        start = trace.graph_of(rank).start_ns
        first.append(int(start[start >= 0].min(initial=_NEVER)))
    begin = np.array(first, np.int64)
    is_timed = begin != _NEVER
    return np.where(is_timed, begin - begin[is_timed].min(initial=_NEVER), 0)


_NEVER = np.iinfo(np.int64).max


def check_unrecorded(trace: Trace) -> Iterator[Finding]:
    """Find communication without recorded durations, which a replay needs, and calls that were not recorded at all."""
    unmatched = find_unrecorded_ranks(trace)
    if unmatched:
        yield Finding(
            "warning",
            "replay-unmatched",
            f"The recording lacks collectives of {format_ranks(sorted(unmatched))}, or their times, so which ones met is not known: those of the "
            "comm groups of these ranks take the time they recorded, waiting for others included.",
            hint="Record with studio.collect, which records all threads, for a replay in which ranks wait for each other.",
        )
    kinds = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
    talks = [np.isin(graph.type, kinds) for graph in trace.graphs]
    without = [
        int((is_communication & (graph.duration_ns <= 0)).sum())
        for is_communication, graph in zip(talks, trace.graphs, strict=True)
    ]
    every = sum(int(talks[rank.graph].sum()) for rank in trace.ranks)
    lacking = sum(without[rank.graph] for rank in trace.ranks)
    if not lacking:
        return
    if lacking == every and is_recording(trace):
        yield Finding(
            "warning",
            "replay-partly-unrecorded",
            f"None of the {every:,} communication nodes has a recorded duration: they are replayed as taking no time, and what threads waited "
            "for them as the time between operators that it was.",
            hint="Record with studio.collect, which records all threads, for a replay in which ranks wait for each other.",
        )
        return
    if lacking == every:
        yield Finding(
            "error",
            "replay-unrecorded",
            f"None of the {every:,} communication nodes has a recorded duration, so there is nothing to replay.",
            hint="Let the network time them: leave the replay out.",
        )
        return
    ranks = format_ranks([rank.number for rank in trace.ranks if without[rank.graph]])
    yield Finding(
        "warning",
        "replay-partly-unrecorded",
        f"{lacking:,} of {every:,} communication nodes have no recorded duration, on {ranks}: "
        "they are replayed as taking no time.",
        hint="Replay times are right only where every rank has its device trace.",
    )
