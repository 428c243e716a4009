"""Match collectives of a comm group across ranks by position.

Where the collectives of every member of a group are numbered (`comm_seq`), those of one number belong together; a
member that lacks a number has a gap there. Elsewhere, as in the libraries that carry them out, the n-th one a rank
issues in a group meets the n-th one every other member issues there. A timeline that tells neither groups nor types
leaves the names alone: there the n-th one of a name meets the n-th of that name (`match_by_name`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.collectives.groups import collect_comm_nodes, find_empty_collectives
from studio.analysis.graph.issuing import find_issue_order, is_worth_compiling
from studio.analysis.job.renumbered import share_graphs
from studio.columns import group_places
from studio.distinct import find_distinct
from studio.trace import (
    NONE,
    WORLD,
    Bool,
    CommGroup,
    Dependencies,
    Graph,
    Int64,
    NodeType,
    Rank,
    Trace,
    list_world_names,
    read_dense_column,
)


@dataclass(frozen=True, slots=True)
class Collectives:
    """The collectives of one comm group on one rank, by order of issue or by number.

    C collectives. By numbers, one that other members have and this one lacks is a gap: row and type -1, 0 bytes.

    Attributes:
        rows: (C,) rows of the rank's graph.
        type: (C,) CollectiveType, -1 where the node names none.
        bytes: (C,) payload on this rank, 0 where none is written.
        number: (C,) `comm_seq`, -1 where the node has none.
    """

    rows: Int64
    type: Int64
    bytes: Int64
    number: Int64

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def count(self) -> int:
        """How many there are, without gaps."""
        return int((self.rows != NONE).sum())


def find_empty(graph: Graph, sequence: Collectives) -> Bool:
    """Return which collectives (C,) of a rank move nothing by what they say, see `find_empty_collectives`."""
    empty = np.zeros(len(sequence), np.bool_)
    without = np.flatnonzero((sequence.bytes == 0) & (sequence.rows != NONE))
    if len(without):
        empty[without] = find_empty_collectives(graph, sequence.rows[without])
    return empty


@dataclass(frozen=True, slots=True)
class GroupMatching:
    """The collectives of one comm group, position by position.

    M members, S distinct sequences.

    Attributes:
        name: The group's name; "" is the group of all ranks.
        members: (M,) rank numbers, in the order of the group.
        sequence_of: (M,) index into `sequences`, -1 where the trace has no such rank.
        sequences: (S,) what members do; members that share a graph share theirs.
        outsiders: Ranks that name the group and are not in it.
        by_number: Whether members were matched by the numbers of their collectives, or by names in place of them, not by
            their order.
    """

    name: str
    members: tuple[int, ...]
    sequence_of: Int64
    sequences: tuple[Collectives, ...]
    outsiders: tuple[int, ...] = ()
    by_number: bool = False

    def find_sequence(self, rank: int) -> Collectives:
        """Return what a member does, by its rank number."""
        return self.sequences[int(self.sequence_of[self.members.index(rank)])]

    def rows(self) -> Int64:
        """Return (M, C) the row of each member's graph that is the c-th collective, -1 where it has none."""
        longest = max(map(len, self.sequences), default=0)
        table = np.full((len(self.sequences) + 1, longest), NONE, np.int64)
        for index, sequence in enumerate(self.sequences):
            table[index, : len(sequence)] = sequence.rows
        # Index -1 takes the last line, which stays empty: ranks that are not there.
        return table[self.sequence_of]

    def content(self) -> tuple[Int64, Int64]:
        """Return (M, C) type and bytes of each member's collectives, -1 and 0 where it has none."""
        longest = max(map(len, self.sequences), default=0)
        kind = np.full((len(self.sequences) + 1, longest), NONE, np.int64)
        size = np.zeros((len(self.sequences) + 1, longest), np.int64)
        for index, sequence in enumerate(self.sequences):
            kind[index, : len(sequence)], size[index, : len(sequence)] = sequence.type, sequence.bytes
        return kind[self.sequence_of], size[self.sequence_of]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where members of a group first differ.

    Attributes:
        position: Which collective of the group, counted from 0.
        rank, row: A rank that differs, and its node there; row -1 where it has no more.
        other_rank, other_row: A rank that does what most do, likewise.
    """

    position: int
    rank: int
    row: int
    other_rank: int
    other_row: int


_Use = tuple[int, tuple[int, ...]]
"""How a rank names a group: its graph, and the slots that hold the group's name."""
_GraphCollectives = tuple[Collectives, Int64]
_Aligned = dict[tuple[int, ...], tuple[Collectives, ...]]
"""Sequences, by identity → the same with every number of any of them in the same place."""


