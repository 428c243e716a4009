"""Explain a deadlock: what each rank waits for, and where ranks first disagree.

Everything is read from the events of the run so far. A collective is the n-th its rank has begun in the comm group, or, where
a cost model times them, the n-th in the order of issue, as the engine matches them; what a rank waits for there are the members that have begun fewer, or something else in
its place. Findings of the check before the run are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from studio.analysis.collectives.matching import GroupMatching, match_collectives
from studio.analysis.collectives.messages import Messages, match_messages
from studio.errors import TraceError
from studio.sim.agreement import describe_collective, describe_half, format_ranks, label_group, label_node
from studio.sim.check import check
from studio.sim.config import SystemConfig
from studio.sim.matched import matches_by_number
from studio.sim.unrecorded import check_missing_facts
from studio.trace import (
    NONE,
    WORLD,
    Bool,
    Finding,
    Graph,
    Int64,
    NodeType,
    Trace,
    group_slots,
    list_world_names,
    read_dense_column,
    type_name,
)
from studio.units import format_counted

_EXPLAINED = 64
"""Stuck ranks whose reason is worked out; of a large job all the others wait for the same."""
_SHOWN = 4
_NODES = 16
_HINTS = {
    "collective": "All members of a comm group have to begin the same collectives, of the same size, in the same order.",
    "message": "Every receive needs its send: source, target, tag and size of both sides have to agree.",
    "dependency": "A node may not wait for itself in a circle, nor for a node that is not there.",
}


@dataclass(frozen=True, slots=True)
class Stuck:
    """A rank that never finishes.

    Attributes:
        rank: Its number.
        nodes: Ids of its nodes that are under way for ever; of those never begun where none is. At most 16.
        waits_for: Numbers of the ranks it waits for.
        reason: What it waits for, in words that begin with the rank.
    """

    rank: int
    nodes: tuple[int, ...]
    waits_for: tuple[int, ...]
    reason: str


class DeadlockError(TraceError):
    """Some ranks wait for ever.

    Attributes:
        stuck: The ranks, at most 64.
        stuck_ranks: How many there are.
        circle: Ranks that wait for each other, each for the next and the last for the first; may be empty.
        causes: What the pre-run check says of the job.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        stuck: tuple[Stuck, ...] = (),
        stuck_ranks: int = 0,
        circle: tuple[int, ...] = (),
        causes: tuple[Finding, ...] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.stuck = stuck
        self.stuck_ranks = stuck_ranks
        self.circle = circle
        self.causes = causes


def explain_deadlock(
    trace: Trace, config: SystemConfig, stuck: Int64, events: tuple[Int64, Int64, Bool]
) -> DeadlockError:
    """Return the report of a deadlock.

    Args:
        trace: The trace.
        config: The system.
        stuck: (S,) places in the trace of the ranks that never finish, rising.
        events: (E,) rank, row and whether it ends of the events so far, in their order.
    """
    state = _State(trace, config, *events)
    explained = tuple(_explain(state, place) for place in stuck[:_EXPLAINED].tolist())
    circle = _find_cycle(explained)
    causes = tuple(finding for finding in check(trace, config) if finding.level != "info")
    shown = "; ".join(rank.reason for rank in explained[:_SHOWN])
    more = f" (and {format_counted(len(stuck) - _SHOWN, 'more rank')})" if len(stuck) > _SHOWN else ""
    lines = [f"{len(stuck):,} of {len(trace.ranks):,} ranks never finish: {shown}{more}."]
    if state.disagreement:
        lines.append(f"The first disagreement: {state.disagreement}.")
    if circle:
        others = ", which waits for ".join(f"rank {number}" for number in (*circle[1:], circle[0]))
        lines.append(f"They wait in a circle: rank {circle[0]} waits for {others}.")
    fact = check_missing_facts(trace)
    if fact is not None:
        lines.append(fact.message)
    remaining = [
        cause for cause in causes if not (state.disagreement and cause.code == "collectives-disagree")
    ]
    lines += [f"Also: {cause.message}" for cause in remaining[:_SHOWN]]
    if len(remaining) > _SHOWN:
        lines.append(f"And {format_counted(len(remaining) - _SHOWN, 'more finding')}.")
    return DeadlockError(
        "\n".join(lines),
        hint=fact.hint if fact is not None else _HINTS[[*state.about, "dependency"][0]],
        stuck=explained,
        stuck_ranks=len(stuck),
        circle=circle,
        causes=causes,
    )


@dataclass(slots=True)
class _Begun:
    """The rows a rank has begun, in order, and those that never end."""

    rows: Int64
    open: Int64


