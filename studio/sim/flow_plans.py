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
  have them, else in the order of issue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from studio.analysis.collectives.matching import GroupMatching, Messages, match_collectives, match_messages
from studio.errors import ConfigError, TraceError
from studio.sim.agreement import UNEVEN_TYPES
from studio.sim.charges import FLOW_KINDS, SEND_RECV, UNKNOWN, Costs, Float64, crossed_dimensions, group_shape
from studio.sim.collectives import EXTENDED_KIND_OF
from studio.sim.config import SystemConfig
from studio.sim.costs import GroupShape
from studio.sim.known import Known, can_share
from studio.sim.matched import by_number
from studio.trace import NONE, WORLD, Bool, CommGroup, Int32, Int64, Trace

Int8 = npt.NDArray[np.int8]

BOTH, SENDS, RECEIVES = range(3)
"""What a member does: all of a collective's send and receive."""
_MEMBER_TYPES: tuple[npt.DTypeLike, ...] = (np.int32, np.int32, np.int32, np.int8, np.bool_)
"""Of columns of members: a job of 16,384 ranks has tens of millions, the most of what planning it holds."""
NEVER = 1 << 40
"""More members than there are: what waits for them never begins."""
_MOST_CODES = 1 << 62


@dataclass(frozen=True, slots=True)
class Flows:
    """The collectives and messages of a job, what each takes alone, and what it puts on the ports.

    M flows, P members of all flows together, D dimensions of the network.

    Attributes:
        kind: (M,) index into `FLOW_KINDS`.
        size: (M,) bytes, as the largest member has them.
        ranks: (M,) members of its group; 2 of a message.
        waits_for: (M,) how many members have to come before it begins; `NEVER` if their collectives differ.
        case: (M,) a number; flows of one case are charged the same on every system of this size.
        total_ns: (M,) time from then on, alone on the network.
        fixed_ns: (M,) the part of it before bytes move.
        moved: (M, D) bytes that each member sends into each dimension.
        share: (M, D) what that takes of a member's port.
        share_of_node: (M, D) what it takes of the node's port, per member.
        choice: (M,) index into `choices`, -1 where nothing was to be chosen.
        choices: Names of algorithms and protocols.
        extrapolated: (M,) whether it lies outside of what the cost model was fitted to.
        flow: (P,) the flow.
        place: (P,) place of the member in the trace's ranks.
        row: (P,) its node there.
        role: (P,) whether it sends, receives or does both.
        counts: (P,) whether the flow waits for it.
        follows: By graph, (2, F) rows: collectives of a group of which the second begins after the first.
    """

    kind: Int64
    size: Int64
    ranks: Int64
    waits_for: Int64
    case: Int64
    total_ns: Int64
    fixed_ns: Int64
    moved: Float64
    share: Int64
    share_of_node: Int64
    choice: Int64
    choices: tuple[str, ...]
    extrapolated: Bool
    flow: Int32
    place: Int32
    row: Int32
    role: Int8
    counts: Bool
    follows: dict[int, Int64]

    def __len__(self) -> int:
        """Return how many flows there are."""
        return len(self.kind)

    def sent(self, ranks: int) -> Float64:
        """Return (R, D) bytes that each rank sends into each dimension."""
        return self._by_rank(self.moved, ranks)

    def sendings(self, ranks: int) -> Int64:
        """Return (R, D) collectives and messages of which each rank sends bytes into each dimension."""
        return self._by_rank((self.moved > 0).astype(np.float64), ranks).astype(np.int64)

    def _by_rank(self, values: Float64, ranks: int) -> Float64:
        sends = self.role != RECEIVES
        place, flow = self.place[sends], self.flow[sends]
        columns = [np.bincount(place, column[flow], minlength=ranks) for column in values.T]
        return np.stack(columns, axis=1)


def plan_flows(trace: Trace, config: SystemConfig, known: Known | None = None) -> Flows:
    """Return the flows of a job on a system with a cost model.

    Args:
        trace: The job.
        config: The system.
        known: What earlier simulations of the trace have in common with this one.

    Raises:
        TraceError: A collective or message names a group or rank that is not there.
        ConfigError: A comm group has a rank that is not there.
    """
    if known is None or not can_share(config):
        return _find(trace, config).flows(config)
    sizes = tuple(dim.size for dim in config.topology.dims)
    key = config.groups, by_number(config), sizes, config.rendezvous
    return known.once("flows", key, lambda: _find(trace, config)).flows(config)


