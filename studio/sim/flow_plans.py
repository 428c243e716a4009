"""Find the flows of a job: its collectives and messages on a system with a cost model.

Each collective of a comm group, and each message, is a *flow*: when the last of those it waits for has come, a fixed
time passes, then its bytes move, and all members end together. A collective waits for all of its members; a message for
its sender, with the rendezvous protocol for the receiver too. `studio.sim.charges` says what they cost.

What is modelled of the rest:

- Members may bring different sizes to an all-to-all, all-gather, gather and scatter; the largest one counts. Other
  collectives of which members bring different sizes never begin, as those of different kinds.
- Each member is charged what the busiest one sends, of collectives with a root too, and all end together.
- A collective of one rank moves nothing and takes 1 ns, the shortest time there is; a barrier takes its fixed time.
- The collectives of a comm group are carried out one after the other on every rank: by their numbers, where all members
  have them, of recorded jobs in the order of issue, and else in turn (`studio.sim.kernel.group_turns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from studio.analysis.collectives.matching import Collectives, GroupMatching, match_collectives
from studio.analysis.collectives.messages import Channels, match_channels
from studio.analysis.graph.neighbours import concatenate_ranges
from studio.analysis.job.renumbered import share_graphs
from studio.columns import join_columns
from studio.distinct import find_distinct
from studio.errors import ConfigError, TraceError
from studio.sim.charges import (
    FLOW_KINDS,
    SEND_RECV,
    UNKNOWN,
    Costs,
    Float64,
    build_group_shape,
    find_crossed_dimensions,
)
from studio.sim.collectives import EXTENDED_KIND_OF
from studio.sim.config import SystemConfig
from studio.sim.costs import GroupShape
from studio.sim.known import Known, can_share
from studio.sim.matched import matches_by_number
from studio.sim.unrecorded import explain_incomplete_group, format_first_ranks
from studio.trace import NONE, UNEVEN_TYPES, WORLD, Bool, CommGroup, Int32, Int64, Trace

Int8 = npt.NDArray[np.int8]

BOTH, SENDS, RECEIVES = range(3)
"""What a member does: all of a collective's send and receive."""
NEVER = 1 << 40
"""More members than there are: what waits for them never begins."""
_MOST_CODES = 1 << 62


@dataclass(frozen=True, slots=True)
class Flows:
    """Collectives and messages of a job, what each takes alone, and what it puts on the ports.

    M flows, P members of all flows together, D dimensions of the network.

    Attributes:
        kind: (M,) index into `FLOW_KINDS`.
        size: (M,) bytes, as the largest member has them.
        ranks: (M,) members of its group; 2 of a message.
        turn: (M,) a number of those that are carried out one at a time, in no given order; -1 of others.
        waits_for: (M,) how many members have to come before it begins; `NEVER` if their collectives differ.
        total_ns: (M,) time from then on, alone on the network.
        fixed_ns: (M,) the part of it before bytes move.
        moved: (M, D) bytes that each member sends into each dimension.
        share: (M, D) what that takes of a member's port; nothing inside nodes of pairs with links of their own.
        share_of_node: (M, D) what it takes of the node's port, per member.
        share_of_link: (M,) what it takes of each link between two members in a node; 0 where these are not known.
        choice: (M,) index into `choices`, -1 where nothing was to be chosen.
        choices: Names of algorithms and protocols.
        extrapolated: (M,) whether it lies outside of what the cost model was fitted to.
        flow: (P,) the flow.
        place: (P,) place of the member in the trace's ranks.
        row: (P,) its node there.
        role: (P,) whether it sends, receives or does both.
        counts: (P,) whether the flow waits for it.
    """

    kind: Int64
    size: Int64
    ranks: Int64
    turn: Int64
    waits_for: Int64
    total_ns: Int64
    fixed_ns: Int64
    moved: Float64
    share: Int64
    share_of_node: Int64
    share_of_link: Int64
    choice: Int64
    choices: tuple[str, ...]
    extrapolated: Bool
    flow: Int32
    place: Int32
    row: Int32
    role: Int8
    counts: Bool

    def __len__(self) -> int:
        """Return how many flows there are."""
        return len(self.kind)

    def sent(self, ranks: int) -> Float64:
        """Return (R, D) bytes that each rank sends into each dimension."""
        return self._sum_by_rank(self.moved, ranks)

    def sendings(self, ranks: int) -> Int64:
        """Return (R, D) collectives and messages of which each rank sends bytes into each dimension."""
        return self._sum_by_rank((self.moved > 0).astype(np.float64), ranks).astype(np.int64)

    def _sum_by_rank(self, values: Float64, ranks: int) -> Float64:
        sends = self.role != RECEIVES
        place, flow = self.place[sends], self.flow[sends]
        columns = [np.bincount(place, column[flow], minlength=ranks) for column in values.T]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True)
