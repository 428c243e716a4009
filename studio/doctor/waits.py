"""Who waits for whom across all ranks of a job, as one graph of its communication.

Nodes that do not communicate are left out where ranks share graphs: a node waits for what they wait for. The members of a
collective are one node, since each ends when all have begun. A node is left apart where it is not certain which
collective or message it belongs to, so that what is found is certain whatever the times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from studio.analysis.graph.issuing import is_worth_compiling
from studio.distinct import find_distinct
from studio.doctor.diagnosis import Case, GraphCase
from studio.doctor.issue import IssueOrder, are_chained, find_issue_order, match_turns
from studio.sim.lanes import number_threads
from studio.trace import NONE, UNEVEN_TYPES, Bool, CollectiveType, Graph, Int64, read_dense_column

Tick = Callable[[], None]
_NONE = np.zeros((2, 0), np.int64)


class Why(IntEnum):
    """Why a node waits for another.

    A dependency says so; a rank takes them in turn; they ran on one stream or thread; one is the send of the other;
    or the other is a send, and what it sends is not taken before.
    """

    DEPENDENCY = 0
    TURN = 1
    STREAM = 2
    MESSAGE = 3
    HANDOVER = 4


@dataclass(frozen=True, slots=True)
class Waits:
    """Nodes of all ranks and what they wait for.

    V nodes, E waits.

    Attributes:
        rank, row: (V,) place of the rank in the trace, and the row there.
        joint: (V,) the node that stands for it: one for all members of a collective.
        before, after: (E,) `after` waits for `before`.
        why: (E,) values of `Why`, a byte each.
        keys: (V,) values that should rise along waits: the row, and the start time.
        apart: Groups, by name, with a position at which members are certain to bring different collectives.
        certain: Whether it is certain of every node what it belongs to, and in which order nodes take turns.
    """

    rank: Int64
    row: Int64
    joint: Int64
    before: Int64
    after: Int64
    why: NDArray[np.int8]
    keys: tuple[Int64, ...] = ()
    apart: dict[str, int] = field(default_factory=dict)
    certain: bool = True

    def chosen(self, *kinds: Why) -> tuple[Int64, Int64, Int64]:
        """Return before, after and place (F,) of the waits of these kinds, between the nodes that stand for others."""
        counts = np.zeros(len(Why), bool)
        counts[list(kinds)] = True
        place = np.flatnonzero(counts[self.why])
        return self.joint[self.before[place]], self.joint[self.after[place]], place


@dataclass(frozen=True, slots=True)
class Part:
    """The communication of one graph.

    Attributes:
        rows: (K,) rows that are kept, rising.
        number: (N,) which of the kept ones each row of the graph is, -1 where it is none.
        before, after: (D,) dependencies between kept rows, direct or through others.
        streams: (2, S) rows of one stream or thread that ran one after the other, which no dependency says.
        order: The order in which they take turns.
    """

    rows: Int64
    number: Int64
    before: Int64
    after: Int64
    streams: Int64
    order: IssueOrder


def build_parts(case: Case, tick: Tick = lambda: None) -> dict[int, Part]:
    """Return the communication of each graph, by its place in the trace; graphs must have no cycles of their own."""
    native = is_worth_compiling(sum(len(graph_case.graph) for graph_case in case.graphs))
    parts = {}
    for graph_case in case.graphs:
        tick()
        parts[graph_case.index] = _build_part(graph_case, native=native)
    return parts


def build_waits(
    case: Case, tick: Tick = lambda: None, *, parts: dict[int, Part] | None = None, hopeful: bool = False
) -> Waits:
    """Return who waits for whom; graphs must have no cycles of their own.

    Args:
        case: The job.
        tick: Called now and then; may raise to stop.
        parts: What `build_parts` returns for the job, where it is known.
        hopeful: Take every order that dependencies leave open to be that of the ids: fast, and what is on no cycle then is
            on none.
    """
    parts = build_parts(case, tick) if parts is None else parts
    graph_of = [rank.graph for rank in case.trace.ranks]
    sizes = [len(parts[graph].rows) for graph in graph_of]
    base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rank = np.repeat(np.arange(len(sizes)), sizes)
    row = np.concatenate([_NONE[0], *(parts[graph].rows for graph in graph_of)])
    # Pairs of nodes, of which the second waits for the first, and why.
    pairs: list[tuple[Int64, Why]] = [(_NONE, Why.DEPENDENCY)]
    for index, part in parts.items():
        bases = base[:-1][np.array(graph_of) == index][:, None]
        for rows, why in (
            (np.stack([part.before, part.after]), Why.DEPENDENCY),
            (np.stack([part.order.rows[:-1], part.order.rows[1:]]), Why.TURN),
            (part.streams, Why.STREAM),
        ):
            ends = bases[:, None, :] + part.number[rows][None]
            pairs.append((ends.transpose(1, 0, 2).reshape(2, -1), why))
    tick()
    at = _Places(case, parts, base)
    joint, apart, sure_groups = _join_members(case, at, len(row), tick, hopeful)
    sent, sure_messages = _match_messages(case, at, hopeful)
    pairs += [(sent, Why.MESSAGE), (_find_handovers([ends for ends, _ in pairs], sent), Why.HANDOVER)]
    before, after = np.concatenate([ends for ends, _ in pairs], axis=1)
    why_each = np.repeat(np.array([why for _, why in pairs], np.int8), [ends.shape[1] for ends, _ in pairs])
    certain = sure_groups and sure_messages and all(part.order.complete for part in parts.values())
    keys = _compute_keys(case, parts, graph_of, joint)
    return Waits(rank, row, joint, before, after, why_each, keys, apart, certain)


def _compute_keys(case: Case, parts: dict[int, Part], graph_of: list[int], joint: Int64) -> tuple[Int64, ...]:
    """Return (V,) the place in the order of ids, the row, and the start time of nodes; of joint ones the latest."""
    keys = []
    joined = np.flatnonzero(joint != np.arange(len(joint)))
    of_graph: tuple[Callable[[Graph], Int64], ...] = (
        _order_by_id,
        lambda graph: np.arange(len(graph)),
        lambda graph: graph.start_ns,
    )
    for values in of_graph:
        of = {index: values(case.trace.graphs[index])[part.rows] for index, part in parts.items()}
        key = np.concatenate([np.zeros(0, np.int64), *(of[graph] for graph in graph_of)]).astype(np.int64)
        latest = key.copy()
        np.maximum.at(latest, joint[joined], key[joined])
        keys.append(latest)
    return tuple(keys)


def _order_by_id(graph: Graph) -> Int64:
    """Return (N,) the place of each node in the order of ids."""
    place = np.empty(len(graph), np.int64)
    place[np.argsort(graph.id, kind="stable")] = np.arange(len(graph))
    return place


# ---------------------------------------------------------------------------------------------------
# Single graphs


def _build_part(case: GraphCase, *, native: bool) -> Part:
    streams = _find_recorded_pairs(case)
    keep = case.communicates | match_turns(case)
    keep[streams.ravel()] = True
    of, waited = case.pairs
    if len(case.ranks) > 1:
        waited, of = _bypass(case, keep)
    else:
        keep = np.ones(len(case.graph), bool)
    number = np.where(keep, np.cumsum(keep) - 1, NONE)
    return Part(np.flatnonzero(keep), number, waited, of, streams, find_issue_order(case, native=native))


def _find_recorded_pairs(case: GraphCase) -> Int64:
    """Return (2, S) operations of one stream, and communication of one thread, that ran one after the other.

    Where times overlap neither waited for the other.
    """
    order = case.streams
    graph = case.graph
    pairs = [np.zeros((2, 0), np.int64)]
    if order.recorded and not order.direct_only:
        loose = ~order.ordered
        pairs.append(np.stack([order.before[loose], order.after[loose]]).astype(np.int64))
    threads = number_threads(graph)
    rows = np.flatnonzero(case.communicates & (threads != NONE) & (graph.start_ns >= 0))
    thread = threads[rows]
    sorting = np.lexsort((rows, graph.start_ns[rows], thread))
    rows, thread = rows[sorting], thread[sorting]
    consecutive = np.stack([rows[:-1], rows[1:]]).astype(np.int64)
    pairs.append(consecutive[:, thread[1:] == thread[:-1]])
    both = np.concatenate(pairs, axis=1)
    ended = graph.start_ns[both[0]] + graph.duration_ns[both[0]] <= graph.start_ns[both[1]]
    return both[:, ended & (graph.start_ns[both[0]] < graph.start_ns[both[1]])]


def _bypass(case: GraphCase, keep: Bool) -> tuple[Int64, Int64]:
    """Return the dependencies between kept rows; other rows are bypassed where that does not add dependencies."""
    of, waited = case.pairs
    into: list[set[int]] = [set() for _ in range(len(case.graph))]
    out: list[set[int]] = [set() for _ in range(len(case.graph))]
    for start, end in zip(waited.tolist(), of.tolist(), strict=True):
        into[end].add(start)
        out[start].add(end)
    for row in np.flatnonzero(~keep).tolist():
        parents, children = into[row], out[row]
        if len(parents) * len(children) > len(parents) + len(children):
            keep[row] = True
            continue
        for parent in parents:
            out[parent].discard(row)
            out[parent] |= children
        for child in children:
            into[child].discard(row)
            into[child] |= parents
        into[row], out[row] = set(), set()
    pairs = [(start, end) for start, ends in enumerate(out) for end in ends]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


# ---------------------------------------------------------------------------------------------------
# Across ranks


def _find_handovers(pairs: list[Int64], sent: Int64) -> Int64:
    """Return (2, H) what sends wait for where they end no sooner than their receive begins."""
    if not sent.shape[1]:
        return _NONE
    before, after = np.concatenate(pairs, axis=1)
    order = np.argsort(sent[1], kind="stable")
    receives = sent[1][order]
    place = np.searchsorted(receives, after)
    place[place == len(receives)] = 0
    ends = receives[place] == after
    return np.stack([before[ends], sent[0][order][place[ends]]])


class _Places:
    """Where nodes stand in the graph of all ranks."""

    def __init__(self, case: Case, parts: dict[int, Part], base: Int64) -> None:
        self.case, self.parts, self.base = case, parts, base
        self.place = {rank.number: place for place, rank in enumerate(case.trace.ranks)}
        self.graph_of = np.array([rank.graph for rank in case.trace.ranks], np.int64)
        self.turn: dict[int, Int64] = {}
        for graph_case in case.graphs:
            order = parts[graph_case.index].order
            turn = np.full(len(graph_case.graph), len(graph_case.graph), np.int64)
            turn[order.rows] = np.arange(len(order.rows))
            self.turn[graph_case.index] = turn

    def of(self, place: int, rows: Int64) -> Int64:
        """Return the numbers of rows of a rank."""
        numbers: Int64 = self.base[place] + self.parts[int(self.graph_of[place])].number[rows]
        return numbers

    def many(self, places: Int64, rows: Int64) -> Int64:
        """Return the numbers of nodes given by rank and row."""
        local_numbers = np.empty(len(rows), np.int64)
        for graph in find_distinct(self.graph_of[places]).tolist():
            is_own = self.graph_of[places] == graph
            local_numbers[is_own] = self.parts[graph].number[rows[is_own]]
        numbers: Int64 = local_numbers + self.base[places]
        return numbers


@dataclass(frozen=True, slots=True)
class _Sequence:
    """The collectives of a group on the ranks that share a sequence: rows whose place is certain, and whether that is all."""

    rows: Int64
    whole: bool


def _join_members(
    case: Case, at: _Places, count: int, tick: Tick, hopeful: bool
) -> tuple[Int64, dict[str, int], bool]:
    """Return (V,) the node that stands for each, the groups that are certain to be apart, and whether all is certain."""
    joint = np.arange(count)
    apart: dict[str, int] = {}
    certain = True
    ordered = _index_certain_sequences(case, at, hopeful)
    for group in case.ordered:
        tick()
        sequences = [
            (place, ordered[int(at.graph_of[place]), group.sequences[index].rows.tobytes()])
            for member, index in zip(group.members, group.sequence_of.tolist(), strict=True)
            if index != NONE and (place := at.place.get(member)) is not None
        ]
        certain &= all(sequence.whole for _, sequence in sequences) and not group.outsiders
        if len(sequences) > 1:
            numbers, position = _join(case, at, [(place, sequence.rows) for place, sequence in sequences])
            joint[numbers] = numbers[0]
            if position != NONE:
                apart[group.name] = position
    return joint, apart, certain


def _join(case: Case, at: _Places, members: list[tuple[int, Int64]]) -> tuple[Int64, int]:
    """Return (M, C) the nodes of each collective, and the first position where contents differ, -1 where they agree."""
    shortest = min(len(rows) for _, rows in members)
    distinct = {(int(at.graph_of[place]), rows[:shortest].tobytes()) for place, rows in members}
    contents = np.stack(
        [_read_content(case, graph)[:, np.frombuffer(rows, np.int64)] for graph, rows in sorted(distinct)]
    )
    unequal = np.flatnonzero((contents != contents[0]).any(axis=(0, 1)))
    position = int(unequal[0]) if len(unequal) else shortest
    numbers = np.stack([at.of(place, rows[:position]) for place, rows in members])
    # A simulated broadcast takes its time on each rank by itself.
    meets = contents[0, 0, :position] != CollectiveType.BROADCAST
    return numbers[:, meets], position if len(unequal) else NONE


def _read_content(case: Case, graph: int) -> Int64:
    """Return (2, N) type and size of collectives; to some members may bring different sizes."""
    kind = read_dense_column(case.trace.graphs[graph], "comm_type", NONE)
    size = read_dense_column(case.trace.graphs[graph], "comm_size", 0)
    return np.stack([kind, np.where(np.isin(kind, UNEVEN_TYPES), 0, size)])


def _index_certain_sequences(case: Case, at: _Places, hopeful: bool) -> dict[tuple[int, bytes], _Sequence]:
    """Return the collectives of every group on every graph, by the rows of the group's sequence."""
    wanted: dict[int, dict[bytes, Int64]] = {}
    for group in case.ordered:
        for member, index in zip(group.members, group.sequence_of.tolist(), strict=True):
            place = at.place.get(member)
            if index != NONE and place is not None:
                rows = group.sequences[index].rows
                wanted.setdefault(int(at.graph_of[place]), {})[rows.tobytes()] = rows
    certain = {}
    for graph_case in case.graphs:
        index = graph_case.index
        known = wanted.get(index, {})
        complete = at.parts[index].order.complete
        is_chain = {} if complete or hopeful else _find_chains(graph_case, known)
        for key, rows in known.items():
            turn = at.turn[index][rows]
            sorted_rows = rows[np.argsort(turn, kind="stable")]
            sure = int((turn < len(graph_case.graph)).sum())
            if hopeful or is_chain.get(key):
                sure = len(rows)
            certain[index, key] = _Sequence(sorted_rows[:sure], sure == len(rows))
    return certain


