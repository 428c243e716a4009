"""Find classes of equivalent links, and ranks that what happens on links tells apart.

What a rank sends at a distance, in a dimension or comm group or to a peer, passes links one after the other: these are
its ways. Links of one class get, on each step of each way, messages from ranks of the same classes, as many; and ranks of
one class send over links of the same classes. Why a link of each class is then enough stands in `studio.sim.folding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from studio.distinct import find_distinct
from studio.sim.config import Dimension, Topology
from studio.sim.links import compute_first_records
from studio.trace import Int64


@dataclass(slots=True)
class Partition:
    """Classes of things numbered from 0.

    T things, C classes.

    Attributes:
        class_of: (T,) the class of each.
        count: C.
        sizes: (C,) how many are in each.
        work: Things looked at so far.
    """

    class_of: Int64
    count: int
    sizes: Int64
    work: int = 0

    @staticmethod
    def of(size: int) -> Partition:
        """Return the partition of things that nothing tells apart."""
        return Partition(np.zeros(size, np.int64), 1, np.array([size], np.int64))

    def split(self, things: Int64, code: Int64) -> bool:
        """Split classes by a number that things have; returns whether any came apart.

        Things that are not listed have a number of their own, all the same; none is listed twice.
        """
        self.work += len(things) + self.count
        of = self.class_of[things]
        first = np.zeros(self.count, np.int64)
        first[of] = code
        listed = np.bincount(of, minlength=self.count)
        if (first[of] == code).all() and ((listed == 0) | (listed == self.sizes)).all():
            return False
        self.work += len(self.class_of)
        whole = np.zeros(len(self.class_of), np.int64)
        whole[things] = code - code.min(initial=0) + 1
        both = self.class_of * (int(whole.max()) + 1) + whole
        distinct, self.class_of = np.unique(both, return_inverse=True)
        self.count = len(distinct)
        self.sizes = np.bincount(self.class_of, minlength=self.count)
        return True


@dataclass(frozen=True, slots=True)
class Step:
    """Where messages that are the same to their senders are at a step of their way.

    S senders.

    Attributes:
        senders: (S,) ranks.
        places: (S,) links they pass, or NPUs at which they enter a dimension.
        single: Whether no place has two senders.
    """

    senders: Int64
    places: Int64
    single: bool

    @staticmethod
    def of(senders: Int64, places: Int64) -> Step:
        """Return a step."""
        return Step(senders, places, len(find_distinct(places)) == len(places))

    def split_places(self, partition: Partition, of: Int64) -> None:
        """Split places by the classes of their senders."""
        if self.single:
            partition.split(self.places, of[self.senders])
            return
        code = of[self.senders]
        order = np.lexsort((code, self.places))
        places, code = self.places[order], code[order]
        turn = np.arange(len(places)) - np.searchsorted(places, places)
        for index in range(int(turn.max()) + 1):
            partition.split(places[turn == index], code[turn == index])

    def is_one_to_one(self, of: Int64) -> bool:
        """Whether no place has two senders of a class."""
        if self.single:
            return True
        both = self.places * (int(of.max()) + 1) + of[self.senders]
        return len(find_distinct(both)) == len(both)


@dataclass(slots=True)
class LinkClasses:
    """The links of a network of dimensions, by their records, in classes.

    Attributes:
        topology: The network.
        links: The classes.
        over: Steps of ways over links.
        at: Steps at which messages enter a dimension.
        size: Senders of all steps together.
    """

    topology: Topology
    links: Partition = field(init=False)
    over: list[Step] = field(default_factory=list)
    at: list[Step] = field(default_factory=list)
    size: int = 0

    def __post_init__(self) -> None:
        """Tell links apart by their dimension, and whether they lead up or down."""
        *firsts, count = compute_first_records(self.topology)
        self.links = Partition.of(count)
        kind = np.zeros(count, np.int64)
        for dim, first in zip(self.topology.dims, firsts, strict=True):
            kind[first:] += 1
            if dim.kind != "fully_connected":
                kind[first + self.topology.npus :] += 1
        self.links.split(np.arange(count), kind)

    def add(self, senders: Int64, targets: Int64) -> None:
        """Note the way from ranks to ranks that have one and the same relation to them."""
        for some, links in iterate_ways(self.topology, senders, targets):
            self.over.append(Step.of(senders[some], links))
            self.size += len(links)
        for some, corners in iterate_entries(self.topology, senders, targets):
            self.at.append(Step.of(senders[some], corners))
            self.size += len(corners)

    def refine(self, ranks: Partition) -> bool:
        """Split links by the ranks whose messages they get, and ranks by the links; returns whether any rank came apart."""
        count = ranks.count
        for step in self.over:
            step.split_places(self.links, ranks.class_of)
        for step in self.at:
            step.split_places(ranks, ranks.class_of)
            ranks.split(step.senders, ranks.class_of[step.places])
        for step in self.over:
            ranks.split(step.senders, self.links.class_of[step.places])
        return ranks.count > count

    def is_one_to_one(self, ranks: Partition) -> bool:
        """Whether a link has messages of one rank of a class at most, on each step of each way."""
        return all(step.is_one_to_one(ranks.class_of) for step in (*self.over, *self.at))

    def stand_ins(self) -> Int64:
        """Return (L,) per record that of the first link of its class."""
        first = np.unique(self.links.class_of, return_index=True)[1]
        records: Int64 = first[self.links.class_of]
        return records


@dataclass(frozen=True, slots=True)
class _Crossing:
    """Messages in a dimension.

    M messages that cross it.

    Attributes:
        dim, stride: The dimension, and how far apart its neighbours are in rank numbers.
        which: (M,) which messages.
        at: (M,) NPUs at which they enter.
        before, behind: (M,) their coordinates before and behind it.
    """

    dim: Dimension
    stride: int
    which: Int64
    at: Int64
    before: Int64
    behind: Int64


def _list_crossings(topology: Topology, senders: Int64, targets: Int64) -> list[_Crossing]:
    """Return what crosses each dimension, the lowest first."""
    crossings, at, stride = [], senders, 1
    for dim in topology.dims:
        source, target = at // stride % dim.size, targets // stride % dim.size
        which = np.flatnonzero(source != target)
        crossings.append(_Crossing(dim, stride, which, at[which], source[which], target[which]))
        at = at + (target - source) * stride
        stride *= dim.size
    return crossings


def iterate_entries(topology: Topology, senders: Int64, targets: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Yield which messages enter each dimension, and at which NPUs."""
    for crossing in _list_crossings(topology, senders, targets):
        if len(crossing.which):
            yield crossing.which, crossing.at


