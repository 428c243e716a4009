"""Infer the comm group of collectives and messages that name none, by matching them across ranks.

A recorder of gloo writes no group. What else tells it:

- Every member of a group takes part: all of them have a collective of that kind and size, at the same time.
- A library's thread works for one group alone, so what it carries out belongs together; threads are numbered in the
  order in which the groups were made.
- A message counts its peer within the group, and the peer has the other half.

Nothing of this is proof, so what comes from here is marked as inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from studio.et.link.clock import have_same_clock
from studio.et.link.draft import RankDraft
from studio.et.link.facts import Facts
from studio.et.link.names import RECEIVE, SEND
from studio.et.link.sequence import Place, get_facts
from studio.et.link.strands import Item, Strand, collect_items, group_by_strand
from studio.trace import NONE, ROOTED_TYPES, Float64, Int64

Members = Mapping[str, tuple[int, ...]]
_NEAR = 8
"""Threads of one group are made one after the other: their numbers are mostly nearer than this, even if ranks share a machine."""
_POOL = 2
"""How many threads gloo gives a group, if nothing else is asked for."""
_HINT = 0.3
"""What the numbers of threads count at most, beside 1 for a collective that another member lacks."""
_ALONE = 0.1
"""What counts against a group of one rank, which needs nobody else, beside 1 for a collective that another member lacks."""
_CLEAR = 0.2
"""How much more than for the likeliest group speaks against one that is ruled out."""
_ALIKE = 0.01
"""What speaks against groups that fit alike differs by less."""
_MOST_ROUNDS = 4
_MOST_PAIRED = 2_000
"""Messages of a tag and size that are paired one by one."""


_Chosen = dict[tuple[int, Strand], str]
_Possible = dict[tuple[int, Strand], Sequence[str]]
"""Groups that a strand of a rank may be in."""
_Half = tuple[int, int, int, Place, Facts]
"""When a message began and ended on a rank, the number of its draft, its place and facts."""
_Named = tuple[tuple[int, int], str | None]
"""Kind and size, and group where there is one."""


def infer_groups(
    drafts: Sequence[RankDraft], members: Members
) -> tuple[dict[int, dict[Place, str]], dict[int, set[Place]]]:
    """Return groups for what names none, by place of the draft, without what fits no group; and what fits others as well.

    Args:
        drafts: The ranks.
        members: Ranks of each group, in the order in which the groups were made.
    """
    inferred: dict[int, dict[Place, str]] = {index: {} for index in range(len(drafts))}
    undecided: dict[int, set[Place]] = {}
    # Of one group nobody has to choose.
    if any(len(list_candidates(rank_draft, members)) > 1 for rank_draft in drafts):
        collectives = _Collectives(drafts, members)
        inferred |= collectives.infer()
        undecided = collectives.undecided
    for index, groups in _match_messages(drafts, members).items():
        inferred[index] = inferred[index] | groups
    return inferred, undecided


def list_candidates(rank_draft: RankDraft, members: Members) -> list[str]:
    """Return the groups that a rank shares with others, in the order in which they were made.

    PyTorch names groups by numbers that rise; others are in the order of the rank's own list.
    """
    number = 0 if rank_draft.number is None else rank_draft.number
    shared = [name for name, ranks in members.items() if number in ranks]
    if all(name.isdecimal() for name in shared):
        return sorted(shared, key=lambda name: (len(name), name))
    listed = {name: place for place, name in enumerate(rank_draft.communication.groups)}
    return sorted(shared, key=lambda name: listed.get(name, len(listed)))


# ---------------------------------------------------------------------------------------------------
# Collectives


class _Collectives:
    """The collectives of all ranks, and the groups chosen so far."""

    def __init__(self, drafts: Sequence[RankDraft], members: Members) -> None:
        self.drafts, self.members = drafts, members
        self.items = [collect_items(rank_draft) for rank_draft in drafts]
        self.at = {rank_draft.number or 0: index for index, rank_draft in enumerate(drafts)}
        self.groups = [list_candidates(rank_draft, members) for rank_draft in drafts]
        self.strands = [group_by_strand(items) for items in self.items]
        self.timed = all(have_same_clock(drafts[0], other) for other in drafts[1:])
        self.undecided: dict[int, set[Place]] = {}

    def infer(self) -> dict[int, dict[Place, str]]:
        """Choose a group for each strand, until nothing changes; those that all members have first."""
        open_ranks = [
            index
            for index, items in enumerate(self.items)
            if len(self.groups[index]) > 1 and any(item.group is None for item in items)
        ]
        if not open_ranks:
            return {}
        possible: _Possible = {
            (index, strand): groups
            for index, groups in enumerate(self.groups)
            for strand in self.strands[index]
            if groups
        }
        peers = _Peers(self.items, possible, timed=self.timed)
        self._rule_out(open_ranks, possible, peers)
        self.undecided = {index: self._find_undecided(index, possible, peers) for index in open_ranks}
        # A rank that shares one group with others has nothing to choose. Of the others one after the other chooses, each
        # with what those before it have chosen; first those of most groups, which the order of their threads tells apart.
        open_ranks.sort(key=lambda index: -len(self.groups[index]))
        chosen: _Chosen = {place: groups[0] for place, groups in possible.items() if len(groups) == 1}
        for _ in range(_MOST_ROUNDS):
            before = dict(chosen)
            for index in open_ranks:
                for strand, group in self._choose(index, peers).items():
                    chosen[index, strand] = group
                    possible[index, strand] = (group,)
                peers.update(index, possible)
            if before == chosen:
                break
        self._move_together(chosen)
        return {
            index: {
                item.place: chosen[index, strand]
                for strand, items in self.strands[index].items()
                for item in items
                if item.group is None and (index, strand) in chosen
            }
            for index in open_ranks
        }

    def _rule_out(self, open_ranks: Sequence[int], possible: _Possible, peers: _Peers) -> None:
        """Leave out groups that clearly cannot be, until no other follows: else a rank would take one because others still may."""
        for _ in range(_MOST_ROUNDS):
            changed = False
            for index in open_ranks:
                for strand in self.strands[index]:
                    groups = possible[index, strand]
                    costs = [self._compute_cost(index, strand, group, peers) for group in groups]
                    left = [
                        group for group, cost in zip(groups, costs, strict=True) if cost < min(costs) + _CLEAR
                    ]
                    changed = changed or len(left) < len(groups)
                    possible[index, strand] = left
                peers.update(index, possible)
            if not changed:
                break

    def _find_undecided(self, index: int, possible: _Possible, peers: _Peers) -> set[Place]:
        """Return the collectives of a rank that fit groups of other ranks alike, and of which no library's thread tells more."""
        undecided: set[Place] = set()
        for strand, items in self.strands[index].items():
            sizes = {get_facts(self.drafts[index].communication, item.place).members for item in items} - {0}
            groups = [group for group in possible[index, strand] if sizes <= {len(self.members[group])}]
            if strand[0] != NONE or len({frozenset(self.members[group]) for group in groups}) < 2:
                continue
            costs = {group: self._compute_cost(index, strand, group, peers) for group in groups}
            alike = [group for group in groups if costs[group] < min(costs.values()) + _ALIKE]
            if len({frozenset(self.members[group]) for group in alike}) > 1:
                undecided.update(item.place for item in items if item.group is None)
        return undecided

    def _move_together(self, chosen: _Chosen) -> None:
        """Move strands from a group that a member has nothing of to one whose members all have some there."""
        for group, ranks in self.members.items():
            holders = {
                index: [strand for strand in self.strands[index] if chosen.get((index, strand)) == group]
                for index in (self.at[rank] for rank in ranks if rank in self.at)
            }
            named = {index for index in holders if any(item.group == group for item in self.items[index])}
            left = {index for index, strands in holders.items() if strands}
            if not left or named or len(left) == len(holders):
                continue
            for other in sorted(self.members, key=lambda name: -len(self.members[name])):
                those = {self.at.get(rank, NONE) for rank in self.members[other]}
                if other != group and len(those) > 1 and those <= left:
                    left -= those
                    for index in those:
                        chosen.update({(index, strand): other for strand in holders[index]})

    def _choose(self, index: int, peers: _Peers) -> dict[Strand, str]:
        """Return the group of each strand of a rank that costs least."""
        groups = self.groups[index]
        strands = sorted(self.strands[index])
        costs = np.array(
            [[self._compute_cost(index, strand, group, peers) for group in groups] for strand in strands],
            np.float64,
        )
        threads = [strand[0] for strand in strands]
        best = _assign_in_order(costs, threads)
        return {strand: groups[place] for strand, place in zip(strands, best, strict=True)}

    def _compute_cost(self, index: int, strand: Strand, group: str, peers: _Peers) -> float:
        """Return how much speaks against a group: a collective that another member lacks, or one that names another."""
        items = self.strands[index][strand]
        others = [self.at[rank] for rank in self.members[group] if rank in self.at and self.at[rank] != index]
        lacking: float = sum(peers.lacks(other, item, group) for item in items for other in others)
        named = sum(len(items) for item in items if item.group not in (None, group))
        if not others and len(self.members[group]) == 1:
            # What no other rank sees nothing contradicts either.
            lacking = _ALONE
        # Of groups that fit alike the larger: that more ranks agree by accident is less likely.
        return named + lacking / max(len(others), 1) - 1e-3 * len(others) / len(self.drafts)


