"""Fold ranks: find classes of equivalent ranks, of which one each is simulated.

Ranks are equivalent when nothing in the job or the network tells them apart but their numbers. The classes are
found by refining a partition: ranks of one class have the same graph and settings, and whatever neighbour one of
them has (at a distance in a dimension or in a comm group, or as the peer of a point-to-point message) the others
have a neighbour of the same class there, which is reached in the same time and has them for a neighbour in turn.
The partition is split until that holds for all of them.

Why a folded simulation gives every rank's own answer
    Only one rank of each class is simulated, its representative. What it sends to a neighbour stands for what the
    neighbour's representative receives from its own neighbour of the sender's class, so messages are known by
    tag, size, both classes, kind of neighbourhood and distance in it (`kernel.packets.name_message`). By induction over the
    ticks: suppose that up to a tick every rank has gone through what its representative has gone through, in the
    same ticks. Then the same things are scheduled for it in the next one, since its neighbours' representatives
    have scheduled them and every delay is the same. What remains is the order of the things that happen to one
    rank within one tick. The clock runs them in the order in which they were scheduled, so

    - of two scheduled in different ticks the earlier one comes first, on every rank of the class;
    - of two scheduled in one tick by one and the same rank the order is that in which this rank did it, which
      is the same on every rank of the class wherever that rank's own order is (induction again);
    - of two scheduled in one tick by different ranks the order depends on rank numbers, which a class does not have.

    Things of the third kind happen to a rank in the same tick on every rank of the class, but perhaps in another
    order. That changes nothing where they commute, and they do as long as they touch different things: another
    stream's packets, another channel's receives. They do not commute, or are not known to, where two of them put
    a stream into or take one out of the same queue, end streams of the same collective, complete nodes (the sweep
    after the first decides what the second finds, and the events are recorded in that order), use the same link,
    or where a message and a free packet meet at the barrier of a direct all-reduce. Two orders of the same things
    that agree on everything that is known differ by swapping neighbours whose order is not known, so if no such
    pair meets at one of these places, the outcome is the same. The engine watches for them (`kernel.order.stamp_order`),
    and the first one ends the folded simulation: every rank is then simulated by itself.

    With the symmetric ties of the extended mode the engine itself puts off whatever depends on the order within
    a tick to its end and does it in an order of its own, so nothing needs to be watched.

Links that serve several ranks
    With symmetric ties links are folded, too, in every product of dimensions (`studio.sim.link_classes`). Which links
    a message takes, dimension after dimension, follows from its sender and from what the receiver is to the sender:
    a neighbour at a distance in a dimension or comm group, or a peer. The partition is split until ranks of one class
    send over links of the same classes on every step of each of these ways, and until on every step of each way
    the links of one class get messages from ranks of the same classes, from one rank of a class at most. So to every
    message on a link there is exactly one on each link of its class, from a rank of the same class, at the same step
    of the same way, and the message of that rank's representative stands for all of them; it takes, link by link,
    those that stand for its own. By the induction they come to their links in the same tick.

    A link first serves what came in an earlier tick, and what came in one tick in the order of the messages' keys
    (`kernel.turns`). A key says what a message is to its sender and how many links it has passed, so messages that
    stand for each other have equal keys, and every link of the class serves its messages in the same order, each in
    the same tick. Where two different messages of equal keys come to a link in one tick, rank by rank the order is that
    in which they came, which rank numbers decide: the first such pair ends the folded simulation. What a message
    counts for where it enters a dimension, at ranks on its way, is a step of its way like the others.

    In what cannot be told apart the order does not matter either: messages of one stream and size carry nothing,
    and so do the packets of the direct algorithm; whatever these do in an unknown order counts as unknown.

What is not folded
    Double binary trees and collectives with a root (every rank has another place in them), collectives given as traces, the shared bus,
    remote memory shared by several ranks (they queue in the order of their numbers), networks of single links, and
    jobs in which ranks of one class send over one link on the same step of the same way (all of them to one rank). With
    the reference's ties moreover congestion where a link serves messages of several ranks on their way (rings beyond
    the next neighbour) or where links and neighbours do not correspond one to one. The order of events across ranks has no meaning in a
    folded simulation: who needs it asks for `fold=False`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from studio.distinct import find_distinct
from studio.sim.collectives import Phase
from studio.sim.config import SystemConfig
from studio.sim.fold_groups import GroupMembers
from studio.sim.fold_hops import check_links, is_even, number_hops, number_world_hops
from studio.sim.fold_job import (
    WORLD_GROUP,
    GraphUse,
    Job,
    Neighbourhood,
    Unfoldable,
    iterate_world_offsets,
    list_offsets,
)
from studio.sim.link_classes import LinkClasses, Partition
from studio.trace import Int64

SHARED_TAGS = 500
"""Comm groups whose numbers differ by a multiple of this use the same tags."""
ALL_DIFFER = "no two ranks are equivalent"
MOST_STREAMS = 1_000_000
"""A comm group's streams are numbered in a range of this size."""
MOST_NAMES = 1 << 20
"""Names of members of comm groups and, in checks of tags, comm groups that are told apart."""
MOST_KINDS = 8
MOST_WORK = 1 << 28
"""Neighbours looked at in all before the search for classes is given up."""
MOST_STEPS = 1 << 24
"""Steps of messages over links that are kept to be looked at, 16 bytes each."""
TOO_MANY = "there are too many pairs of ranks to compare"