def _find_chains(case: GraphCase, known: dict[bytes, Int64]) -> dict[bytes, bool]:
    """Return which sequences of a graph are in an order that dependencies fix."""
    used = np.zeros(len(case.graph), bool)
    separate: dict[bytes, Int64] = {}
    for key, rows in known.items():
        if not used[rows].any():
            separate[key] = rows
            used[rows] = True
    fixed = dict(zip(separate, are_chained(case, list(separate.values())), strict=True))
    return {key: fixed.get(key, False) for key in known}


def _match_messages(case: Case, at: _Places, hopeful: bool) -> tuple[Int64, bool]:
    """Return (2, M) what receives wait for, and whether all is certain."""
    messages = case.messages
    whole = np.flatnonzero((messages.send_row != NONE) & (messages.receive_row != NONE) & messages.known)
    keys = np.stack([messages.source, messages.target, messages.tag, messages.bytes])
    _, number, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    sure = counts[number] == 1
    if not (hopeful or sure.all()):
        sure = _find_ordered_messages(case, at, number, counts)
    chosen = whole if hopeful else whole[sure[whole]]
    send = at.many(messages.send_rank[chosen], messages.send_row[chosen])
    receive = at.many(messages.receive_rank[chosen], messages.receive_row[chosen])
    return np.stack([send, receive]), bool(sure.all())