class _Peers:
    """Finds the collectives of other ranks that may be the other part of one."""

    def __init__(self, items: Sequence[Sequence[Item]], possible: _Possible, *, timed: bool) -> None:
        self.items, self.timed = items, timed
        self.lists: list[dict[_Named, list[Item]]] = [{} for _ in items]
        self.known: list[dict[_Named, tuple[Int64, Int64]]] = [{} for _ in items]
        for index in range(len(items)):
            self.update(index, possible)

    def update(self, index: int, possible: _Possible) -> None:
        """Take over which groups what a rank did may be in."""
        lists: dict[_Named, list[Item]] = {}
        for item in self.items[index]:
            strand = (item.thread, (NONE, NONE)) if item.thread != NONE else (NONE, item.key)
            groups = (item.group,) if item.group else possible.get((index, strand), (None,))
            for group in groups:
                lists.setdefault((item.key, group), []).append(item)
        self.lists[index], self.known[index] = lists, {}

    def lacks(self, index: int, item: Item, group: str) -> bool:
        """Whether a rank has no collective that may be of the group, and the same as one of another rank."""
        for name in (group, None):
            begin, latest = self._collect_times(index, item.key, name)
            if not len(begin):
                continue
            if not self.timed or item.key[0] in ROOTED_TYPES:
                return False
            place = int(np.searchsorted(begin, item.end_ns, side="left")) - 1
            if place >= 0 and latest[place] > item.begin_ns:
                return False
        return True

    def _collect_times(self, index: int, key: tuple[int, int], group: str | None) -> tuple[Int64, Int64]:
        """Return when collectives of a rank began, rising, and the latest end up to each."""
        known = self.known[index]
        if (key, group) not in known:
            items = sorted(self.lists[index].get((key, group), ()), key=lambda item: item.begin_ns)
            begin = np.array([item.begin_ns for item in items], np.int64)
            end = np.array([item.end_ns for item in items], np.int64)
            known[key, group] = begin, np.maximum.accumulate(end) if len(end) else end
        return known[key, group]