def match_collectives(
    trace: Trace, groups: Sequence[CommGroup] | None = None, *, by_number: bool = True
) -> tuple[GroupMatching, ...]:
    """Match the collectives of all ranks: by number in groups where all members have numbers, else by order.

    Ranks that share a graph differ in their group names alone, so a thousand of them take about
    as long as one.

    Args:
        trace: The trace.
        groups: Comm groups in place of the trace's. A group that nobody lists has the ranks that name it.
        by_number: Whether numbers count; a simulator that does not know them goes by order alone.

    Returns:
        Groups in the order they are listed, then others; those that no collective names are left out.
    """
    trace = share_graphs(trace)
    listed = {group.name: group for group in (trace.groups if groups is None else groups)}
    numbers = tuple(rank.number for rank in trace.ranks)
    world = list_world_names(listed.values(), numbers)
    graphs = [_collect_collectives(graph) for graph in trace.graphs]
    slots_of = [find_distinct(slot).tolist() for _, slot in graphs]
    users: dict[str, dict[int, _Use]] = {name: {} for name in listed if name not in world}
    for rank in trace.ranks:
        for name, slots in _index_slots(rank, slots_of[rank.graph], world).items():
            users.setdefault(name, {})[rank.number] = (rank.graph, slots)
    picked = {
        use: _pick_groups(graphs[use[0]], use[1])
        for use in {use for using in users.values() for use in using.values()}
    }
    matchings, present = [], frozenset(numbers)
    aligned: _Aligned = {}
    for name, using in users.items():
        if using:
            inferred = numbers if name == WORLD else tuple(using)
            members = listed[name].ranks if name in listed else inferred
            group = _match_group(name, members, using, picked, present)
            matchings.append(_match_numbers(group, aligned) if by_number else group)
    return tuple(matchings)


def hold_alike(trace: Trace, groups: Sequence[CommGroup] | None = None) -> bool:
    """Whether all ranks that name a comm group have the same collectives in it, by number, type and size, in whichever order.

    A fraction of the work of matching them, for which the order of issue has to be found.

    Args:
        trace: The trace.
        groups: Comm groups in place of the trace's.
    """
    listed = trace.groups if groups is None else groups
    world = list_world_names(listed, tuple(rank.number for rank in trace.ranks))
    contents = [_index_contents(graph) for graph in trace.graphs]
    of_group: dict[str, tuple[bytes, ...]] = {}
    for rank in trace.ranks:
        by_slot = contents[rank.graph]
        for name, slots in _index_slots(rank, list(by_slot), world).items():
            own = tuple(by_slot[slot] for slot in slots)
            if of_group.setdefault(name, own) != own:
                return False
    return True


def _index_contents(graph: Graph) -> dict[int, bytes]:
    """Return number, type and size of the collectives of each group, by the slot of its name."""
    nodes = collect_comm_nodes(graph)
    chosen = np.flatnonzero(nodes.type == NodeType.COMM_COLL)
    numbers = read_dense_column(graph, "comm_seq", NONE)[nodes.rows[chosen]]
    table = np.stack([nodes.group_slot[chosen], numbers, nodes.collective[chosen], nodes.bytes[chosen]])
    table = table[:, np.lexsort(table[::-1])]
    return {slot: table[1:, places].tobytes() for slot, places in group_places(table[0])}


def match_by_name(trace: Trace, groups: Sequence[CommGroup] | None = None) -> tuple[GroupMatching, ...]:
    """Match collectives; by name where they have neither group nor type and names differ by rank.

    That is what the timelines of simulators hold. By order the first collective of one pipeline stage would meet that
    of another, and wait for it. Members that lack a name have a gap there.
    """
    trace = share_graphs(trace)
    matchings = match_collectives(trace, groups)
    return tuple(_match_names(trace, matching) if _is_bare(matching) else matching for matching in matchings)


def _is_bare(group: GroupMatching) -> bool:
    untyped = all(bool((sequence.type == NONE).all()) for sequence in group.sequences)
    return group.name == WORLD and not group.by_number and len(group.sequences) > 1 and untyped


def _match_names(trace: Trace, group: GroupMatching) -> GroupMatching:
    """Match a group by names of collectives; unchanged where names agree in order or only one member has them."""
    graph_of = {rank.number: trace.graphs[rank.graph] for rank in trace.ranks}
    codes: dict[str, int] = {}
    numbered: list[Collectives] = []
    for index, sequence in enumerate(group.sequences):
        graph = graph_of[group.members[int(np.flatnonzero(group.sequence_of == index)[0])]]
        names = [graph.strings[code] for code in graph.name[sequence.rows].tolist()]
        number = [codes.setdefault(name, len(codes)) for name in names]
        numbered.append(replace(sequence, number=np.array(number, np.int64)))
    if all(np.array_equal(sequence.number, numbered[0].number) for sequence in numbered):
        return group
    # A name that has the rank in it tells nothing of what belongs together.
    members = np.bincount(group.sequence_of[group.sequence_of != NONE], minlength=len(numbered)).tolist()
    users = np.zeros(len(codes), np.int64)
    for sequence, count in zip(numbered, members, strict=True):
        users[find_distinct(sequence.number)] += count
    if (users < 2).any():
        return group
    return replace(group, sequences=_align_by_number(numbered), by_number=True)