def iterate_ways(topology: Topology, senders: Int64, targets: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Yield which messages take each step, and the records of the links they pass, as `kernel.links.find_next_link` does.

    Example:
        >>> network = Topology((Dimension("ring", 4, 50.0), Dimension("switch", 2, 50.0)))
        >>> [links.tolist() for _, links in iterate_ways(network, np.array([0, 1]), np.array([2, 4]))]
        [[0, 9], [1], [16], [28]]
    """
    npus = topology.npus
    for crossing, first in zip(
        _list_crossings(topology, senders, targets), compute_first_records(topology), strict=False
    ):
        if not len(crossing.which):
            continue
        if crossing.dim.kind == "ring":
            for some, links in _iterate_ring_steps(crossing, npus):
                yield some, first + links
        elif crossing.dim.kind == "fully_connected":
            yield crossing.which, first + crossing.at * crossing.dim.size + crossing.behind
        else:
            yield crossing.which, first + crossing.at
            down = crossing.at + (crossing.behind - crossing.before) * crossing.stride
            yield crossing.which, first + npus + down


def _iterate_ring_steps(crossing: _Crossing, npus: int) -> Iterator[tuple[Int64, Int64]]:
    """Yield the steps around a ring, the shorter way."""
    size, here = crossing.dim.size, crossing.before
    up = (crossing.behind - here) % size
    rises = 2 * up <= size
    length = np.where(rises, up, size - up)
    line = crossing.at - here * crossing.stride
    for step in range(int(length.max())):
        some = np.flatnonzero(length > step)
        rising = rises[some]
        place = (here[some] + np.where(rising, step, -step)) % size
        yield crossing.which[some], np.where(rising, 0, npus) + line[some] + place * crossing.stride
