"""Pair sends with their receives, by channels: ranks that share graphs send and receive the same on many of them.

A channel is a source and a target that sends or receives name. What passes over it follows from the graphs of the ranks
whose nodes name it, and from which of their nodes do. So it is matched once for all channels of which that is the same:
a job of 16,384 ranks has hundreds of millions of messages, and a few hundred different channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.analysis.collectives.matching import compute_issue_order
from studio.analysis.graph.neighbours import concatenate_ranges
from studio.analysis.job.renumbered import share_graphs
from studio.analysis.numbering import number_by_first
from studio.columns import join_ranges
from studio.trace import NONE, Bool, Graph, Int64, NodeType, Trace, read_int_column


@dataclass(frozen=True, slots=True)
class Messages:
    """Sends and receives of all ranks, paired.

    M messages. Rank -1 and row -1 stand for the half that is missing.

    Attributes:
        source, target: (M,) rank numbers; -1 where a send does not say where to, or a receive not where from.
        tag, bytes: (M,) what both halves have to agree on besides.
        send_rank, send_row: (M,) index into the trace's ranks and row of the rank's graph.
        receive_rank, receive_row: (M,) likewise.
    """

    source: Int64
    target: Int64
    tag: Int64
    bytes: Int64
    send_rank: Int64
    send_row: Int64
    receive_rank: Int64
    receive_row: Int64

    def __len__(self) -> int:
        return len(self.source)

    @property
    def known(self) -> Bool:
        """(M,) whether both ends are recorded; others cannot be paired."""
        return np.asarray((self.source != NONE) & (self.target != NONE))


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """Who sends to whom, and what passes there.

    C channels in the order of source and target; E exchanges, of which each is all that passes over the channels that have
    it; L messages of all exchanges together.

    Attributes:
        source, target: (C,) rank numbers; -1 where a send does not say where to, or a receive not where from.
        exchange: (C,) the exchange of each.
        parties: Indices into the trace's ranks, channel after channel: the rank of each way in which nodes name the channel.
        party_offsets: (C + 1,) where those of each channel begin.
        offsets: (E + 1,) where the messages of each exchange begin.
        tag, bytes: (L,) what both halves agree on.
        sender, receiver: (L,) which party of the channel sends and receives; -1 for a half that is missing.
        send_row, receive_row: (L,) rows of their graphs.
    """

    source: Int64
    target: Int64
    exchange: Int64
    parties: Int64
    party_offsets: Int64
    offsets: Int64
    tag: Int64
    bytes: Int64
    sender: Int64
    send_row: Int64
    receiver: Int64
    receive_row: Int64

    def __len__(self) -> int:
        return len(self.source)

    @property
    def messages(self) -> Int64:
        """(C,) how many messages pass over each."""
        lengths: Int64 = np.diff(self.offsets)[self.exchange]
        return lengths

    def expand(self, chosen: Int64 | None = None) -> Messages:
        """Return the messages of some channels, in the order of source, target, tag and size; None takes all."""
        chosen = np.arange(len(self)) if chosen is None else chosen
        exchange = self.exchange[chosen]
        lengths = np.diff(self.offsets)[exchange]
        channel = np.repeat(chosen, lengths)
        at = concatenate_ranges(self.offsets, exchange)
        first = self.party_offsets[channel]
        ranks = [
            np.where(party == NONE, NONE, self.parties[first + np.maximum(party, 0)])
            for party in (self.sender[at], self.receiver[at])
        ]
        return Messages(
            self.source[channel],
            self.target[channel],
            self.tag[at],
            self.bytes[at],
            ranks[0],
            self.send_row[at],
            ranks[1],
            self.receive_row[at],
        )

    def alike(self, of_rank: Int64, besides: Int64 | None = None) -> tuple[Int64, Int64]:
        """Return channels that stand for all, rising, and (C,) which of them stands for each.

        Channels are alike that have the same exchange between parties that are the same.

        Args:
            of_rank: (R,) a number for each rank of the trace; those with equal ones are the same.
            besides: (C,) a number that has to be the same, too.
        """
        code = np.zeros(len(self), np.int64) if besides is None else besides
        number = np.unique(of_rank, return_inverse=True)[1].reshape(-1)
        code = _number_lists(number[self.parties], self.party_offsets, code)
        which, first = number_by_first(code * len(self.offsets) + self.exchange)
        return first, which

    def doubtful(self, numbers: Sequence[int]) -> Int64:
        """Return the channels of which a message lacks a half, or names a wrong rank or none.

        Args:
            numbers: The numbers of the trace's ranks.
        """
        if not len(self):
            return np.zeros(0, np.int64)
        ends = []
        for party in (self.sender, self.receiver):
            # The one party that is this end of all messages of an exchange; NONE where there are several, or a half is missing.
            least, most = (
                np.minimum.reduceat(party, self.offsets[:-1]),
                np.maximum.reduceat(party, self.offsets[:-1]),
            )
            ends.append(np.where(least == most, least, NONE)[self.exchange])
        fine = (self.source != NONE) & (self.target != NONE) & (self.source != self.target)
        own = np.array(numbers, np.int64)[self.parties]
        for end, named in zip(ends, (self.source, self.target), strict=True):
            fine &= (end != NONE) & (own[self.party_offsets[:-1] + np.maximum(end, 0)] == named)
        return np.flatnonzero(~fine)


def match_messages(trace: Trace) -> Messages:
    """Pair sends with receives: equal source, target, tag and size, the n-th of one rank with the n-th of the other.

    Those that are numbered (`comm_turn`), as the recordings of two ranks begin apart, are paired by number.
    """
    return match_channels(trace).expand()


def match_channels(trace: Trace) -> Channels:
    """Pair sends with receives, as `match_messages` does, once for all channels that have the same."""
    trace = share_graphs(trace)
    ways = _list_ways(trace)
    nothing = np.zeros(0, np.int64)
    if not ways:
        start = np.zeros(1, np.int64)
        return Channels(nothing, nothing, nothing, nothing, start, start, *(nothing for _ in range(6)))
    firsts = np.cumsum([0, *(way.ways for way in ways)])
    source, target, kind, party = (
        np.concatenate(column)
        for column in zip(
            *(
                _name_channels(trace, way, first)
                for way, first in zip(ways, firsts[:-1].tolist(), strict=True)
            ),
            strict=True,
        )
    )
    order = np.lexsort((target, source))
    source, target, kind, party = source[order], target[order], kind[order], party[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    first = np.flatnonzero(begins)
    bounds = np.append(first, len(order))
    shown, exchange = _number_exchanges(kind, bounds)
    return Channels(source[first], target[first], exchange, party, bounds, *_match(ways, kind, bounds, shown))


@dataclass(frozen=True, slots=True)
class _Ways:
    """The sends and receives of a graph by the way in which they name a channel.

    N of them in order of issue.

    Attributes:
        graph: The graph.
        using: Places of the ranks that run it.
        ways: How many ways there are.
        first: (ways,) which of the N is the first that names its channel so.
        way: (N,) the way of each.
        rows, tag, size, turn, place: (N,) rows, tags, sizes, numbers (0 for none), and places in the order of issue.
        receives: (N,) whether it is a receive.
    """

    graph: Graph
    using: list[int]
    ways: int
    first: Int64
    way: Int64
    rows: Int64
    tag: Int64
    size: Int64
    turn: Int64
    place: Int64
    receives: Bool


def _list_ways(trace: Trace) -> list[_Ways]:
    """Return the sends and receives of each graph that has any."""
    using: dict[int, list[int]] = {}
    for at, rank in enumerate(trace.ranks):
        using.setdefault(rank.graph, []).append(at)
    ways = []
    for index, ranks in sorted(using.items()):
        graph = trace.graphs[index]
        rows = np.flatnonzero((graph.type == NodeType.COMM_SEND) | (graph.type == NodeType.COMM_RECV))
        if not len(rows):
            continue
        place = compute_issue_order(graph)[rows]
        order = np.argsort(place)
        rows = rows[order]
        receives = graph.type[rows] == NodeType.COMM_RECV
        code = receives.astype(np.int64)
        for key in ("comm_src", "comm_dst"):
            named, value, bound = (column[rows] for column in _read_naming(graph, key))
            number = np.unique(np.where(named, value, 0), return_inverse=True)[1].reshape(-1)
            part = np.where(named, 1 + 2 * number + bound, 0)
            code = np.unique(code * (int(part.max()) + 1) + part, return_inverse=True)[1].reshape(-1)
        first = np.unique(code, return_index=True)[1]
        tag, size, turn = (_read_dense(graph, key, rows) for key in ("comm_tag", "comm_size", "comm_turn"))
        ways.append(
            _Ways(
                graph,
                ranks,
                len(first),
                first,
                code,
                rows,
                tag,
                size,
                turn,
                place[order],
                np.asarray(receives),
            )
        )
    return ways


def _name_channels(trace: Trace, way: _Ways, number: int) -> tuple[Int64, Int64, Int64, Int64]:
    """Return source, target, number of the way, and place of the rank, of each way of each rank that runs a graph."""
    rows, receives = way.rows[way.first], way.receives[way.first]
    own = np.array([trace.ranks[place].number for place in way.using], np.int64)[:, None]
    slots = _read_slot_numbers(trace, way.using, len(way.graph.slot_key))
    # What is left out is the own rank on the own side, and not known on the other.
    source = _read_peers(way.graph, "comm_src", rows, np.where(receives, NONE, own), slots)
    target = _read_peers(way.graph, "comm_dst", rows, np.where(receives, own, NONE), slots)
    kind = np.tile(number + np.arange(way.ways), len(way.using))
    party = np.repeat(np.array(way.using, np.int64), way.ways)
    return source.reshape(-1), target.reshape(-1), kind, party


def _number_exchanges(kind: Int64, bounds: Int64) -> tuple[Int64, Int64]:
    """Return for each exchange the first channel that has it, and (C,) the exchange of each channel.

    Args:
        kind: The ways in which each channel is named, channel after channel.
        bounds: (C + 1,) where those of each begin.
    """
    code = _number_lists(kind, bounds, np.zeros(len(bounds) - 1, np.int64))
    shown, exchange = np.unique(code, return_index=True, return_inverse=True)[1:]
    return shown, exchange.reshape(-1)


def _number_lists(values: Int64, bounds: Int64, code: Int64) -> Int64:
    """Return (C,) a number for each list, the same of equal lists that had the same number before.

    Args:
        values: The items of all lists, one after the other; none is negative.
        bounds: (C + 1,) where those of each list begin.
        code: (C,) the numbers before.
    """
    counts, base = np.diff(bounds), int(values.max(initial=0)) + 2
    for turn in range(int(counts.max(initial=0))):
        more = counts > turn
        # 0 stands for no further item.
        item = np.where(more, values[np.where(more, bounds[:-1] + turn, 0)] + 1, 0)
        code = np.unique(code * base + item, return_inverse=True)[1].reshape(-1)
    return code


def _match(
    ways: Sequence[_Ways], kind: Int64, bounds: Int64, shown: Int64
) -> tuple[Int64, Int64, Int64, Int64, Int64, Int64, Int64]:
    """Match the halves of each exchange; returns what `Channels` has of them from `offsets` on.

    Args:
        ways: The sends and receives of each graph.
        kind: The ways in which each channel is named, channel after channel.
        bounds: Where those of each channel begin.
        shown: For each exchange a channel that has it.
    """
    exchange, party, halves = _list_halves(ways, kind, bounds, shown)
    tag, size, turn, row, place = halves[:, :5].T
    receives = halves[:, 5] > 0
    # Numbers of tags and sizes are in their order, and small.
    tags, tag = np.unique(tag, return_inverse=True)
    sizes, size = np.unique(size, return_inverse=True)
    key = (exchange, tag.reshape(-1), size.reshape(-1), turn)
    order = _sort_entries((*key, receives), place)
    starts = np.ones(len(order), np.bool_)
    starts[1:] = False
    for column in key:
        sorted_ = column[order]
        starts[1:] |= sorted_[1:] != sorted_[:-1]
    # Within a key sends come first, then receives: the n-th of each has the same number.
    received = receives[order]
    side = starts.copy()
    side[1:] |= received[1:] != received[:-1]
    begin = np.flatnonzero(side)
    nth = np.arange(len(order)) - np.repeat(begin, np.diff(begin, append=len(order)))
    first = np.flatnonzero(starts)
    counts = np.maximum.reduceat(nth, first) + 1
    number = nth + np.repeat(np.cumsum(counts) - counts, np.diff(first, append=len(order)))
    table = np.full((7, int(counts.sum())), NONE, np.int64)
    for index, values in enumerate((exchange, tags[key[1]], sizes[key[2]])):
        table[index, number] = values[order]
    for at, half in ((3, ~received), (5, received)):
        entries, numbers = order[half], number[half]
        table[at, numbers] = party[entries]
        table[at + 1, numbers] = row[entries]
    offsets = np.searchsorted(table[0], np.arange(len(shown) + 1))
    return offsets, table[1], table[2], table[3], table[4], table[5], table[6]


def _list_halves(
    ways: Sequence[_Ways], kind: Int64, bounds: Int64, shown: Int64
) -> tuple[Int64, Int64, Int64]:
    """Return exchange, party, and (H, 6) tag, size, turn, row, place and side of the halves of all exchanges."""
    tables = []
    for way in ways:
        columns = np.column_stack([way.tag, way.size, way.turn, way.rows, way.place, way.receives])
        tables.append(columns[np.argsort(way.way, kind="stable")])
    of_way = np.concatenate([np.bincount(way.way, minlength=way.ways) for way in ways])
    starts = np.append(0, np.cumsum(of_way))
    counts = np.diff(bounds)[shown]
    exchange = np.repeat(np.arange(len(shown)), counts)
    party = join_ranges(0, counts)
    chosen = kind[bounds[shown][exchange] + party]
    lengths = of_way[chosen]
    at = concatenate_ranges(starts, chosen)
    return np.repeat(exchange, lengths), np.repeat(party, lengths), np.concatenate(tables)[at]


def _sort_entries(columns: Sequence[Any], place: Int64) -> Int64:
    """Return (M,) the order of M entries by several columns, and by their place where these are equal."""
    code, most = np.zeros(len(place), np.int64), 1
    for column in columns:
        low = int(column.min())
        span = int(column.max()) - low + 1
        if span * most > _MOST_CODES:
            # Too much for one number.
            return np.lexsort((place, *reversed(columns)))
        code *= span
        code += column
        code -= low
        most *= span
    return np.lexsort((place, code))


_MOST_CODES = 1 << 62


def _read_slot_numbers(trace: Trace, using: list[int], slots: int) -> Int64:
    """Return (ranks, slots) the slots' values, texts as 0."""
    # As 64 bits, which is how graphs hold numbers: unsigned ones may be too large for a signed integer.
    bits = (1 << 64) - 1
    table = [
        [value & bits if isinstance(value, int) else 0 for value in trace.ranks[at].slots] for at in using
    ]
    return np.array(table, np.uint64).view(np.int64).reshape(len(using), slots)


def _read_naming(graph: Graph, key: str) -> tuple[Bool, Int64, Bool]:
    """Return (N,) whether nodes have an attribute, its number or that of the slot that holds it, and whether one does."""
    owners, where = graph.rows_with(key)
    named, bound = np.zeros((2, len(graph)), np.bool_)
    value = np.zeros(len(graph), np.int64)
    named[owners], value[owners], bound[owners] = True, graph.attrs.value[where], graph.attrs.slot[where]
    return named, value, bound


def _read_peers(graph: Graph, key: str, rows: Int64, default: Int64, slots: Int64) -> Int64:
    """Return (ranks, rows) the rank an attribute names, that of `default` (ranks, rows) where it names none."""
    named, value, bound = (column[rows] for column in _read_naming(graph, key))
    fixed = np.where(named, value, default)
    if not bound.any():
        return fixed
    return np.where(bound, slots[:, np.where(bound, value, 0)], fixed)


def _read_dense(graph: Graph, key: str, rows: Int64) -> Int64:
    column = np.zeros(len(graph), np.int64)
    owners, values = read_int_column(graph, key)
    column[owners] = values
    return column[rows]
