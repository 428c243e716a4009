"""Charge the collectives and messages of a job what they cost on a system with a cost model.

Alone on the network a flow (`studio.sim.flow_plans`) takes exactly what the cost model says. Where its bytes move it takes up
a share of its members' ports: the time that its bytes keep the port busy, at the rate that the cost model has them reach, of the
time that they move. So what is slow over a port alone leaves no room there that others of its kind could not reach either: together
they take as long as their bytes do one after the other. What it can use of a port may be less than the port: links to some of the
peers, some of the channels. Every NPU has two ports in each dimension, out and in; where NPUs of a node share NICs, the node has them
in the dimensions between nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from studio.sim.config import SystemConfig, Topology
from studio.sim.costs import Charge, CostModel, GroupShape, Ports
from studio.sim.costs.shapes import compute_rate_between
from studio.sim.kinds import COLLECTIVE_KINDS
from studio.sim.topology import compute_port_rate
from studio.trace import NONE, Int64

Float64 = npt.NDArray[np.float64]

SEND_RECV = "send_recv"
FLOW_KINDS = (*COLLECTIVE_KINDS, SEND_RECV)
UNKNOWN = len(FLOW_KINDS)
"""The number of collectives that are not known; they are refused where nodes are read."""
WHOLE = 1 << 40
"""A port's whole rate; shares of it are counted in these."""