@dataclass(frozen=True, slots=True)
class Folding:
    """Classes of equivalent ranks, and what the engine needs to know about them.

    R ranks, C classes.

    Attributes:
        class_of: (R,) the class of each rank; classes are numbered in the order of their first ranks.
        representatives: (C,) the first rank of each class.
        kinds: Number of each kind of neighbourhood.
        names: Per comm group that a representative uses, what its members are called: by place, or, where it
            has all ranks, by rank.
        pairs: Per representative that has peers, per slot the name of messages to and from the peer.
        links: (L,) per link record the one that stands for it, where messages of several dimensions share links
            and ties are symmetric.
    """

    class_of: Int64
    representatives: Int64
    kinds: Mapping[Neighbourhood, int]
    names: Mapping[str, Int64]
    pairs: Mapping[int, Mapping[int, tuple[int, int]]]
    links: Int64 | None = None


def fold(job: Job) -> Folding:
    """Return the classes of a job's ranks.

    Raises:
        Unfoldable: The job is not folded; says why.
    """
    _refuse(job)
    search = _Search(job)
    search.refine()
    return search.build_folding()


def _refuse(job: Job) -> None:
    config = job.config
    if config.shared_bus is not None:
        raise Unfoldable("on a shared bus the order of what happens to a rank in one nanosecond matters")
    if config.links is not None:
        raise Unfoldable("in a network of single links every rank has a place of its own")
    if config.congestion == "aware" and not _shares_links(config):
        _refuse_links(config)
    if any(use.streams >= MOST_STREAMS for use in job.uses):
        raise Unfoldable(f"a rank has more than {MOST_STREAMS:,} chunks")


def _shares_links(config: SystemConfig) -> bool:
    """Whether links may serve messages of several ranks, since none of them depends on rank numbers."""
    extensions = config.extensions
    symmetric = extensions is not None and extensions.tie_order == "symmetric"
    return config.congestion == "aware" and symmetric


def _refuse_links(config: SystemConfig) -> None:
    """Refuse congestion-aware networks but those of one dimension as the reference has them."""
    dims = config.topology.dims
    if len(dims) > 1 or dims[0].message_overhead_ns or (dims[0].kind == "ring" and dims[0].size == 2):
        raise Unfoldable("messages of different ranks share links")


