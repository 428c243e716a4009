"""Work out what the collectives and messages of a job cost on a system with a cost model, and what they put on its ports.

Each collective of a comm group, and each message, is a *flow*: when the last of those it waits for has come, a fixed
time passes, then its bytes move, and all members end together. A collective waits for all of its members; a message for
its sender, with the rendezvous protocol for the receiver too. Alone on the network a flow takes exactly what the cost
model says. Where its bytes move it takes up a share of its members' ports: bytes / (rate × time). Every NPU has two
ports in each dimension, out and in; where NPUs of a node share NICs, the node has them in the dimensions between nodes.

What is modelled of the rest:

- Members may bring different sizes to an all-to-all, all-gather, gather and scatter; the largest one counts. Other
  collectives of which members bring different sizes never begin, as those of different kinds.
- Each member is charged what the busiest one sends, of collectives with a root too, and all end together.
- A collective of one rank moves nothing and takes 1 ns, the shortest time there is; a barrier takes its fixed time.
- The collectives of a comm group are carried out one after the other on every rank: by their numbers, where all members
  have them, else in the order of issue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from studio.analysis.collectives.matching import GroupMatching, Messages, match_collectives, match_messages
from studio.errors import ConfigError, TraceError
from studio.sim.agreement import UNEVEN_TYPES
from studio.sim.collectives import EXTENDED_KIND_OF
from studio.sim.config import SystemConfig, Topology
from studio.sim.costs import Charge, CostModel, GroupShape, Ports
from studio.sim.costs.shapes import rate_between
from studio.sim.kinds import COLLECTIVE_KINDS
from studio.sim.matched import by_number
from studio.sim.topology import port_bytes_per_ns
from studio.trace import NONE, WORLD, Bool, CommGroup, Int64, Trace

Float64 = npt.NDArray[np.float64]

SEND_RECV = "send_recv"
FLOW_KINDS = (*COLLECTIVE_KINDS, SEND_RECV)
WHOLE = 1 << 40
"""A port's whole rate; shares of it are counted in these."""
BOTH, SENDS, RECEIVES = range(3)
"""What a member does: all of a collective's send and receive."""
NEVER = 1 << 40
"""More members than there are: what waits for them never begins."""
_UNKNOWN = len(FLOW_KINDS)


@dataclass(frozen=True, slots=True)
class Flows:
    """The collectives and messages of a job, what each takes alone, and what it puts on the ports.

    M flows, P members of all flows together, D dimensions of the network.

    Attributes:
        kind: (M,) index into `FLOW_KINDS`.
        size: (M,) bytes, as the largest member has them.
        ranks: (M,) members of its group; 2 of a message.
        waits_for: (M,) how many members have to come before it begins; `NEVER` if their collectives differ.
        total_ns: (M,) time from then on, alone on the network.
        fixed_ns: (M,) the part of it before bytes move.
        moved: (M, D) bytes that each member sends into each dimension.
        share: (M, D) what that takes of a member's port.
        share_of_node: (M, D) what it takes of the node's port, per member.
        choice: (M,) index into `choices`, -1 where nothing was to be chosen.
        choices: Names of algorithms and protocols.
        extrapolated: (M,) whether it lies outside of what the cost model was fitted to.
        beyond: (M,) whether the cost model has it faster than its bytes pass the port.
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
    total_ns: Int64
    fixed_ns: Int64
    moved: Float64
    share: Int64
    share_of_node: Int64
    choice: Int64
    choices: tuple[str, ...]
    extrapolated: Bool
    beyond: Bool
    flow: Int64
    place: Int64
    row: Int64
    role: Int64
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


def group_shape(ranks: Sequence[int], per_node: int) -> GroupShape:
    """Return where the ranks of a group lie, on nodes of `per_node` NPUs.

    Example:
        >>> group_shape([0, 1, 2, 3, 8], 8)
        GroupShape(ranks=5, per_node=4, nodes=2)
    """
    of_node = np.unique(np.array(ranks, np.int64) // per_node, return_counts=True)[1]
    return GroupShape(len(ranks), int(of_node.max()), len(of_node))


def crossed_dimensions(topology: Topology, ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions beyond the node in which the ranks of a group differ."""
    number = np.array(ranks, np.int64)
    crossed = []
    for index, dim in enumerate(topology.dims):
        coordinate = number % dim.size
        if index and (coordinate != coordinate[0]).any():
            crossed.append(index)
        number //= dim.size
    return tuple(crossed)