def _collect_collectives(graph: Graph) -> _GraphCollectives:
    """Return all collectives of a graph by order of issue, and (C,) the slot of each one's group."""
    nodes = collect_comm_nodes(graph)
    chosen = np.flatnonzero(nodes.type == NodeType.COMM_COLL)
    order = chosen[np.argsort(compute_issue_order(graph)[nodes.rows[chosen]], kind="stable")]
    rows = nodes.rows[order]
    numbers = read_dense_column(graph, "comm_seq", NONE)[rows]
    return Collectives(rows, nodes.collective[order], nodes.bytes[order], numbers), nodes.group_slot[order]


def _index_slots(rank: Rank, slots: list[int], world: frozenset[str]) -> dict[str, tuple[int, ...]]:
    slots_of: dict[str, tuple[int, ...]] = {}
    for slot in slots:
        name = WORLD if slot == NONE else str(rank.slots[slot])
        name = WORLD if name in world else name
        slots_of[name] = (*slots_of.get(name, ()), slot)
    return slots_of


def _pick_groups(collectives: _GraphCollectives, slots: tuple[int, ...]) -> Collectives:
    """Return the collectives of groups in these slots."""
    everything, slot = collectives
    chosen = slot == slots[0] if len(slots) == 1 else np.isin(slot, slots)
    return Collectives(
        everything.rows[chosen], everything.type[chosen], everything.bytes[chosen], everything.number[chosen]
    )


def _match_group(
    name: str,
    members: tuple[int, ...],
    using: dict[int, _Use],
    picked: dict[_Use, Collectives],
    present: frozenset[int],
) -> GroupMatching:
    number: dict[_Use | None, int] = {}
    sequences, sequence_of = [], []
    for member in members:
        use = using.get(member)
        if member not in present:
            sequence_of.append(NONE)
            continue
        if use not in number:
            number[use] = len(number)
            sequences.append(picked[use] if use else _NOTHING)
        sequence_of.append(number[use])
    inside = frozenset(members)
    outsiders = tuple(rank for rank in using if rank not in inside)
    return GroupMatching(name, members, np.array(sequence_of, np.int64), tuple(sequences), outsiders)


_NOTHING = Collectives(*(np.zeros(0, np.int64) for _ in range(4)))


def _match_numbers(group: GroupMatching, known: _Aligned) -> GroupMatching:
    """Match a group by numbers; unchanged where a collective of a member has none."""
    if not any(map(len, group.sequences)) or any((sequence.number < 0).any() for sequence in group.sequences):
        return group
    key = tuple(map(id, group.sequences))
    if key not in known:
        known[key] = _align_by_number(group.sequences)
    return replace(group, sequences=known[key], by_number=True)


def _align_by_number(sequences: Sequence[Collectives]) -> tuple[Collectives, ...]:
    """Return sequences of equal length with a position for each number of any of them.

    Collectives that were issued together may share a number; then the n-th of each belong together.
    """
    sorting = [np.argsort(sequence.number, kind="stable") for sequence in sequences]
    keys = []
    for sequence, order in zip(sequences, sorting, strict=True):
        number = sequence.number[order]
        first = np.searchsorted(number, number, side="left")
        keys.append(np.stack([number, np.arange(len(number)) - first]))
    every = np.unique(np.concatenate(keys, axis=1), axis=1)
    aligned = []
    for sequence, order, key in zip(sequences, sorting, keys, strict=True):
        # Numbers and turns as one number: turns are fewer than collectives.
        turns = max(map(len, sequences)) + 1
        place = np.searchsorted(every[0] * turns + every[1], key[0] * turns + key[1])
        columns = np.full((3, every.shape[1]), NONE, np.int64)
        columns[2] = 0
        columns[:, place] = sequence.rows[order], sequence.type[order], sequence.bytes[order]
        aligned.append(Collectives(columns[0], columns[1], columns[2], every[0]))
    return tuple(aligned)