@dataclass(slots=True)
class _Search:
    """The partition of a job's ranks that is refined until the ranks of each class behave alike, and what it is refined by.

    Attributes:
        job: The job.
        npus: Its ranks.
        groups: The comm groups that they use.
        ranks: The classes.
        links: The classes of links, where links may serve messages of several ranks.
    """

    job: Job
    npus: int = field(init=False)
    groups: GroupMembers = field(init=False)
    ranks: Partition = field(init=False)
    links: LinkClasses | None = field(init=False)
    world: set[Phase] = field(default_factory=set)
    """Phases of collectives of all ranks that there are."""
    grouped: set[Phase] = field(default_factory=set)
    relations: list[tuple[Int64, Int64]] = field(default_factory=list)
    """Neighbours that do not follow from the dimensions: ranks, and the neighbour of each."""
    group_of: dict[tuple[int, int], Int64] = field(default_factory=dict)
    """Per graph and slot the group of each of the graph's ranks, -1 for the world."""
    peer_of: dict[tuple[int, int], Int64] = field(default_factory=dict)
    back: dict[tuple[int, int], tuple[Int64, Int64]] = field(default_factory=dict)
    """Per graph and slot the first slot with the same peer, and the first slot in which the peer names the rank."""

    def __post_init__(self) -> None:
        topology = self.job.config.topology
        self.npus = topology.npus
        self.ranks = Partition.of(self.npus)
        self.links = LinkClasses(topology) if _shares_links(self.job.config) else None
        self.split(np.arange(self.npus), self.job.graph_of)
        self._split_by_speeds()
        self._find_groups()
        self._find_peers()
        self._check_tags()

    @property
    def class_of(self) -> Int64:
        return self.ranks.class_of

    @property
    def count(self) -> int:
        return self.ranks.count

    @property
    def work(self) -> int:
        return self.ranks.work + (self.links.links.work if self.links is not None else 0)

    def split(self, ranks: Int64, code: Int64) -> bool:
        """Split classes by a number that ranks have; returns whether any came apart."""
        return self.ranks.split(ranks, code)

    def _split_by_speeds(self) -> None:
        extensions = self.job.config.extensions
        speeds = dict(extensions.compute_speeds or {}) if extensions else {}
        if speeds:
            values = np.ones(self.npus)
            for npu, speed in speeds.items():
                if 0 <= npu < self.npus:
                    values[npu] = speed
            self.split(np.arange(self.npus), np.unique(values, return_inverse=True)[1])

    # -------------------------------------------------------------------------------------------
    # Comm groups

    def _find_groups(self) -> None:
        job = self.job
        self._read_groups()
        for (index, slot), group in reversed(self.group_of.items()):
            some = group >= 0
            entry = self.groups.entries(group[some], job.uses[index].ranks[some], self.npus)
            if (entry < 0).any():
                raise Unfoldable("a collective names a comm group that its rank is no member of")
            self.groups.slot[entry] = slot
        for use in job.uses:
            self.world |= use.world.get(WORLD_GROUP, frozenset())
        sizes = np.append(self.groups.size, 0)
        for (index, slot), group in self.group_of.items():
            size = sizes[group]
            self.split(job.uses[index].ranks, size)
            if (size == 0).any() or (size == self.npus).any():
                self.world |= job.uses[index].world[slot]
            if (size[size > 0] < self.npus).any():
                self.grouped |= job.uses[index].grouped[slot]
        for (index, slot), group in self.group_of.items():
            self._relate_group(job.uses[index], slot, group, sizes[group])

    def _read_groups(self) -> None:
        """Find which group each rank names in each slot."""
        used: dict[str, int] = {}
        named: dict[int | str, int] = {}
        for index, use in enumerate(self.job.uses):
            for slot in use.collective_slots:
                column = use.values[slot]
                for value in set(column).difference(named):
                    name = str(value)
                    if self.job.is_world(name, self.job.groups.get(name)):
                        named[value] = WORLD_GROUP
                    elif name in self.job.groups:
                        named[value] = used.setdefault(name, len(used))
                    else:
                        raise Unfoldable("a collective names a comm group that is not known")
                self.group_of[index, slot] = np.array([named[value] for value in column], np.int64)
        self.groups = GroupMembers.of([self.job.groups[name] for name in used], self.npus)

    def _relate_group(self, use: GraphUse, slot: int, group: Int64, size: Int64) -> None:
        """Split by the groups that ranks name in a slot, and note their neighbours there."""
        groups = self.groups
        some = size > 0
        if not some.any():
            return
        ranks, group, size = use.ranks[some], group[some], size[some]
        entry = groups.entries(group, ranks, self.npus)
        self.split(ranks, groups.slot[entry])
        whole = size == self.npus
        if whole.any():
            for phase, far in iterate_world_offsets(self.world):
                peer = Neighbourhood.of(phase).find(far, ranks[whole])
                self.split(ranks[whole], groups.slot[groups.entries(group[whole], peer, self.npus)])
        part = ~whole
        if part.any():
            entry = entry[part]
            self._relate_members(use.grouped[slot], ranks[part], entry, groups.start[group[part]], size[part])

    def _relate_members(
        self, phases: Iterable[Phase], ranks: Int64, entry: Int64, start: Int64, size: Int64
    ) -> None:
        for far, crosswise in list_offsets(phases, int(size.max())):
            if crosswise and (size & (size - 1)).any():
                raise Unfoldable("halving-doubling on a number of ranks that is no power of two")
            some = size > abs(far)
            place = entry[some] - start[some]
            place = place ^ far if crosswise else (place + far) % size[some]
            neighbours = start[some] + place
            self._relate(ranks[some], self.groups.members[neighbours])
            self.split(ranks[some], self.groups.slot[neighbours])

    def _relate(self, ranks: Int64, peers: Int64) -> None:
        """Note who is a neighbour of whom, and split by how far it is."""
        if self.links is not None:
            self._note_way(self.links, ranks, peers)
        else:
            self.split(ranks, number_hops(self.job.config, ranks, peers))
        self.relations.append((ranks, peers))
        if sum(len(of) for of, _ in self.relations) + self.work > MOST_WORK:
            raise Unfoldable(TOO_MANY)

    def _note_way(self, links: LinkClasses, ranks: Int64, peers: Int64) -> None:
        links.add(ranks, peers)
        if links.size > MOST_STEPS:
            raise Unfoldable(TOO_MANY)

    # -------------------------------------------------------------------------------------------
    # Peers of messages

    def _find_peers(self) -> None:
        job = self.job
        for index, use in enumerate(job.uses):
            for slot in use.peer_slots:
                column = use.values[slot]
                if any(isinstance(value, str) for value in column):
                    raise Unfoldable("a message has a peer that is no rank")
                peer = np.array(column, np.int64)
                if (peer < 0).any() or (peer >= self.npus).any() or (peer == use.ranks).any():
                    raise Unfoldable("a message has a peer that is no other rank")
                self.peer_of[index, slot] = peer
        if not self.peer_of:
            return
        keys, slots = self._find_first_slots()

        def lookup(rank: Int64, peer: Int64) -> Int64:
            position = np.minimum(np.searchsorted(keys, rank * self.npus + peer), len(keys) - 1)
            slot_there: Int64 = np.where(keys[position] == rank * self.npus + peer, slots[position], -1)
            return slot_there

        for (index, slot), peer in self.peer_of.items():
            ranks = job.uses[index].ranks
            own, other = lookup(ranks, peer), lookup(peer, ranks)
            self.back[index, slot] = own, other
            self.split(ranks, own)
            self.split(ranks, other)
            self._relate(ranks, peer)

    def _find_first_slots(self) -> tuple[Int64, Int64]:
        """Return rank × ranks + peer of all peers, sorted, and the first slot that names each."""
        uses = self.job.uses
        keys = np.concatenate(
            [uses[index].ranks * self.npus + peer for (index, _), peer in self.peer_of.items()]
        )
        slots = np.concatenate([np.full(len(peer), slot) for (_, slot), peer in self.peer_of.items()])
        order = np.lexsort((slots, keys))
        keys, slots = keys[order], slots[order]
        first = np.ones(len(keys), np.bool_)
        first[1:] = keys[1:] != keys[:-1]
        return keys[first], slots[first]

    def _check_tags(self) -> None:
        """Refuse jobs in which two ranks share two groups whose streams have equal tags."""
        if self.job.number_of is None:
            return
        numbers = [self.job.number_of(self.job.groups[name]) for name in self.groups.names]
        tag_of = np.array([*numbers, 0], np.int64) % SHARED_TAGS
        shared = [np.zeros(0, np.int64)]
        for index, use in enumerate(self.job.uses):
            columns = [np.full(len(use.ranks), WORLD_GROUP)] if WORLD_GROUP in use.world else []
            columns += [self.group_of[index, slot] for slot in use.collective_slots]
            for column, other in combinations(columns, 2):
                same = (column != other) & (tag_of[column] == tag_of[other])
                low, high = np.minimum(column[same], other[same]), np.maximum(column[same], other[same])
                # A rank that names the two in several slots counts once.
                shared.append(find_distinct((use.ranks[same] * MOST_NAMES + low + 1) * MOST_NAMES + high))
        pairs = find_distinct(np.concatenate(shared)) % MOST_NAMES**2
        if len(pairs) and np.unique(pairs, return_counts=True)[1].max() > 1:
            raise Unfoldable(f"comm groups whose numbers differ by {SHARED_TAGS} share their tags")

    # -------------------------------------------------------------------------------------------
    # Refinement

    def refine(self) -> None:
        """Split classes until neighbours of equivalent ranks are equivalent."""
        world = list(iterate_world_offsets(self.world))
        self._split_by_hops(world)
        settled = False
        while not settled and self.count < self.npus:
            settled = not self._split_by_neighbours(world)
            if self.links is not None:
                settled &= not self.links.refine(self.ranks)
            if self.work > MOST_WORK:
                raise Unfoldable(TOO_MANY)
        if self.count == self.npus:
            raise Unfoldable(ALL_DIFFER)
        if self.links is not None and not self.links.is_one_to_one(self.ranks):
            raise Unfoldable("messages of equivalent ranks meet on a link")

    def _split_by_hops(self, world: Sequence[tuple[Phase, int]]) -> None:
        """Split classes by how far neighbours in dimensions are, or note over which links they are reached."""
        config, ranks = self.job.config, np.arange(self.npus)
        fixed = {dim.size for dim in config.topology.dims}
        if self.links is None and config.congestion == "aware":
            check_links(config, world)
        for phase, far in world:
            if self.links is not None:
                self._note_way(self.links, ranks, Neighbourhood.of(phase).find(far, ranks))
            elif config.congestion == "aware" or not is_even(config, phase, fixed):
                self.split(ranks, number_world_hops(config, phase, far, ranks))

    def _split_by_neighbours(self, world: Sequence[tuple[Phase, int]]) -> bool:
        """Split classes by the classes of their neighbours; returns whether any came apart."""
        if self.count == 1:
            return False
        count, ranks = self.count, np.arange(self.npus)
        for phase, far in world:
            self.split(ranks, self.class_of[Neighbourhood.of(phase).find(far, ranks)])
        for of, peers in self.relations:
            self.split(of, self.class_of[peers])
        return self.count > count

    # -------------------------------------------------------------------------------------------
    # The outcome

    def build_folding(self) -> Folding:
        """Return the current classes."""
        first = np.unique(self.class_of, return_index=True)[1]
        order = np.argsort(first)
        rank_of = np.empty(self.count, np.int64)
        rank_of[order] = np.arange(self.count)
        self.ranks.class_of = rank_of[self.class_of]
        representatives = first[order]
        kinds = {Neighbourhood.of(phase): 0 for phase in sorted(self.world | self.grouped, key=repr)}
        if len(kinds) > MOST_KINDS:
            raise Unfoldable(f"there are more than {MOST_KINDS} kinds of neighbourhoods")
        numbers = {where: index for index, where in enumerate(kinds)}
        return Folding(
            self.class_of,
            representatives,
            numbers,
            self._name_groups(representatives),
            self._number_pairs(representatives),
            self.links.stand_ins() if self.links is not None else None,
        )

    def _list_used_groups(self, representatives: Int64) -> list[int]:
        """Return the groups that representatives use."""
        used: set[int] = set()
        for (index, _), group in self.group_of.items():
            used |= set(group[np.isin(self.job.uses[index].ranks, representatives)].tolist())
        return sorted(used - {WORLD_GROUP})

    def _name_groups(self, representatives: Int64) -> dict[str, Int64]:
        groups, used = self.groups, self._list_used_groups(representatives)
        parts = [slice(int(groups.start[g]), int(groups.start[g] + groups.size[g])) for g in used]
        if not parts:
            return {}
        both = np.concatenate([self.class_of[groups.members[p]] << 32 | groups.slot[p] + 1 for p in parts])
        distinct, code = np.unique(both, return_inverse=True)
        # Classes themselves are the names in the world.
        code = code.reshape(-1) + self.count
        if self.count + len(distinct) > MOST_NAMES:
            raise Unfoldable("there are too many kinds of members of comm groups")
        by_name, start = {}, 0
        for group, part in zip(used, parts, strict=True):
            size = int(groups.size[group])
            names = code[start : start + size]
            start += size
            if size == self.npus:
                by_rank = np.empty(size, np.int64)
                by_rank[groups.members[part]] = names
                names = by_rank
            by_name[groups.names[group]] = names
        return by_name

    def _number_pairs(self, representatives: Int64) -> dict[int, dict[int, tuple[int, int]]]:
        known: dict[tuple[int, ...], int] = {}
        pairs: dict[int, dict[int, tuple[int, int]]] = {}
        for (index, slot), peer in self.peer_of.items():
            ranks = self.job.uses[index].ranks
            own, other = self.back[index, slot]
            for i in np.flatnonzero(np.isin(ranks, representatives)).tolist():
                own_end = int(self.class_of[ranks[i]]), int(own[i])
                peer_end = int(self.class_of[peer[i]]), int(other[i])
                out = known.setdefault((*own_end, *peer_end), 1 + len(known))
                back = known.setdefault((*peer_end, *own_end), 1 + len(known))
                pairs.setdefault(int(ranks[i]), {})[slot] = out, back
        return pairs


def expand_links(folding: Folding, config: SystemConfig, links: Any) -> Any:
    """Expand the figures of the representatives' links to all links.

    Args:
        folding: The classes.
        config: The system; its network is congestion-aware.
        links: (L, ...) a row per link, in the order of their records.
    """
    if folding.links is not None:
        return links[folding.links]
    dim, stand_in = config.topology.dims[0], folding.representatives[folding.class_of]
    count = dim.size
    if dim.kind != "fully_connected":
        return links[np.concatenate([stand_in, count + stand_in])]
    ranks = np.arange(count)
    far = (ranks[None, :] - ranks[:, None]) % count
    other = (stand_in[:, None] + far) % count
    if any(where.crosswise for where in folding.kinds):
        other = stand_in[:, None] ^ ranks[:, None] ^ ranks[None, :]
    whole = stand_in[:, None] * count + np.minimum(other, count - 1)
    return links[whole.reshape(-1)]