class Expansion:
    """Flows one by one, before they are charged: the columns of `Flows` that cost nothing.

    Attributes:
        case: (M,) index into the cases of the bundles.
        turn: (M,) as in `Flows`.
        waits_for: (M,) as in `Flows`, and so are the columns of members.
    """

    case: Int64
    turn: Int64
    waits_for: Int64
    flow: Int32
    place: Int32
    row: Int32
    role: Int8
    counts: Bool


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """The flows of a job by who takes part: a bundle is all collectives of a comm group, or all messages from one rank to another.

    Bundles of one sort have the same flows, one by one, between ranks that lie alike. B bundles, S sorts, K cases of flows,
    Q members of all bundles, T parts: all that a member does in its bundle.

    Attributes:
        sort: (B,) the sort of each.
        offsets: (S + 1,) where the flows of each sort begin.
        case: The case of each flow, sort after sort; flows of one case are charged the same on every system of this size.
        kind, size, shape, ranks, waits_for: (K,) as in `Flows`; the shape is an index into `shapes`.
        shapes: Where groups lie.
        bundle, place, part: (Q,) bundle, place in the trace's ranks, and part of each member, bundle after bundle.
        part_offsets: (T + 1,) where the nodes of each part begin.
        position, row, role, counts: Per node of a part which of the bundle's flows it is, and the columns of `Flows`.
        in_turn: Bundles whose flows take turns, rising: collectives of a group without a given order.
        follows: By graph, (2, F) rows: collectives of a group of which the second begins after the first.
    """

    sort: Int64
    offsets: Int64
    case: Int64
    kind: Int64
    size: Int64
    shape: Int64
    ranks: Int64
    waits_for: Int64
    shapes: tuple[tuple[GroupShape, tuple[int, ...]], ...]
    bundle: Int64
    place: Int64
    part: Int64
    part_offsets: Int64
    position: Int64
    row: Int64
    role: Int64
    counts: Bool
    in_turn: Int64
    follows: dict[int, Int64]

    def __len__(self) -> int:
        """Return how many bundles there are."""
        return len(self.sort)

    def of_ranks(self, places: Int64) -> Int64:
        """Return the bundles of which some of the ranks at these places are members."""
        return find_distinct(self.bundle[np.isin(self.place, places)])

    def charge(self, config: SystemConfig) -> Costs:
        """Return what the cases of flows cost on a system."""
        costs = Costs(config, self.shapes, len(self.kind))
        costs.fill(self.kind, self.size, self.shape, self.ranks)
        return costs

    def expand(self, chosen: Int64 | None = None) -> Expansion:
        """Return the flows of some bundles, in their order, each with all of its members; None takes all bundles."""
        chosen = np.arange(len(self)) if chosen is None else chosen
        sort = self.sort[chosen]
        lengths = np.diff(self.offsets)[sort]
        first = np.full(len(self), NONE, np.int64)
        first[chosen] = np.cumsum(lengths) - lengths
        case = self.case[concatenate_ranges(self.offsets, sort)]
        members = np.flatnonzero(first[self.bundle] != NONE)
        part = self.part[members]
        nodes = np.diff(self.part_offsets)[part]
        at = concatenate_ranges(self.part_offsets, part)
        flow = np.repeat(first[self.bundle[members]].astype(np.int32), nodes)
        flow += self.position.astype(np.int32)[at]
        return Expansion(
            case,
            np.repeat(np.where(np.isin(chosen, self.in_turn), chosen, NONE), lengths),
            self.waits_for[case],
            flow,
            np.repeat(self.place[members].astype(np.int32), nodes),
            self.row.astype(np.int32)[at],
            self.role.astype(np.int8)[at],
            self.counts[at],
        )

    def add_costs(self, flows: Expansion, costs: Costs) -> Flows:
        """Return flows with what they cost."""
        case = flows.case
        return Flows(
            self.kind[case],
            self.size[case],
            self.ranks[case],
            flows.turn,
            flows.waits_for,
            costs.total_ns[case],
            costs.fixed_ns[case],
            costs.moved[case],
            costs.share[case],
            costs.share_of_node[case],
            costs.share_of_link[case],
            costs.choice[case],
            tuple(costs.choices),
            costs.extrapolated[case],
            flows.flow,
            flows.place,
            flows.row,
            flows.role,
            flows.counts,
        )