def find_disagreement(group: GroupMatching) -> Disagreement | None:
    """Return where members of a group first differ in type, size or number of collectives; None where they agree.

    What most members do is taken to be right.
    """
    counts = np.bincount(group.sequence_of[group.sequence_of >= 0], minlength=len(group.sequences))
    shared: dict[bytes, int] = {}
    for sequence, count in zip(group.sequences, counts.tolist(), strict=True):
        shared[_encode_content(sequence)] = shared.get(_encode_content(sequence), 0) + count
    if len(shared) < 2:
        return None
    usual = max(shared, key=lambda content: shared[content])
    usual_at = next(
        index for index, sequence in enumerate(group.sequences) if _encode_content(sequence) == usual
    )
    normal = group.sequences[usual_at]
    differs = [
        (_find_first_difference(sequence, normal), index)
        for index, sequence in enumerate(group.sequences)
        if _encode_content(sequence) != usual
    ]
    position, odd_at = min(differs)
    odd = group.sequences[odd_at]
    rank, other = (
        group.members[int(np.flatnonzero(group.sequence_of == index)[0])] for index in (odd_at, usual_at)
    )
    return Disagreement(position, rank, _get_row(odd, position), other, _get_row(normal, position))


def _encode_content(sequence: Collectives) -> bytes:
    gaps = np.flatnonzero(sequence.rows == NONE)
    return sequence.type.tobytes() + sequence.bytes.tobytes() + gaps.tobytes()


def _find_first_difference(this: Collectives, other: Collectives) -> int:
    both = min(len(this), len(other))
    unequal = (this.type[:both] != other.type[:both]) | (this.bytes[:both] != other.bytes[:both])
    unequal |= (this.rows[:both] == NONE) != (other.rows[:both] == NONE)
    return int(np.argmax(unequal)) if unequal.any() else both


def _get_row(sequence: Collectives, position: int) -> int:
    return int(sequence.rows[position]) if position < len(sequence) else NONE


# ---------------------------------------------------------------------------------------------------
# The order of issue


def compute_issue_order(graph: Graph) -> Int64:
    """Return (N,) each node's position in the order of issue, assuming nodes take no time.

    A node is issued once all it waits for are complete, of several the one with the lowest id. Nodes on
    a cycle, or behind one, come last.
    """
    if waits_for_lower_ids(graph):
        order = np.argsort(graph.id, kind="stable")
    else:
        order = _order_by_dependencies(graph)
    place = np.empty(len(graph), np.int64)
    place[order] = np.arange(len(graph))
    return place


def waits_for_lower_ids(graph: Graph) -> bool:
    """Whether every node waits for lower ids only: then ids are an order of issue, without cycles."""
    return all(
        bool(np.all(graph.id[rows] < graph.id[of])) for of, rows in map(list_edges, (graph.ctrl, graph.data))
    )


def list_edges(deps: Dependencies) -> tuple[Int64, Int64]:
    """Return (D,) waiting nodes and (D,) nodes waited for, without dangling ids."""
    of = deps.list_waiting()
    is_present = deps.rows >= 0
    return of[is_present], deps.rows[is_present].astype(np.int64)


def _order_by_dependencies(graph: Graph) -> Int64:
    """Return the rows in order of issue."""
    by_id = np.argsort(graph.id, kind="stable")
    find = find_issue_order if is_worth_compiling(len(graph)) else _find_issue_order
    order = find(list_dependency_pairs(graph), by_id)
    if len(order) == len(graph):
        return order
    stuck = np.ones(len(graph), bool)
    stuck[order] = False
    return np.append(order, by_id[stuck[by_id]])


def _find_issue_order(pairs: tuple[Int64, Int64], by_id: Int64) -> Int64:
    """Do what `find_issue_order` does, not compiled: with the heap of Python's library, which is faster than an interpreted one."""
    of, parent = pairs
    size = len(by_id)
    # By their place in the order of ids, which is a number instead of a pair.
    place_of = np.empty(size, np.int64)
    place_of[by_id] = np.arange(size)
    waiting = np.bincount(of, minlength=size)
    ready = np.sort(place_of[waiting == 0]).tolist()
    bounds = np.append(0, np.cumsum(np.bincount(parent, minlength=size))).tolist()
    after = of[np.argsort(parent, kind="stable")].tolist()
    left, places, row_at = waiting.tolist(), place_of.tolist(), by_id.tolist()
    order: list[int] = []
    while ready:
        row = row_at[heapq.heappop(ready)]
        order.append(row)
        for child in after[bounds[row] : bounds[row + 1]]:
            left[child] -= 1
            if not left[child]:
                heapq.heappush(ready, places[child])
    return np.array(order, np.int64)


def list_dependency_pairs(graph: Graph) -> tuple[Int64, Int64]:
    """Return (D,) the rows that wait and (D,) those that they wait for, control dependencies first."""
    (ctrl_of, ctrl), (data_of, data) = list_edges(graph.ctrl), list_edges(graph.data)
    return np.concatenate([ctrl_of, data_of]), np.concatenate([ctrl, data])