def network_ports(topology: Topology, crossed: Sequence[int] = ()) -> Ports:
    """Return what the ports of an NPU can do for a group that crosses these dimensions beyond the node; () is all.

    Of several dimensions the slowest counts, and the largest latency.
    """
    dims = topology.dims
    further = [dims[index] for index in (crossed or range(1, len(dims)))]
    return Ports(
        inside=port_bytes_per_ns(dims[0]),
        inside_ns=dims[0].latency_ns,
        between=min(map(port_bytes_per_ns, further), default=0.0),
        between_ns=max((dim.latency_ns for dim in further), default=0.0),
        per_node=dims[0].size,
    )


def shared_nics(costs: CostModel, per_node: int) -> bool:
    """Whether the NPUs of a node share NICs, so that the node has the ports to other nodes."""
    return 0 < costs.nics < per_node


def plan_flows(trace: Trace, config: SystemConfig) -> Flows:
    """Return the flows of a job on a system with a cost model.

    Raises:
        TraceError: A collective or message names a group or rank that is not there.
        ConfigError: A comm group has a rank that is not there.
    """
    found = _Found(trace, config)
    matchings = match_collectives(trace, config.groups, by_number=by_number(config))
    for matching in matchings:
        found.add_group(matching)
    found.add_messages(match_messages(trace))
    return found.flows()


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
        self.members: list[Int64] = [np.zeros((5, 0), np.int64)]
        """Per member flow, place, row, role, and whether the flow waits for it."""
        self.pairs: dict[int, list[Int64]] = {}

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
            np.stack([self.known + position, places[member], rows[there], both, np.ones_like(both)])
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
            self.members.append(np.stack([flow[there], place[there], row[there], same, waits]))
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

    def flows(self) -> Flows:
        """Return everything that was added, with its costs."""
        kind, size, shape, ranks, waits_for = np.concatenate(self.about, axis=1)
        flow, place, row, role, counts = np.concatenate(self.members, axis=1)
        costs = _Costs(self.config, tuple(self.shapes), len(kind))
        costs.fill(kind, size, shape, ranks)
        follows = {
            graph: np.unique(np.concatenate(pairs, axis=1), axis=1) for graph, pairs in self.pairs.items()
        }
        return Flows(
            kind,
            size,
            ranks,
            waits_for,
            costs.total_ns,
            costs.fixed_ns,
            costs.moved,
            costs.share,
            costs.share_of_node,
            costs.choice,
            tuple(costs.choices),
            costs.extrapolated,
            costs.beyond,
            flow,
            place,
            row,
            role,
            counts != 0,
            follows,
        )


def _contents(group: GroupMatching) -> tuple[Int64, Int64, Bool]:
    """Return (C,) kind and largest size of the collectives of a group, and whether its members agree on them."""
    longest = max(map(len, group.sequences))
    count = len(group.sequences)
    kind, size = np.full((count, longest), NONE, np.int64), np.zeros((count, longest), np.int64)
    there = np.zeros((count, longest), np.bool_)
    known = np.full(max(EXTENDED_KIND_OF) + 2, _UNKNOWN, np.int64)
    for number, name in EXTENDED_KIND_OF.items():
        known[number] = FLOW_KINDS.index(name)
    for index, sequence in enumerate(group.sequences):
        mine = slice(0, len(sequence))
        there[index, mine] = sequence.rows != NONE
        kind[index, mine] = known[np.clip(sequence.type, NONE, len(known) - 1)]
        size[index, mine] = sequence.bytes
    used = np.unique(group.sequence_of[group.sequence_of != NONE])
    kind, size, there = kind[used], size[used], there[used]
    most, least = kind.max(axis=0), np.where(there, kind, _UNKNOWN).min(axis=0)
    largest, smallest = size.max(axis=0), np.where(there, size, np.iinfo(np.int64).max).min(axis=0)
    uneven = np.isin(most, [FLOW_KINDS.index(EXTENDED_KIND_OF[kind]) for kind in UNEVEN_TYPES])
    return most, largest, (most == least) & (uneven | (largest == smallest))