class _State:
    """The state of the stopped run, by rank."""

    def __init__(self, trace: Trace, config: SystemConfig, rank: Int64, row: Int64, done: Bool) -> None:
        self.trace = trace
        self.config = config
        self.about: list[str] = []
        self.disagreement = ""
        order = np.argsort(rank, kind="stable")
        self._row, self._done = row[order], done[order]
        self._bounds = np.searchsorted(rank[order], np.arange(len(trace.ranks) + 1)).tolist()
        self._place = {rank.number: place for place, rank in enumerate(trace.ranks)}
        groups = trace.groups if config.groups is None else config.groups
        self._world = list_world_names(groups, self._place)
        self._begun: dict[tuple[int, str], list[int]] = {}
        self._columns: dict[int, tuple[Int64, Int64, Int64]] = {}

    @cached_property
    def groups(self) -> dict[str, GroupMatching]:
        matchings = match_collectives(
            self.trace, self.config.groups, by_number=matches_by_number(self.config)
        )
        return {group.name: group for group in matchings}

    @cached_property
    def messages(self) -> Messages:
        return match_messages(self.trace)

    def graph(self, place: int) -> Graph:
        return self.trace.graphs[self.trace.ranks[place].graph]

    def columns(self, place: int) -> tuple[Int64, Int64, Int64]:
        """Return group slot, collective type and size of a rank's nodes."""
        index = self.trace.ranks[place].graph
        if index not in self._columns:
            graph = self.trace.graphs[index]
            kind, size = read_dense_column(graph, "comm_type", NONE), read_dense_column(graph, "comm_size", 0)
            self._columns[index] = group_slots(graph), kind, size
        return self._columns[index]

    def begun_nodes(self, place: int) -> _Begun:
        of_rank = slice(self._bounds[place], self._bounds[place + 1])
        rows, done = self._row[of_rank], self._done[of_rank]
        return _Begun(rows[~done], np.setdiff1d(rows[~done], rows[done]))

    def group_of(self, place: int, row: int) -> str:
        slot = int(self.columns(place)[0][row])
        name = WORLD if slot == NONE else str(self.trace.ranks[place].slots[slot])
        return WORLD if name in self._world else name

    def collectives(self, place: int, group: str) -> list[int]:
        """Return the rows of the collectives a rank has begun in a group, in their order."""
        key = (place, group)
        if key not in self._begun:
            graph, rank = self.graph(place), self.trace.ranks[place]
            names = [WORLD if str(value) in self._world else str(value) for value in rank.slots]
            rows = self.begun_nodes(place).rows
            rows = rows[graph.type[rows] == NodeType.COMM_COLL]
            # The slot of a node that names no group is -1: the last of these.
            in_group = np.array([name == group for name in [*names, WORLD]])[self.columns(place)[0][rows]]
            self._begun[key] = rows[in_group].tolist()
        return self._begun[key]

    def find_position(self, place: int, group: GroupMatching, row: int) -> int:
        """Return which collective of its group a node of a member is, as the engine matches them."""
        return self._list_matched(place, group).index(row)

    def find_begun(self, place: int, group: GroupMatching, position: int) -> int | None:
        """Return the row with which a member has begun the collective at a position; None where it has not."""
        rows = self._list_matched(place, group)
        row = rows[position] if position < len(rows) else NONE
        return row if row != NONE and row in self.collectives(place, group.name) else None

    def _list_matched(self, place: int, group: GroupMatching) -> list[int]:
        """Return the rows of a member's collectives by position: a cost model gives each its own, else the n-th begun is the n-th."""
        if not self.config.flows:
            return self.collectives(place, group.name)
        rows: list[int] = group.find_sequence(self.trace.ranks[place].number).rows.tolist()
        return rows

    def place(self, number: int) -> int | None:
        return self._place.get(number)

    def has_begun(self, place: int, row: int) -> bool:
        return bool((self.begun_nodes(place).rows == row).any())


def _explain(state: _State, place: int) -> Stuck:
    """Explain what a stuck rank waits for."""
    begun, graph, number = state.begun_nodes(place), state.graph(place), state.trace.ranks[place].number
    rows = begun.open
    if not len(rows):
        rows = np.setdiff1d(np.arange(len(graph)), begun.rows)
        reason = f"rank {number} never begins {_label_nodes(graph, rows)}"
        return Stuck(number, _list_ids(graph, rows), (), reason + _explain_unstarted(graph, rows))
    reasons, waits = [], []
    for row in rows[:_NODES].tolist():
        words, ranks = _explain_open(state, place, row)
        reasons.append(words)
        waits += [rank for rank in ranks if rank not in waits]
    more = f", and {format_counted(len(rows) - 2, 'more node')}" if len(rows) > 2 else ""
    reason = f"rank {number} waits {' and '.join(reasons[:2])}{more}"
    return Stuck(number, _list_ids(graph, rows), tuple(waits), reason)


def _list_ids(graph: Graph, rows: Int64) -> tuple[int, ...]:
    return tuple(graph.id[rows[:_NODES]].tolist())


def _label_nodes(graph: Graph, rows: Int64) -> str:
    more = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
    return (label_node(graph, int(rows[0])) if len(rows) else "its nodes") + more


def _explain_unstarted(graph: Graph, rows: Int64) -> str:
    """Explain why the first of the nodes that never began did not."""
    if not len(rows):
        return ""
    waited = np.concatenate([graph.ctrl.of(int(rows[0])), graph.data.of(int(rows[0]))])
    never = [row for row in waited.tolist() if row < 0 or row in rows]
    if not never:
        return ", although all it waits for has ended"
    if never[0] < 0:
        return ", which waits for a node that is not in the trace"
    return f", which waits for {label_node(graph, never[0])}"