def plan_flows(trace: Trace, config: SystemConfig, places: Int64 | None = None) -> Flows:
    """Return the flows of a job on a system with a cost model.

    Args:
        trace: The job.
        config: The system.
        places: Places of ranks: only what these take part in; None takes all.

    Raises:
        TraceError: A collective or message names a group or rank that is not there.
        ConfigError: A comm group has a rank that is not there.
    """
    bundles = find_bundles(share_graphs(trace), config)
    chosen = None if places is None else bundles.of_ranks(places)
    return bundles.add_costs(bundles.expand(chosen), bundles.charge(config))


def find_bundles(trace: Trace, config: SystemConfig, known: Known | None = None) -> Bundles:
    """Return the flows of a job by who takes part; of the system sizes of dimensions and the rendezvous count.

    Args:
        trace: The job.
        config: The system, with a cost model.
        known: What earlier simulations of the trace have in common with this one.

    Raises:
        TraceError: A collective or message names a group or rank that is not there.
        ConfigError: A comm group has a rank that is not there.
    """
    if known is None or not can_share(config):
        return _find(trace, config)
    sizes = tuple(dim.size for dim in config.topology.dims)
    key = config.groups, matches_by_number(config), sizes, config.rendezvous
    return known.once("bundles", key, lambda: _find(trace, config))


def _find(trace: Trace, config: SystemConfig) -> Bundles:
    """Return the bundles of a job."""
    finder = _Found(trace, config)
    # Sequences are told apart by what they are, so all of them stay until the end.
    matchings = match_collectives(trace, config.groups, by_number=matches_by_number(config))
    for matching in matchings:
        finder.add_group(matching)
    finder.add_channels(match_channels(trace))
    return finder.bundles()


_Content = tuple[Int64, Int64, Int64, Int64]
"""Kind, size, members, and how many are waited for, of the flows of a bundle."""