def _find_ordered_messages(case: Case, at: _Places, number: Int64, counts: Int64) -> Bool:
    """Return (M,) which messages are sure to be paired as they are: alone in what they agree on, or in a fixed order."""
    messages = case.messages
    sure: Bool = counts[number] == 1
    halves = ((messages.send_rank, messages.send_row), (messages.receive_rank, messages.receive_row))
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(len(counts) + 1))
    sequences: dict[int, dict[bytes, Int64]] = {}
    used: dict[int, list[tuple[int, bytes]]] = {}
    for key in np.flatnonzero(counts > 1).tolist():
        alike = order[bounds[key] : bounds[key + 1]]
        for rank, row in halves:
            known_halves = alike[row[alike] != NONE]
            if len(known_halves):
                graph = int(at.graph_of[rank[known_halves[0]]])
                rows = row[known_halves]
                sequences.setdefault(graph, {})[rows.tobytes()] = rows
                used.setdefault(key, []).append((graph, rows.tobytes()))
    fixed = {
        (graph_case.index, name): chain
        for graph_case in case.graphs
        for name, chain in _find_chains(graph_case, sequences.get(graph_case.index, {})).items()
    }
    for key, parts in used.items():
        sure[order[bounds[key] : bounds[key + 1]]] = all(fixed[part] for part in parts)
    return sure