def _explain_open(state: _State, place: int, row: int) -> tuple[str, list[int]]:
    """Explain what a started node waits for; also returns the ranks."""
    graph = state.graph(place)
    kind = int(graph.type[row])
    if kind == NodeType.COMM_COLL:
        return _explain_collective(state, place, row)
    if kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
        return _explain_message(state, place, row)
    return f"for {label_node(graph, row)}, of type {type_name(kind)}, to end", []


def _explain_collective(state: _State, place: int, row: int) -> tuple[str, list[int]]:
    state.about.append("collective")
    number, name = state.trace.ranks[place].number, state.group_of(place, row)
    group = state.groups[name]
    own = describe_collective(state.trace, number, row)
    if number not in group.members:
        where = f"in a collective of {label_group(group)}, {own}"
        return f"{where}, of which it is no member: members are {format_ranks(group.members)}", []
    position = state.find_position(place, group, row)
    where = f"in collective {position} of {label_group(group)}, {own}"
    absent, others = _find_absent(state, group, position, _get_content(state, place, row))
    if others:
        member, other = others[0]
        differs = f"rank {member} has begun {describe_collective(state.trace, member, other)}"
        text = f"collective {position} of {label_group(group)}: rank {number} has begun {own}, {differs}"
        state.disagreement = state.disagreement or text
        return f"{where}, where {differs}", [member for member, _ in others]
    if absent:
        return f"{where}, for {format_ranks(absent)}: {_explain_absence(state, absent[0], name)}", absent
    return f"{where}, which all members have begun", []


def _find_absent(
    state: _State, group: GroupMatching, position: int, content: tuple[int, int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the members that have not begun a collective, and those that have begun another, with its row."""
    absent, others = [], []
    for member in group.members:
        place = state.place(member)
        begun = None if place is None else state.find_begun(place, group, position)
        if place is None or begun is None:
            absent.append(member)
        elif _get_content(state, place, begun) != content:
            others.append((member, begun))
    return absent, others


def _get_content(state: _State, place: int, row: int) -> tuple[int, int]:
    _, kind, size = state.columns(place)
    return int(kind[row]), int(size[row])


def _explain_absence(state: _State, member: int, name: str) -> str:
    """Explain why a member has not begun a collective."""
    place = state.place(member)
    if place is None:
        return f"rank {member} is not in the trace"
    count = len(state.collectives(place, name))
    begun = f"{count:,} collective{'' if count == 1 else 's'} of the group"
    done = state.begun_nodes(place)
    if len(done.rows) == len(state.graph(place)) and not len(done.open):
        return f"rank {member} has finished after {begun}"
    return f"rank {member} has begun {begun}"


def _explain_message(state: _State, waiter: int, row: int) -> tuple[str, list[int]]:
    state.about.append("message")
    messages, trace = state.messages, state.trace
    receives = int(state.graph(waiter).type[row]) == NodeType.COMM_RECV
    rank, rows = (
        (messages.receive_rank, messages.receive_row) if receives else (messages.send_rank, messages.send_row)
    )
    pair = int(np.flatnonzero((rank == waiter) & (rows == row))[0])
    other_rank, other_row = (
        (messages.send_rank, messages.send_row) if receives else (messages.receive_rank, messages.receive_row)
    )
    peer = int((messages.source if receives else messages.target)[pair])
    what = describe_half(trace, messages, pair, receives=receives)
    what, verb = (
        what.replace(f"rank {trace.ranks[waiter].number}'s", "its", 1),
        "sends" if receives else "receives",
    )
    if other_row[pair] == NONE:
        return f"in {what}, which rank {peer} never {verb}", [peer]
    place, other = int(other_rank[pair]), int(other_row[pair])
    node = label_node(state.graph(place), other)
    state_of = "has begun" if state.has_begun(place, other) else "has not begun"
    return f"in {what}, for {node} of rank {peer}, which it {state_of}", [peer]


def _find_cycle(explained: tuple[Stuck, ...]) -> tuple[int, ...]:
    """Find the shortest cycle of ranks that wait for each other, from the lowest; empty if there is none."""
    known = {stuck.rank for stuck in explained}
    waits = {stuck.rank: [rank for rank in stuck.waits_for if rank in known] for stuck in explained}
    circles = [circle for rank in waits if (circle := _find_path_back(rank, waits))]
    if not circles:
        return ()
    best = min(circles, key=len)
    low = best.index(min(best))
    return tuple(best[low:] + best[:low])


def _find_path_back(start: int, waits: dict[int, list[int]]) -> list[int]:
    """Return the shortest path from a rank back to itself, breadth first."""
    before: dict[int, int] = {}
    layer = [start]
    while layer:
        after = []
        for rank, other in _iterate_edges(layer, waits):
            if other == start:
                path = [rank]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return path[::-1]
            if other not in before:
                before[other] = rank
                after.append(other)
        layer = after
    return []


def _iterate_edges(ranks: list[int], waits: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    for rank in ranks:
        for other in waits.get(rank, []):
            yield rank, other