class _Found:
    """Collects bundles group by group."""

    def __init__(self, trace: Trace, config: SystemConfig) -> None:
        self.trace, self.config = trace, config
        self.npus = config.topology.npus
        self.per_node = config.topology.dims[0].size
        self.listed: dict[str, CommGroup] = {
            group.name: group for group in (trace.groups if config.groups is None else config.groups)
        }
        self.place = {rank.number: place for place, rank in enumerate(trace.ranks)}
        self.graph_of = np.array([rank.graph for rank in trace.ranks], np.int64)
        self.shapes: dict[tuple[GroupShape, tuple[int, ...]], int] = {}
        self.contents: list[_Content] = []
        self.content_of: dict[tuple[object, ...], int] = {}
        """The number of what passes in a group, by the sequences of its members and how many these are."""
        self.sorts: dict[tuple[int, int], int] = {}
        """The number of each content and shape."""
        self.parts: dict[tuple[bytes, ...], int] = {}
        """The number of what a member does: positions, rows, roles, and whether it is waited for."""
        self.part_of: dict[tuple[int, int], int] = {}
        """The same by the identity of a sequence."""
        self.sort: list[Int64] = [np.zeros(0, np.int64)]
        self.members: list[Int64] = [np.zeros((3, 0), np.int64)]
        self.known = 0
        self.pairs: dict[int, list[Int64]] = {}
        self.ordered: set[tuple[int, int]] = set()
        self.timed: dict[int, bool] = {}
        self.in_turn: list[int] = []
        """Bundles whose flows take turns."""

    def add_group(self, group: GroupMatching) -> None:
        """Add the collectives of a group."""
        self._check_members(group)
        present = np.flatnonzero(group.sequence_of != NONE)
        if not max(map(len, group.sequences), default=0) or not len(present):
            return
        places = np.array([self.place[group.members[at]] for at in present.tolist()], np.int64)
        sequence_of = group.sequence_of[present]
        sequence_of_graph = {*zip(self.graph_of[places].tolist(), sequence_of.tolist(), strict=True)}
        if group.by_number or all(self._has_times(graph) for graph, _ in sequence_of_graph):
            self._add_order(group, sequence_of_graph)
        else:
            self.in_turn.append(self.known)
        key = (*map(id, group.sequences), len(group.members))
        if key not in self.content_of:
            self.content_of[key] = self._add_content(*_compute_contents(group), len(group.members))
        parts = [self._number_sequence(sequence) for sequence in group.sequences]
        self._add(
            self.content_of[key], self._number_shape(group.members), places, np.array(parts)[sequence_of]
        )

    def _add_content(self, kind: Int64, size: Int64, agree: Bool, members: int) -> int:
        waits_for = np.where(agree, members, NEVER)
        self.contents.append((kind, size, np.full(len(kind), members), waits_for))
        return len(self.contents) - 1

    def _add(self, content: int, shape: int, places: Int64, parts: Int64) -> None:
        """Add a bundle of members that have places and parts."""
        sort = self.sorts.setdefault((content, shape), len(self.sorts))
        self.sort.append(np.array([sort]))
        # Who has nothing to do there is no member.
        busy = parts != NONE
        places, parts = places[busy], parts[busy]
        self.members.append(np.stack([np.full(len(places), self.known), places, parts]))
        self.known += 1

    def _number_sequence(self, sequence: Collectives) -> int:
        key = id(sequence), len(sequence)
        if key not in self.part_of:
            position = np.flatnonzero(sequence.rows != NONE)
            both = np.full(len(position), BOTH)
            part = (
                self._number_part(position, sequence.rows[position], both, both == BOTH)
                if len(position)
                else NONE
            )
            self.part_of[key] = part
        return self.part_of[key]

    def _number_part(self, position: Int64, row: Int64, role: Int64, counts: Bool) -> int:
        columns = (position, row, role, counts.astype(np.int64))
        return self.parts.setdefault(tuple(column.tobytes() for column in columns), len(self.parts))

    def _has_times(self, graph: int) -> bool:
        """Whether a graph was recorded, so that its collectives were called for in the order that it has."""
        if graph not in self.timed:
            self.timed[graph] = bool((self.trace.graphs[graph].start_ns != NONE).any())
        return self.timed[graph]

    def _add_order(self, group: GroupMatching, sequence_of_graph: set[tuple[int, int]]) -> None:
        """Note, by graph, which collectives of the group follow each other."""
        for graph, index in sequence_of_graph:
            sequence = group.sequences[index]
            if (graph, id(sequence)) in self.ordered:
                continue
            self.ordered.add((graph, id(sequence)))
            rows = sequence.rows[sequence.rows != NONE]
            if len(rows) > 1:
                self.pairs.setdefault(graph, []).append(np.stack([rows[:-1], rows[1:]]))

    def _check_members(self, group: GroupMatching) -> None:
        if group.name == WORLD:
            return
        listed = self.listed.get(group.name)
        if listed is None:
            known = ", ".join(list(self.listed)[:8]) or "none"
            raise TraceError(
                f"rank {group.members[0]}: a collective names comm group {group.name!r}; groups known: {known}",
                hint="Give the list of its ranks in the comm group file.",
            )
        ranks = listed.ranks
        if len(set(ranks)) != len(ranks) or not all(0 <= rank < self.npus for rank in ranks):
            raise ConfigError(
                f"comm group {group.name!r} has the ranks {format_first_ranks(ranks)}; "
                f"allowed: each rank from 0 to {self.npus - 1} once",
                hint=explain_incomplete_group(ranks, self.npus),
            )
        if group.outsiders:
            raise TraceError(
                f"rank {group.outsiders[0]}: a collective names comm group {group.name!r}, which has the ranks "
                f"{format_first_ranks(ranks)} and not this one",
                hint="Correct pg_name in the trace, or the comm group file.",
            )

    def _number_shape(self, ranks: Sequence[int]) -> int:
        """Return the number of where a group lies."""
        key = build_group_shape(ranks, self.per_node), find_crossed_dimensions(self.config.topology, ranks)
        return self.shapes.setdefault(key, len(self.shapes))

    def add_channels(self, channels: Channels) -> None:
        """Add the messages between two ranks."""
        count = len(channels)
        if not count:
            return
        self._check_peers(channels)
        ends = np.stack([channels.source, channels.target], axis=1)
        # Where the two lie to each other is told by the dimensions in which they differ.
        crossed, number = np.zeros(count, np.int64), ends
        for index, dim in enumerate(self.config.topology.dims):
            coordinate, number = number % dim.size, number // dim.size
            crossed |= (coordinate[:, 0] != coordinate[:, 1]).astype(np.int64) << index
        sort = np.zeros(count, np.int64)
        contents, parts, first_part = self._add_exchanges(channels)
        for mask in find_distinct(crossed).tolist():
            of_mask = np.flatnonzero(crossed == mask)
            shape = self._number_shape(ends[of_mask[0]].tolist())
            passing, inverse = np.unique(contents[channels.exchange[of_mask]], return_inverse=True)
            sorts = [self.sorts.setdefault((content, shape), len(self.sorts)) for content in passing.tolist()]
            sort[of_mask] = np.array(sorts)[inverse.reshape(-1)]
        self.sort.append(sort)
        channel = np.repeat(np.arange(count), np.diff(channels.party_offsets))
        party = np.arange(len(channel)) - channels.party_offsets[channel]
        part = parts[first_part[channels.exchange[channel]] + party]
        self.members.append(np.stack([self.known + channel, channels.parties, part]))
        self.known += count

    def _add_exchanges(self, channels: Channels) -> tuple[Int64, Int64, Int64]:
        """Add what passes over channels; returns the content of each exchange, its parties' parts, and where these begin."""
        rendezvous = self.config.rendezvous
        shown = np.unique(channels.exchange, return_index=True)[1]
        parties = np.diff(channels.party_offsets)[shown]
        contents, parts = [], []
        for exchange, count in enumerate(parties.tolist()):
            messages = slice(int(channels.offsets[exchange]), int(channels.offsets[exchange + 1]))
            size = channels.bytes[messages]
            same = np.ones(len(size), np.int64)
            kind = FLOW_KINDS.index(SEND_RECV)
            self.contents.append((same * kind, size, same * 2, same * (2 if rendezvous else 1)))
            contents.append(len(self.contents) - 1)
            for party in range(count):
                sent = np.flatnonzero(channels.sender[messages] == party)
                received = np.flatnonzero(channels.receiver[messages] == party)
                role = np.repeat([SENDS, RECEIVES], [len(sent), len(received)])
                rows = channels.send_row[messages][sent], channels.receive_row[messages][received]
                counts = (role == SENDS) | rendezvous
                parts.append(
                    self._number_part(np.concatenate([sent, received]), np.concatenate(rows), role, counts)
                )
        return np.array(contents), np.array(parts), np.cumsum(parties) - parties

    def _check_peers(self, channels: Channels) -> None:
        for ends, key in ((channels.source, "comm_src"), (channels.target, "comm_dst")):
            bad = np.flatnonzero((ends < 0) | (ends >= self.npus))
            if len(bad):
                number = self._find_naming_rank(channels, int(bad[0]), receives=key == "comm_src")
                raise TraceError(
                    f"rank {number}: {key} is {int(ends[bad[0]])}; allowed: a rank from 0 to {self.npus - 1}",
                    hint="The peer of a send or a receive must be a rank of the job.",
                )
        own = np.flatnonzero(channels.source == channels.target)
        if len(own):
            raise TraceError(
                f"rank {int(channels.source[own[0]])} sends a message to itself; allowed: other ranks",
                hint="Correct comm_src and comm_dst in the trace.",
            )

    def _find_naming_rank(self, channels: Channels, channel: int, *, receives: bool) -> int | str:
        """Return the rank whose first receive (or send) names a channel; a question mark where none does."""
        messages = channels.expand(np.array([channel]))
        place = int((messages.receive_rank if receives else messages.send_rank)[0])
        return self.trace.ranks[place].number if place != NONE else "?"

    def bundles(self) -> Bundles:
        """Return everything that was added."""
        parts = [[np.frombuffer(column, np.int64) for column in part] for part in self.parts]
        position, row, role, counts = (
            join_columns(column) for column in (zip(*parts, strict=True) if parts else [()] * 4)
        )
        bundle, place, part = np.concatenate(self.members, axis=1)
        sorts = [(self.contents[content], shape) for content, shape in self.sorts]
        lengths = [len(content[0]) for content, _ in sorts]
        kind, size, ranks, waits_for = (
            join_columns([content[index] for content, _ in sorts]) for index in range(4)
        )
        shape = np.repeat(np.array([shape for _, shape in sorts], np.int64), np.array(lengths, np.int64))
        first, case = _number_cases((kind, size, shape, ranks, waits_for))
        return Bundles(
            np.concatenate(self.sort),
            np.cumsum([0, *lengths]),
            case,
            kind[first],
            size[first],
            shape[first],
            ranks[first],
            waits_for[first],
            tuple(self.shapes),
            bundle,
            place,
            part,
            np.cumsum([0, *(len(columns[0]) for columns in parts)]),
            position,
            row,
            role,
            counts != 0,
            np.array(self.in_turn, np.int64),
            {graph: _find_distinct_pairs(pairs) for graph, pairs in self.pairs.items()},
        )