def _find(trace: Trace, config: SystemConfig) -> _Found:
    """Return the flows of a job before they are charged; of the system sizes of dimensions and the rendezvous count."""
    found = _Found(trace, config)
    matchings = match_collectives(trace, config.groups, by_number=by_number(config))
    for matching in matchings:
        found.add_group(matching)
    found.add_messages(match_messages(trace))
    return found


class _Found:
    """Collects flows group by group."""

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
        self.known = 0
        self.about: list[Int64] = [np.zeros((5, 0), np.int64)]
        """Per flow kind, size, number of its shape, members, how many it waits for."""
        self.members: list[tuple[npt.NDArray[Any], ...]] = [_narrow(np.zeros((5, 0), np.int64))]
        """Per member flow, place, row, role, and whether the flow waits for it."""
        self.pairs: dict[int, list[Int64]] = {}
        self.all: _All | None = None

    def add_group(self, group: GroupMatching) -> None:
        """Add the collectives of a group."""
        self._check_members(group)
        rows, places = group.rows(), np.array([self.place.get(member, NONE) for member in group.members])
        if not rows.size:
            return
        self._add_order(group)
        kind, size, agree = _contents(group)
        there = rows != NONE
        shape = self._shape(group.members)
        waits_for = np.where(agree, len(group.members), NEVER)
        count = rows.shape[1]
        self.about.append(
            np.stack([kind, size, np.full(count, shape), np.full(count, len(group.members)), waits_for])
        )
        member, position = np.nonzero(there)
        both = np.full(len(member), BOTH)
        self.members.append(
            _narrow((self.known + position, places[member], rows[there], both, np.ones_like(both)))
        )
        self.known += count

    def _add_order(self, group: GroupMatching) -> None:
        """Note, by graph, which collectives of the group follow each other."""
        known = np.flatnonzero(group.sequence_of != NONE)
        graphs = [self.graph_of[self.place[group.members[at]]] for at in known.tolist()]
        for graph, sequence in {*zip(graphs, group.sequence_of[known].tolist(), strict=True)}:
            rows = group.sequences[sequence].rows
            rows = rows[rows != NONE]
            if len(rows) > 1:
                self.pairs.setdefault(int(graph), []).append(np.stack([rows[:-1], rows[1:]]))

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
                f"comm group {group.name!r} has the ranks {_some(ranks)}; "
                f"allowed: each rank from 0 to {self.npus - 1} once"
            )
        if group.outsiders:
            raise TraceError(
                f"rank {group.outsiders[0]}: a collective names comm group {group.name!r}, which has the ranks "
                f"{_some(ranks)} and not this one",
                hint="Correct pg_name in the trace, or the comm group file.",
            )

    def _shape(self, ranks: Sequence[int]) -> int:
        """Return the number of where a group lies."""
        key = group_shape(ranks, self.per_node), crossed_dimensions(self.config.topology, ranks)
        return self.shapes.setdefault(key, len(self.shapes))

    def add_messages(self, messages: Messages) -> None:
        """Add the messages between two ranks."""
        count = len(messages)
        if not count:
            return
        self._check_peers(messages)
        ends = np.stack([messages.source, messages.target], axis=1)
        # Where the two lie to each other is told by the dimensions in which they differ.
        crossed, number = np.zeros(count, np.int64), ends
        for index, dim in enumerate(self.config.topology.dims):
            coordinate, number = number % dim.size, number // dim.size
            crossed |= (coordinate[:, 0] != coordinate[:, 1]).astype(np.int64) << index
        shape = np.zeros(count, np.int64)
        for mask in np.unique(crossed).tolist():
            first = int(np.argmax(crossed == mask))
            shape[crossed == mask] = self._shape(ends[first].tolist())
        rendezvous = self.config.rendezvous
        self.about.append(
            np.stack(
                [
                    np.full(count, FLOW_KINDS.index(SEND_RECV)),
                    messages.bytes,
                    shape,
                    np.full(count, 2),
                    np.full(count, 2 if rendezvous else 1),
                ]
            )
        )
        flow = self.known + np.arange(count)
        for place, row, role in (
            (messages.send_rank, messages.send_row, SENDS),
            (messages.receive_rank, messages.receive_row, RECEIVES),
        ):
            there = row != NONE
            same = np.full(int(there.sum()), role)
            waits = np.full(len(same), rendezvous or role == SENDS)
            self.members.append(_narrow((flow[there], place[there], row[there], same, waits)))
        self.known += count

    def _check_peers(self, messages: Messages) -> None:
        for ends, key, own in (
            (messages.source, "comm_src", messages.receive_rank),
            (messages.target, "comm_dst", messages.send_rank),
        ):
            bad = np.flatnonzero((ends < 0) | (ends >= self.npus))
            if len(bad):
                place = int(own[bad[0]])
                number = self.trace.ranks[place].number if place != NONE else "?"
                raise TraceError(
                    f"rank {number}: {key} is {int(ends[bad[0]])}; allowed: a rank from 0 to {self.npus - 1}",
                    hint="The peer of a send or a receive must be a rank of the job.",
                )
        own = np.flatnonzero(messages.source == messages.target)
        if len(own):
            raise TraceError(
                f"rank {int(messages.source[own[0]])} sends a message to itself; allowed: other ranks",
                hint="Correct comm_src and comm_dst in the trace.",
            )

    def flows(self, config: SystemConfig) -> Flows:
        """Return everything that was added, with its costs on a system."""
        if self.all is None:
            self.all = self._collect()
        (kind, size, shape, ranks, waits_for), case, first, members, follows = self.all
        flow, place, row, role, counts = members
        costs = Costs(config, tuple(self.shapes), len(first))
        costs.fill(kind[first], size[first], shape[first], ranks[first])
        return Flows(
            kind,
            size,
            ranks,
            waits_for,
            case,
            costs.total_ns[case],
            costs.fixed_ns[case],
            costs.moved[case],
            costs.share[case],
            costs.share_of_node[case],
            costs.choice[case],
            tuple(costs.choices),
            costs.extrapolated[case],
            flow,
            place,
            row,
            role,
            counts,
            follows,
        )

    def _collect(self) -> _All:
        """Return what was added in one, with the cases that have to be charged: many flows are alike."""
        about = np.concatenate(self.about, axis=1)
        # Columns as one number: sorting numbers takes a fraction of the time of sorting records.
        code, most = np.zeros(about.shape[1], np.int64), 1
        for column in about:
            values, number = np.unique(column, return_inverse=True)
            if most * len(values) > _MOST_CODES:
                code = np.unique(code, return_inverse=True)[1].reshape(-1)
                most = len(code)
            code, most = code * len(values) + number.reshape(-1), most * len(values)
        first, case = np.unique(code, return_index=True, return_inverse=True)[1:]
        members = tuple(np.concatenate(column) for column in zip(*self.members, strict=True))
        self.members.clear()
        follows = {graph: _distinct_pairs(pairs) for graph, pairs in self.pairs.items()}
        return tuple(about), case.reshape(-1), first, members, follows