def _assign_in_order(costs: Float64, threads: Sequence[int]) -> list[int]:
    """Return the column of least cost for each row; columns of threads rise with their numbers if that costs no more.

    S strands, sorted by thread; G groups in the order they were made. Near threads may be of one group, up to a pool of them.

    Args:
        costs: (S, G) what speaks against each group.
        threads: (S,) number of the thread, -1 for strands without.
    """
    free: list[int] = np.argmin(costs, axis=1).tolist()
    numbered = [row for row, thread in enumerate(threads) if thread != NONE]
    if not numbered:
        return free
    groups = np.arange(costs.shape[1])
    # The least cost so far, by group of the last thread and how many threads before it are of that group, too.
    best = np.full((len(groups), _POOL + 1), np.inf)
    best[:, 0] = costs[numbered[0]]
    origins: list[Int64] = []
    for this, row in pairwise(numbered):
        gap = threads[row] - threads[this]
        far = gap / (gap + _NEAR)
        cheapest = best.min(axis=1)
        lower = np.minimum.accumulate(np.append(np.inf, cheapest[:-1]))
        step = np.empty_like(best)
        step[:, 0] = lower + _HINT * (1 - far)
        step[:, 1:] = best[:, :-1] + _HINT * far
        step[:, -1] = np.minimum(step[:, -1], best[:, -1] + _HINT * far) + 2 * _HINT
        # A place of the table before: of a lower group, or of the same with one thread less.
        before = np.empty(best.shape, np.int64)
        rising = np.array([int(np.argmin(cheapest[: max(group, 1)])) for group in groups])
        before[:, 0] = rising * best.shape[1] + best.argmin(axis=1)[rising]
        before[:, 1:] = groups[:, None] * best.shape[1] + np.arange(_POOL)
        full = best[:, -1] < best[:, -2]
        before[full, -1] += 1
        origins.append(before)
        best = step + costs[row][:, None]
    place = int(np.argmin(best))
    columns = [place // best.shape[1]]
    for before in reversed(origins):
        place = int(before.ravel()[place])
        columns.append(place // best.shape[1])
    columns.reverse()
    ordered_cost = sum(float(costs[row, column]) for row, column in zip(numbered, columns, strict=True))
    free_cost = sum(float(costs[row].min()) for row in numbered)
    if ordered_cost < free_cost + 1:
        for row, column in zip(numbered, columns, strict=True):
            free[row] = column
    return free


# ---------------------------------------------------------------------------------------------------
# Messages


def _match_messages(drafts: Sequence[RankDraft], members: Members) -> dict[int, dict[Place, str]]:
    """Return the group of messages that name none: of each family of groups that of which most find their other half.

    Where some find none they are paired one by one, by when they were sent and received. Messages of one tag and size are of one family: those of other families cannot be their other halves.
    """
    halves = [_collect_halves(rank_draft) for rank_draft in drafts]
    numbers = [rank_draft.number or 0 for rank_draft in drafts]
    families = _group_families(drafts, members)
    if not any(halves) or not families:
        return {}
    usual = sorted(families, key=lambda family: _count_unmatched(halves, numbers, family, members))
    alike: dict[tuple[int, int], list[list[tuple[Place, Facts]]]] = {}
    for index, own in enumerate(halves):
        for place, facts in own:
            lists = alike.setdefault((facts.tag, facts.bytes), [[] for _ in drafts])
            lists[index].append((place, facts))
    group_of: dict[int, dict[Place, str]] = {}
    timed = all(have_same_clock(drafts[0], other) for other in drafts[1:])
    for lists in alike.values():
        best = min(usual, key=lambda family: _count_unmatched(lists, numbers, family, members))
        is_open = timed and _count_unmatched(lists, numbers, best, members) > 0
        if is_open and (paired := _pair_by_time(drafts, lists, members)):
            for index, place, group in paired:
                group_of.setdefault(index, {})[place] = group
            continue
        for index, number in enumerate(numbers):
            if number in best:
                group_of.setdefault(index, {}).update({place: best[number] for place, _ in lists[index]})
    return group_of


def _pair_by_time(
    drafts: Sequence[RankDraft], lists: Sequence[Sequence[tuple[Place, Facts]]], members: Members
) -> list[tuple[int, Place, str]]:
    """Return the group of each message, of several that overlap: that in which the first send not yet received is its other half.

    Empty where one finds none.

    Args:
        drafts: The ranks, of one clock.
        lists: Sends and receives of each.
        members: Ranks of each group.
    """
    sends: list[_Half] = []
    receives: list[_Half] = []
    for index, (rank_draft, own) in enumerate(zip(drafts, lists, strict=True)):
        for place, facts in own:
            half: _Half = (*_read_span(rank_draft, place), index, place, facts)
            (sends if facts.kind == SEND else receives).append(half)
    if len(sends) != len(receives) or len(sends) > _MOST_PAIRED:
        return []
    sends.sort(key=lambda half: half[0])
    receives.sort(key=lambda half: half[1])
    numbers = [rank_draft.number or 0 for rank_draft in drafts]
    paired: list[tuple[int, Place, str]] = []
    for _, end, index, place, facts in receives:
        for at, (begin, _, other, sent, send_facts) in enumerate(sends):
            ends = (numbers[other], send_facts.peer), (numbers[index], facts.peer)
            group = next((name for name, ranks in members.items() if _are_peers(ranks, *ends)), None)
            if group is not None and begin <= end:
                paired += [(index, place, group), (other, sent, group)]
                del sends[at]
                break
        else:
            return []
    return paired


def _are_peers(ranks: Sequence[int], first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether two ranks name each other, by their places in a group."""
    return all(
        peer < len(ranks) and number in ranks and ranks[peer] == wanted
        for (number, peer), wanted in ((first, second[0]), (second, first[0]))
    )


def _read_span(rank_draft: RankDraft, place: Place) -> tuple[int, int]:
    """Return when a message began and ended."""
    on_device, row = place
    if not on_device:
        operations = rank_draft.operations
        # Gloo may note a send down after it was received.
        call = rank_draft.communication.issued_by.get(row, row)
        return int(min(operations.begin[row], operations.begin[call])), int(operations.finish[row])
    assert rank_draft.device is not None
    assert rank_draft.launched is not None
    event = int(rank_draft.launched.event[row])
    start = int(rank_draft.device.start_ns[event])
    return start, start + int(rank_draft.device.duration_ns[event])


def _collect_halves(rank_draft: RankDraft) -> list[tuple[Place, Facts]]:
    """Return the sends and receives of a rank that count their peer in a group which is not named."""
    communication = rank_draft.communication
    places: list[Place] = [
        *((False, row) for row in communication.operators),
        *((True, place) for place in communication.devices),
    ]
    known = [(place, get_facts(communication, place)) for place in places]
    return [
        (place, facts)
        for place, facts in known
        if facts.kind in (SEND, RECEIVE)
        and not facts.group
        and not facts.peer_is_global
        and facts.peer != NONE
    ]


def _group_families(drafts: Sequence[RankDraft], members: Members) -> list[dict[int, str]]:
    """Return groups of equal size and description that share no rank, as rank → group; those of most ranks first."""
    described = {
        group.name: group.description
        for rank_draft in drafts
        for group in rank_draft.communication.groups.values()
    }
    families: dict[tuple[str, int, int], dict[int, str]] = {}
    for name, ranks in members.items():
        if len(ranks) < 2:
            continue
        turn = 0
        while (
            not families.setdefault((described.get(name, ""), len(ranks), turn), {}).keys().isdisjoint(ranks)
        ):
            turn += 1
        families[described.get(name, ""), len(ranks), turn].update(dict.fromkeys(ranks, name))
    return sorted(families.values(), key=lambda family: -max(len(members[name]) for name in family.values()))


def _count_unmatched(
    halves: Sequence[Sequence[tuple[Place, Facts]]],
    numbers: Sequence[int],
    family: Mapping[int, str],
    members: Members,
) -> int:
    """Return how many halves find no other one, if these groups are those of all messages."""
    sent: Counter[tuple[int, int, int, int]] = Counter()
    impossible = 0
    for number, own in zip(numbers, halves, strict=True):
        ranks = members[family[number]] if number in family else ()
        for _, facts in own:
            if facts.peer >= len(ranks) or ranks[facts.peer] == number:
                impossible += 1
                continue
            peer = ranks[facts.peer]
            ends = (number, peer) if facts.kind == SEND else (peer, number)
            sent[(*ends, facts.tag, facts.bytes)] += 1 if facts.kind == SEND else -1
    return impossible + sum(map(abs, sent.values()))
