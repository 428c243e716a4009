"""Try the orders in which ranks can carry out their communication, where times decide about it.

Nothing is timed: compute nodes and transfers take as long as they like. A state is what each rank has ended and what it is
carrying out. Steps of a rank that no other step can change are made at once, so that few orders are left to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from studio.analysis.collectives.matching import find_disagreement
from studio.doctor.diagnosis import Case, GraphCase
from studio.doctor.issue import match_turns
from studio.trace import NONE, UNEVEN_TYPES, CollectiveType, NodeType, read_dense_column

_Key = TypeVar("_Key", str, tuple[int, ...])

FEW_EVENTS, MOST_EVENTS = 400, 4_000
"""Communication nodes of all ranks: in jobs of more than the latter no order is tried."""
MOST_WAITS = 1 << 25
"""Nodes times communication nodes, rank by rank, in jobs with more than few of these: what each waits for is worked out."""
MOST_STATES = 10_000

_State = tuple[tuple[int, int], ...]
"""Of each rank the nodes that have ended, as bits, and the place of the one that it is carrying out."""
_Next = tuple[tuple[int, ...], tuple[int, ...], bool]
"""Which nodes a rank can begin next, which of its receives can end, and whether one of the former begins at once."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Whether a job ends in the orders in which its communication may be carried out.

    Attributes:
        ends, hangs: Whether some order ends, and whether some order hangs.
        complete: Whether all orders were tried; of a job with more than few communication nodes none but the one by id
            is tried where that one ends.
        hangs_by_id: Whether the order hangs in which each rank begins what has the lowest id of all that may be ready.
        stuck: Place of a rank and row of what it waits in, of one order that hangs.
    """

    ends: bool
    hangs: bool
    complete: bool
    hangs_by_id: bool
    stuck: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Event:
    """A communication node of a rank.

    Attributes:
        row, number: Its row and id.
        needs: The nodes that it waits for, directly or through computation, as bits.
        parents: Rows that it waits for directly.
        sure: Whether it is ready the moment the last of the nodes it needs ends.
        turn: Whether the rank carries it out alone; receives it does not.
        group: Of a collective that waits for others.
        key: Of a message.
        content: What the members of a collective must agree on.
    """

    row: int
    number: int
    needs: int
    parents: frozenset[int]
    sure: bool
    turn: bool
    group: str | None
    key: tuple[int, ...] | None
    content: tuple[int, int]


def try_orders(case: Case, tick: Callable[[], None] = lambda: None) -> Tried | None:
    """Return whether orders end or hang; None where the job is too large, or hangs for plain reasons."""
    if not is_small(case):
        return None
    # The finding of their own tells them; what waits for a collective that is no communication has no order to try.
    if any((item.communicates & item.on_cpu).any() for item in case.graphs):
        return None
    messages = case.messages
    halves = (messages.send_row == NONE) | (messages.receive_row == NONE) | ~messages.known
    if halves.any() or any(group.outsiders for group in case.ordered):
        return None
    contents = [find_disagreement(group) for group in case.ordered]
    if any(item is not None and NONE in (item.row, item.other_row) for item in contents):
        return None
    return _Search(case, tick).run()


def is_small(case: Case) -> bool:
    """Whether a job has so little communication that its orders can be tried."""
    events = count_events(case)
    waits = sum(
        _count_graph_events(graph_case) * len(graph_case.graph) * len(graph_case.ranks)
        for graph_case in case.graphs
    )
    return 0 < events <= FEW_EVENTS or (events <= MOST_EVENTS and 0 < waits <= MOST_WAITS)


def count_events(case: Case) -> int:
    """Return how many communication nodes all ranks have."""
    return sum(_count_graph_events(graph_case) * len(graph_case.ranks) for graph_case in case.graphs)


def _count_graph_events(graph_case: GraphCase) -> int:
    """Return how many communication nodes a rank of a graph has."""
    return int((graph_case.communicates | match_turns(graph_case)).sum())


class _Search:
    """A search through the states that a job can be in."""

    def __init__(self, case: Case, tick: Callable[[], None]) -> None:
        self.tick = tick
        place = {rank.number: at for at, rank in enumerate(case.trace.ranks)}
        groups: list[dict[int, str]] = [{} for _ in place]
        members: dict[str, list[int]] = {}
        for group in case.ordered:
            for member, index in zip(group.members, group.sequence_of.tolist(), strict=True):
                if index != NONE and member in place:
                    members.setdefault(group.name, []).append(place[member])
                    groups[place[member]].update(
                        dict.fromkeys(group.sequences[index].rows.tolist(), group.name)
                    )
        keys: list[dict[int, tuple[int, ...]]] = [{} for _ in place]
        of = case.messages
        what = np.stack([of.source, of.target, of.tag, of.bytes], axis=1).tolist()
        for ranks, rows in ((of.send_rank, of.send_row), (of.receive_rank, of.receive_row)):
            for rank, row, key in zip(ranks.tolist(), rows.tolist(), what, strict=True):
                keys[rank][row] = tuple(key)
        by_graph = {item.index: item for item in case.graphs}
        self.events = [
            _build_events(by_graph[rank.graph], groups[at], keys[at])
            for at, rank in enumerate(case.trace.ranks)
        ]
        self.full = [(1 << len(events)) - 1 for events in self.events]
        self.in_group = [_collect_bits(events, lambda item: item.group) for events in self.events]
        sends: dict[tuple[int, ...], tuple[int, int]] = {}
        for rank, events in enumerate(self.events):
            own = _collect_bits(events, lambda item: item.key if item.turn else None)
            sends.update({key: (rank, bits) for key, bits in own.items()})
        receives = [
            _collect_bits(events, lambda item: None if item.turn else item.key) for events in self.events
        ]
        # Of each message of a rank: who sends it, and which nodes send and receive it.
        self.transfers = [
            {key: (*sends[key], bits) for key, bits in own.items() if key in sends} for own in receives
        ]
        self.bits_of = {
            name: [(rank, self.in_group[rank].get(name, 0)) for rank in ranks]
            for name, ranks in members.items()
        }
        self.known: list[dict[int, _Next]] = [{} for _ in self.events]
        self.is_large = count_events(case) > FEW_EVENTS

    def run(self) -> Tried:
        """Go through all states, depth first, until some order ends and some hangs."""
        start: _State = tuple((0, NONE) for _ in self.events)
        last = self.last_by_id(start)
        by_id = any(mask != full for (mask, _), full in zip(last, self.full, strict=True))
        if self.is_large and not by_id:
            return Tried(ends=True, hangs=False, complete=False, hangs_by_id=False)
        seen, waiting = {start}, [start]
        ends = False
        stuck: tuple[tuple[int, int], ...] = ()
        while waiting and len(seen) < MOST_STATES and not (ends and stuck):
            if not len(seen) % 512:
                self.tick()
            state = waiting.pop()
            following = self.following(state)
            if not following:
                if all(mask == full for (mask, _), full in zip(state, self.full, strict=True)):
                    ends = True
                else:
                    stuck = stuck or self.waits_in(state)
            for state_after in following:
                if state_after not in seen:
                    seen.add(state_after)
                    waiting.append(state_after)
        stuck = stuck or (self.waits_in(last) if by_id else ())
        return Tried(ends or not by_id, bool(stuck), not waiting, by_id, stuck)

    def last_by_id(self, state: _State) -> _State:
        """Return the state that ranks come to that begin what has the lowest id."""
        while following := self.following(state):
            state = following[0]
        return state

    def waits_in(self, state: _State) -> tuple[tuple[int, int], ...]:
        """Return the rank and row of what unfinished ranks wait in."""
        waits = []
        for rank, (mask, busy) in enumerate(state):
            if busy != NONE:
                waits.append((rank, self.events[rank][busy].row))
            elif receives := self.next_of(rank, mask)[1]:
                waits.append((rank, self.events[rank][receives[0]].row))
        return tuple(waits)

    def following(self, state: _State) -> list[_State]:
        """Return the states that can come next."""
        states: list[_State] = []
        for rank, (mask, busy) in enumerate(state):
            turns, receives, at_once = self.known[rank].get(mask) or self.next_of(rank, mask)
            own: list[_State] = []
            picks = turns if busy == NONE else ()
            if picks:
                own = [_replace_rank(state, rank, mask, pick) for pick in picks]
                if at_once:
                    return own
            elif busy != NONE and self.can_end(state, rank, busy):
                own = [_replace_rank(state, rank, mask | 1 << busy, NONE)]
            alone = not receives
            if receives:
                arriving = [receive for receive in receives if self.has_arrived(state, rank, receive)]
                own += [_replace_rank(state, rank, mask | 1 << receive, busy) for receive in arriving]
                alone = len(receives) == len(arriving) == 1 and busy == NONE and not picks
            # What others do changes nothing about these steps, so they are made first.
            if own and alone:
                return own
            states += own
        return states

    def next_of(self, rank: int, mask: int) -> _Next:
        """Return what a rank can do next, which is worked out once."""
        following = self.known[rank].get(mask)
        if following is None:
            following = self.known[rank][mask] = self._find_ready(rank, mask)
        return following

    def _find_ready(self, rank: int, mask: int) -> _Next:
        """Work out what a rank can do next."""
        events = self.events[rank]
        open_ones = [at for at, event in enumerate(events) if not mask >> at & 1 and event.needs & ~mask == 0]
        turns = sorted((events[at].number, at) for at in open_ones if events[at].turn)
        receives = tuple(at for at in open_ones if not events[at].turn)
        sure = next((index for index, (_, at) in enumerate(turns) if events[at].sure), None)
        if sure is None:
            return tuple(self._select_firsts(rank, [at for _, at in turns])), receives, False
        # At the very beginning no other is ready yet.
        first = sure if not mask else 0
        return tuple(self._select_firsts(rank, [at for _, at in turns[first : sure + 1]])), receives, True

    def _select_firsts(self, rank: int, turns: list[int]) -> Iterator[int]:
        """Yield those of these nodes, in the order of ids, that none before them is sure to precede."""
        kept: list[frozenset[int]] = []
        for at in turns:
            parents = self.events[rank][at].parents
            # What waits for no more than another is ready no later.
            if not any(earlier <= parents for earlier in kept):
                kept.append(parents)
                yield at

    def can_end(self, state: _State, rank: int, busy: int) -> bool:
        """Whether what a rank is carrying out can end: a collective once all members have begun the same one."""
        event = self.events[rank][busy]
        if event.group is None:
            return True
        position = (state[rank][0] & self.in_group[rank][event.group]).bit_count()
        for member, bits in self.bits_of[event.group]:
            mask, other = state[member]
            ended = (mask & bits).bit_count()
            if ended > position:
                continue
            if other == NONE or ended < position:
                return False
            theirs = self.events[member][other]
            if theirs.group != event.group or theirs.content != event.content:
                return False
        return True

    def has_arrived(self, state: _State, rank: int, receive: int) -> bool:
        """Whether a message is there that no other receive has taken."""
        key = self.events[rank][receive].key
        transfer = None if key is None else self.transfers[rank].get(key)
        if transfer is None:
            return False
        source, sends, receives = transfer
        return (state[source][0] & sends).bit_count() > (state[rank][0] & receives).bit_count()


def _replace_rank(state: _State, rank: int, mask: int, busy: int) -> _State:
    return (*state[:rank], (mask, busy), *state[rank + 1 :])


def _collect_bits(events: list[_Event], of: Callable[[_Event], _Key | None]) -> dict[_Key, int]:
    """Return the nodes of each key, as bits."""
    bits: dict[_Key, int] = {}
    for at, event in enumerate(events):
        key = of(event)
        if key is not None:
            bits[key] = bits.get(key, 0) | 1 << at
    return bits


def _build_events(case: GraphCase, groups: dict[int, str], keys: dict[int, tuple[int, ...]]) -> list[_Event]:
    """Return the communication of a rank and what it waits for."""
    graph = case.graph
    turns = match_turns(case)
    takes_part = turns | (case.communicates & (graph.type == NodeType.COMM_RECV) & ~case.on_cpu)
    of, waited = case.pairs
    parents: list[list[int]] = [[] for _ in range(len(graph))]
    for child, parent in zip(of.tolist(), waited.tolist(), strict=True):
        parents[child].append(parent)
    rows = np.flatnonzero(takes_part).tolist()
    bit = {row: 1 << at for at, row in enumerate(rows)}
    needs: dict[int, int] = {}
    for row in _order_parents_first(parents):
        needs[row] = 0
        for parent in parents[row]:
            needs[row] |= needs[parent] | bit.get(parent, 0)
    kinds = read_dense_column(graph, "comm_type", NONE).tolist()
    sizes = read_dense_column(graph, "comm_size", 0).tolist()
    events = []
    for row in rows:
        kind = kinds[row]
        waits = kind != CollectiveType.BROADCAST
        size = 0 if kind in UNEVEN_TYPES else sizes[row]
        sure = all(parent in bit for parent in parents[row])
        group = groups.get(row) if waits else None
        events.append(
            _Event(
                row=row,
                number=int(graph.id[row]),
                needs=needs[row],
                parents=frozenset(parents[row]),
                sure=sure,
                turn=bool(turns[row]),
                group=group,
                key=keys.get(row),
                content=(kind, size),
            )
        )
    return events


def _order_parents_first(parents: list[list[int]]) -> Iterator[int]:
    """Yield all rows, each behind those that it waits for."""
    children: list[list[int]] = [[] for _ in parents]
    for row, above in enumerate(parents):
        for parent in above:
            children[parent].append(row)
    left = [len(above) for above in parents]
    waiting = [row for row, count in enumerate(left) if not count]
    while waiting:
        row = waiting.pop()
        yield row
        for child in children[row]:
            left[child] -= 1
            if not left[child]:
                waiting.append(child)