def build_group_shape(ranks: Sequence[int], per_node: int) -> GroupShape:
    """Return where the ranks of a group lie, on nodes of `per_node` NPUs.

    Example:
        >>> build_group_shape([0, 1, 2, 3, 8], 8)
        GroupShape(ranks=5, per_node=4, nodes=2)
    """
    of_node = np.unique(np.array(ranks, np.int64) // per_node, return_counts=True)[1]
    return GroupShape(len(ranks), int(of_node.max()), len(of_node))


def find_crossed_dimensions(topology: Topology, ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions beyond the node in which the ranks of a group differ."""
    number = np.array(ranks, np.int64)
    crossed = []
    for index, dim in enumerate(topology.dims):
        coordinate = number % dim.size
        if index and (coordinate != coordinate[0]).any():
            crossed.append(index)
        number //= dim.size
    return tuple(crossed)


def build_network_ports(topology: Topology, crossed: Sequence[int] = ()) -> Ports:
    """Return what the ports of an NPU can do for a group that crosses these dimensions beyond the node; () is all.

    Of several dimensions the slowest counts, and the largest latency.
    """
    dims = topology.dims
    further = [dims[index] for index in (crossed or range(1, len(dims)))]
    return Ports(
        inside=compute_port_rate(dims[0]),
        inside_ns=dims[0].latency_ns,
        between=min(map(compute_port_rate, further), default=0.0),
        between_ns=max((dim.latency_ns for dim in further), default=0.0),
        per_node=dims[0].size,
        switched=dims[0].kind == "switch",
    )


def has_shared_nics(costs: CostModel, per_node: int) -> bool:
    """Whether the NPUs of a node share NICs, so that the node has the ports to other nodes."""
    return 0 < costs.wiring.nics < per_node


def passes_links(shape: GroupShape, peers: int) -> bool:
    """Whether what a group sends inside nodes passes the links between its members, each as much.

    In nodes without a switch it does, where an NPU may be joined to all other members of its node.

    Args:
        shape: Where the group lies.
        peers: NPUs that the links of an NPU are divided among; 0 stands for a switch.
    """
    return 0 < shape.per_node - 1 <= peers


def is_whole_port(shape: GroupShape, per_node: int, peers: int) -> bool:
    """Whether what a group sends inside nodes counts on the port of an NPU as a whole.

    In a node where every pair has links (`peers` are as many as the others), those of a group of a part of the node lead to its
    members, and what goes to others does not slow it.

    Example:
        >>> pair, node = GroupShape(2, 2, 1), GroupShape(8, 8, 1)
        >>> is_whole_port(node, 8, 7), is_whole_port(pair, 8, 7), is_whole_port(pair, 8, 3), is_whole_port(pair, 8, 0)
        (True, False, True, True)
    """
    return peers < per_node - 1 or shape.per_node - 1 == peers


class Costs:
    """Charges flows, those of one kind and shape at once."""

    def __init__(
        self, config: SystemConfig, shapes: Sequence[tuple[GroupShape, tuple[int, ...]]], count: int
    ) -> None:
        assert config.costs is not None
        self.config, self.model, self.shapes = config, config.costs, shapes
        dims = config.topology.dims
        self.per_node = dims[0].size
        self.by_node = has_shared_nics(config.costs, self.per_node)
        self.rate = np.array([compute_port_rate(dim) for dim in dims])
        self.total_ns, self.fixed_ns = np.ones((2, count), np.int64)
        self.moved = np.zeros((count, len(dims)))
        self.share, self.share_of_node = np.zeros((2, count, len(dims)), np.int64)
        self.share_of_link = np.zeros(count, np.int64)
        self.choice = np.full(count, NONE, np.int64)
        self.choices: list[str] = []
        self.extrapolated = np.zeros(count, np.bool_)

    def fill(self, kind: Int64, size: Int64, shape: Int64, ranks: Int64) -> None:
        """Charge all flows; those of one rank keep the shortest time there is."""
        # What the charge depends on as one number, so that each case is found by one sort.
        case = shape * (UNKNOWN + 1) + kind
        # Kinds that are not known are refused where nodes are read.
        case[(ranks < 2) | (kind == UNKNOWN)] = NONE
        order = np.argsort(case, kind="stable")
        bounds = np.flatnonzero(np.diff(case[order], prepend=-2, append=1 << 62))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            of_case = order[first:last]
            if case[of_case[0]] == NONE:
                continue
            sizes, inverse = np.unique(size[of_case], return_inverse=True)
            where, crossed = self.shapes[int(shape[of_case[0]])]
            name = FLOW_KINDS[int(kind[of_case[0]])]
            ports = build_network_ports(self.config.topology, crossed)
            charge = self.model.charge(name, sizes.astype(np.float64), where, ports)
            self._put(of_case, inverse, charge, where, ports, crossed)

    def _put(
        self,
        flows: Int64,
        inverse: Int64,
        charge: Charge,
        shape: GroupShape,
        ports: Ports,
        crossed: tuple[int, ...],
    ) -> None:
        total = np.maximum(np.rint(charge.total_ns), 1)
        moved = np.zeros((len(total), len(self.rate)))
        moved[:, 0] = charge.inside_bytes
        busy = np.zeros_like(moved)
        busy[:, 0] = charge.inside_busy_ns
        # The cost model counts what passes a member's own share of the NICs; where they are shared, it may send more.
        more = (
            max(1.0, compute_rate_between(ports, shape.per_node, self.model.wiring.nics) / ports.between)
            if crossed
            else 1.0
        )
        for index in crossed:
            moved[:, index] = charge.between_bytes * more
            # The slowest dimension sets the pace; the others are busy for less of the time.
            busy[:, index] = charge.between_busy_ns * (ports.between / self.rate[index])
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
        # Whatever it is corrected by, no bytes pass a port faster than it can.
        busy = np.maximum(busy, moved / self.rate)
        share = np.minimum(np.rint(WHOLE * busy / some), WHOLE).astype(np.int64)
        of_node = np.minimum(WHOLE * busy / (self.per_node * some), WHOLE // shape.per_node).astype(np.int64)
        of_link, peers = np.zeros(len(total), np.int64), self.model.wiring.peers
        if passes_links(shape, peers):
            links = (shape.per_node - 1) / peers
            of_link = np.minimum(np.rint(WHOLE * busy[:, 0] / (links * some[:, 0])), WHOLE).astype(np.int64)
        if not is_whole_port(shape, self.per_node, peers):
            share[:, 0] = 0
        if self.config.congestion == "unaware":
            share, of_node, of_link = np.zeros_like(share), np.zeros_like(of_node), np.zeros_like(of_link)
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
            (self.share_of_link, of_link),
            (self.choice, choice),
            (self.extrapolated, charge.extrapolated),
        ):
            column[flows] = values[inverse]

    def _add(self, name: str) -> int:
        self.choices.append(name)
        return len(self.choices) - 1