def _distinct_pairs(pairs: Sequence[Int64]) -> Int64:
    """Return (2, F) the distinct pairs of rows, in rising order."""
    first, second = np.concatenate(pairs, axis=1)
    rows = int(max(first.max(initial=0), second.max(initial=0))) + 1
    return np.stack(np.divmod(np.unique(first * rows + second), rows))


_All = tuple[tuple[Int64, ...], Int64, Int64, tuple[npt.NDArray[Any], ...], dict[int, Int64]]
"""Columns of flows, the case of each, where each case is first, columns of members, and what follows what by graph."""


def _narrow(columns: Iterable[Int64]) -> tuple[npt.NDArray[Any], ...]:
    """Return columns of members in the types they are kept in."""
    return tuple(column.astype(kind) for column, kind in zip(columns, _MEMBER_TYPES, strict=True))


def _contents(group: GroupMatching) -> tuple[Int64, Int64, Bool]:
    """Return (C,) kind and largest size of the collectives of a group, and whether its members agree on them."""
    longest = max(map(len, group.sequences))
    count = len(group.sequences)
    kind, size = np.full((count, longest), NONE, np.int64), np.zeros((count, longest), np.int64)
    there = np.zeros((count, longest), np.bool_)
    known = np.full(max(EXTENDED_KIND_OF) + 2, UNKNOWN, np.int64)
    for number, name in EXTENDED_KIND_OF.items():
        known[number] = FLOW_KINDS.index(name)
    for index, sequence in enumerate(group.sequences):
        mine = slice(0, len(sequence))
        there[index, mine] = sequence.rows != NONE
        kind[index, mine] = known[np.clip(sequence.type, NONE, len(known) - 1)]
        size[index, mine] = sequence.bytes
    used = np.unique(group.sequence_of[group.sequence_of != NONE])
    kind, size, there = kind[used], size[used], there[used]
    most, least = kind.max(axis=0), np.where(there, kind, UNKNOWN).min(axis=0)
    largest, smallest = size.max(axis=0), np.where(there, size, np.iinfo(np.int64).max).min(axis=0)
    uneven = np.isin(most, [FLOW_KINDS.index(EXTENDED_KIND_OF[kind]) for kind in UNEVEN_TYPES])
    return most, largest, (most == least) & (uneven | (largest == smallest))


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, … ({len(ranks):,} in all)" if len(ranks) > 8 else shown