class _Costs:
    """Charges flows, those of one kind and shape at once."""

    def __init__(
        self, config: SystemConfig, shapes: Sequence[tuple[GroupShape, tuple[int, ...]]], count: int
    ) -> None:
        assert config.costs is not None
        self.config, self.model, self.shapes = config, config.costs, shapes
        dims = config.topology.dims
        self.per_node = dims[0].size
        self.by_node = shared_nics(config.costs, self.per_node)
        self.rate = np.array([port_bytes_per_ns(dim) for dim in dims])
        self.total_ns, self.fixed_ns = np.ones((2, count), np.int64)
        self.moved = np.zeros((count, len(dims)))
        self.share, self.share_of_node = np.zeros((2, count, len(dims)), np.int64)
        self.choice = np.full(count, NONE, np.int64)
        self.choices: list[str] = []
        self.extrapolated, self.beyond = np.zeros((2, count), np.bool_)

    def fill(self, kind: Int64, size: Int64, shape: Int64, ranks: Int64) -> None:
        """Charge all flows; those of one rank keep the shortest time there is."""
        # What the charge depends on as one number, so that each case is found by one sort.
        case = shape * (_UNKNOWN + 1) + kind
        # Kinds that are not known are refused where nodes are read.
        case[(ranks < 2) | (kind == _UNKNOWN)] = NONE
        order = np.argsort(case, kind="stable")
        bounds = np.flatnonzero(np.diff(case[order], prepend=-2, append=1 << 62))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            mine = order[first:last]
            if case[mine[0]] == NONE:
                continue
            sizes, inverse = np.unique(size[mine], return_inverse=True)
            where, crossed = self.shapes[int(shape[mine[0]])]
            name = FLOW_KINDS[int(kind[mine[0]])]
            ports = network_ports(self.config.topology, crossed)
            charge = self.model.charge(name, sizes.astype(np.float64), where, ports)
            self._put(mine, inverse, charge, where, ports, crossed)

    def _put(
        self,
        mine: Int64,
        inverse: Int64,
        charge: Charge,
        shape: GroupShape,
        ports: Ports,
        crossed: tuple[int, ...],
    ) -> None:
        total = np.maximum(np.rint(charge.total_ns), 1)
        moved = np.zeros((len(total), len(self.rate)))
        moved[:, 0] = charge.inside_bytes
        # The cost model counts what passes a member's own share of the NICs; where they are shared, it may send more.
        more = (
            max(1.0, rate_between(ports, shape.per_node, self.model.nics) / ports.between) if crossed else 1.0
        )
        for index in crossed:
            moved[:, index] = charge.between_bytes * more
        node_rate = self.rate * self.per_node
        # The bytes need this long, wherever the model has the end of its fixed time.
        alone = moved / self.rate
        if self.by_node:
            alone[:, 1:] = moved[:, 1:] * shape.per_node / node_rate[1:]
        least = alone.max(axis=1)
        work = np.maximum(
            total - np.minimum(np.rint(charge.fixed_ns), total), np.minimum(np.ceil(least), total)
        )
        some = np.maximum(work, 1)[:, None]
        share = np.minimum(np.rint(WHOLE * moved / (self.rate * some)), WHOLE).astype(np.int64)
        of_node = np.minimum(WHOLE * moved / (node_rate * some), WHOLE // shape.per_node).astype(np.int64)
        if self.config.congestion == "unaware":
            share, of_node = np.zeros_like(share), np.zeros_like(of_node)
        names = [
            self.choices.index(name) if name in self.choices else self._add(name) for name in charge.choices
        ]
        choice = np.array([*names, NONE], np.int64)[charge.choice]
        for column, values in (
            (self.total_ns, total.astype(np.int64)),
            (self.fixed_ns, (total - work).astype(np.int64)),
            (self.moved, moved),
            (self.share, share),
            (self.share_of_node, of_node),
            (self.choice, choice),
            (self.extrapolated, charge.extrapolated),
            (self.beyond, least > total + 1),
        ):
            column[mine] = values[inverse]

    def _add(self, name: str) -> int:
        self.choices.append(name)
        return len(self.choices) - 1


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown}, … ({len(ranks):,} in all)" if len(ranks) > 8 else shown