def _number_cases(columns: Sequence[Int64]) -> tuple[Int64, Int64]:
    """Return where each different entry of several columns is first, and the number of each entry: many flows are alike."""
    # Columns as one number: sorting numbers takes a fraction of the time of sorting records.
    code, most = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values, number = np.unique(column, return_inverse=True)
        if most * len(values) > _MOST_CODES:
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
            most = len(code)
        code, most = code * len(values) + number.reshape(-1), most * len(values)
    first, case = np.unique(code, return_index=True, return_inverse=True)[1:]
    return first, case.reshape(-1)


def _find_distinct_pairs(pairs: Sequence[Int64]) -> Int64:
    """Return (2, F) the distinct pairs of rows, in rising order."""
    first, second = np.concatenate(pairs, axis=1)
    rows = int(max(first.max(initial=0), second.max(initial=0))) + 1
    return np.stack(np.divmod(find_distinct(first * rows + second), rows))


def _compute_contents(group: GroupMatching) -> tuple[Int64, Int64, Bool]:
    """Return (C,) kind and largest size of the collectives of a group, and whether its members agree on them."""
    longest = max(map(len, group.sequences))
    count = len(group.sequences)
    kind, size = np.full((count, longest), NONE, np.int64), np.zeros((count, longest), np.int64)
    is_present = np.zeros((count, longest), np.bool_)
    known = np.full(max(EXTENDED_KIND_OF) + 2, UNKNOWN, np.int64)
    for number, name in EXTENDED_KIND_OF.items():
        known[number] = FLOW_KINDS.index(name)
    for index, sequence in enumerate(group.sequences):
        columns = slice(0, len(sequence))
        is_present[index, columns] = sequence.rows != NONE
        kind[index, columns] = known[np.clip(sequence.type, NONE, len(known) - 1)]
        size[index, columns] = sequence.bytes
    used = find_distinct(group.sequence_of[group.sequence_of != NONE])
    kind, size, is_present = kind[used], size[used], is_present[used]
    most, least = kind.max(axis=0), np.where(is_present, kind, UNKNOWN).min(axis=0)
    largest, smallest = size.max(axis=0), np.where(is_present, size, np.iinfo(np.int64).max).min(axis=0)
    uneven = np.isin(most, [FLOW_KINDS.index(EXTENDED_KIND_OF[kind]) for kind in UNEVEN_TYPES])
    return most, largest, (most == least) & (uneven | (largest == smallest))
