"""Fold the ranks of a job of flows: find classes of equivalent ranks, of which one each is simulated.

Why a folded simulation gives every rank's own answer
    Ranks are equivalent under a partition that is stable: ranks of a class have the same graph and speed, the flow that
    a node of the one comes to is equivalent to the flow that the same node of the other comes to, and their nodes hold
    as many ranks of each class. Flows are equivalent that cost the same and whose members are as many nodes of each
    class, row by row. So ports of equivalent ranks are used by as many equivalent flows, and as much.

    By induction over the ticks: suppose that up to a tick equivalent ranks have gone through the same, equivalent flows
    too, and equivalent ports have carried the same load. Then in the next tick the same nodes come to equivalent flows,
    which so begin and end in the same ticks, since their pace follows from the loads of their ports; what a rank does
    otherwise follows from its own state alone, with symmetric ties also within a tick. That is how a rank, a flow and
    a port can stand for all that are equivalent to it. What stands for the flows of a class waits for each row of each
    class that is a member once, because equivalent ranks come at the same time; and it puts on a port that stands for
    others what all flows of its class put there.

How the partition is found
    By hashes of 64 bits, refined until no class splits. Whether it is stable is then checked value by value, so that
    hashes that are equal by accident cannot pass; if it is not, every rank is simulated by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from studio.sim.flow_plans import NEVER, Flows
from studio.sim.folding import Folding, Unfoldable
from studio.trace import Int64

UInt64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FlowClasses:
    """Which ranks and flows stand for which.

    Attributes:
        folding: The classes of ranks.
        flow: (M,) per flow the number of the one that stands for it, among `flows`.
        owners: NPUs, and the number of NPUs + nodes, whose ports stand for all.
        used: The flows that stand for others.
        flows: These, their members those of the ranks that are simulated.
    """

    folding: Folding
    flow: Int64
    owners: Int64
    used: Int64
    flows: Flows


def fold_flows(flows: Flows, kind_of: Int64, per_node: int, *, by_node: bool) -> FlowClasses:
    """Return the classes of ranks and flows of a job.

    Args:
        flows: The flows.
        kind_of: (R,) a number per rank; those with different numbers differ in what they compute.
        per_node: NPUs of a node.
        by_node: Whether the NPUs of a node share its ports.

    Raises:
        Unfoldable: No two ranks are equivalent, or the classes are not stable.
    """
    ranks = len(kind_of)
    node_of = np.arange(ranks) // per_node
    signs = _Signs(flows, node_of if by_node else None, ranks)
    class_of = np.unique(kind_of, return_inverse=True)[1].reshape(-1)
    count = 0
    while count < len(np.unique(class_of)):
        count = len(np.unique(class_of))
        if count == ranks:
            raise Unfoldable("no two ranks are equivalent")
        pairs = np.stack([class_of.astype(np.uint64), signs.of_ranks(class_of)])
        class_of = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    class_of, representatives = _numbered(class_of)
    flow = _first_of(signs.of_flows(class_of))
    _check(flows, class_of, representatives, flow)
    owners = representatives
    if by_node:
        node_class = _first_of(signs.of_nodes(class_of))
        _check_nodes(class_of, node_of, node_class)
        owners = np.concatenate([owners, ranks + np.unique(node_class)])
    used = np.unique(flow)
    number = np.zeros(len(flows), np.int64)
    number[used] = np.arange(len(used))
    return FlowClasses(
        Folding(class_of, representatives, {}, {}, {}),
        number[flow],
        owners,
        used,
        _standing(flows, used, number[flow], representatives),
    )


def _numbered(class_of: Int64) -> tuple[Int64, Int64]:
    """Return classes numbered in the order of their first ranks, and these."""
    first = np.unique(class_of, return_index=True)[1]
    order = np.argsort(first)
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(first))
    return number[class_of], first[order]


def _first_of(signs: UInt64) -> Int64:
    """Return for each sign where it is first."""
    _, first, inverse = np.unique(signs, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]


def _mix(values: Any) -> UInt64:
    """Return hashes of 64 bits (splitmix64)."""
    mixed = np.asarray(values).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _sums(values: UInt64, bounds: Int64) -> UInt64:
    """Return sums of parts, modulo 2^64."""
    total = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=total[1:])
    return total[bounds[1:]] - total[bounds[:-1]]


class _Signs:
    """Hashes of ranks, flows and nodes by the classes of ranks."""

    def __init__(self, flows: Flows, node_of: Int64 | None, ranks: int) -> None:
        self.flows, self.node_of = flows, node_of
        part = _mix(flows.row * 4 + flows.role)
        self.by_flow = np.argsort(flows.flow, kind="stable")
        self.flow_bounds = np.searchsorted(flows.flow[self.by_flow], np.arange(len(flows) + 1))
        self.by_rank = np.argsort(flows.place, kind="stable")
        self.rank_bounds = np.searchsorted(flows.place[self.by_rank], np.arange(ranks + 1))
        self.part, self.cost = part, _mix(_costs_of(flows))

    def of_flows(self, class_of: Int64) -> UInt64:
        """Return (M,) hashes of flows: what they cost, and who meets there."""
        member = _mix(_mix(class_of)[self.flows.place] ^ self.part)
        return _mix(_sums(member[self.by_flow], self.flow_bounds) ^ self.cost)

    def of_ranks(self, class_of: Int64) -> UInt64:
        """Return (R,) hashes of ranks: the flows of their nodes, and who is in their node."""
        node = _mix(self.of_flows(class_of)[self.flows.flow] ^ self.part)
        signs = _sums(node[self.by_rank], self.rank_bounds)
        if self.node_of is not None:
            signs = signs ^ _mix(self.of_nodes(class_of))[self.node_of]
        return signs

    def of_nodes(self, class_of: Int64) -> UInt64:
        """Return hashes of nodes: the classes of their ranks."""
        assert self.node_of is not None
        bounds = np.searchsorted(self.node_of, np.arange(int(self.node_of[-1]) + 2))
        return _sums(_mix(class_of), bounds)


def _costs_of(flows: Flows) -> Int64:
    """Return (M,) a number per flow; equal ones cost the same, and wait for as many."""
    cost: Int64 = costs_of_cases(flows)[flows.case]
    return cost


def costs_of_cases(flows: Flows) -> Int64:
    """Return a number per case of flows, the lowest case that costs the same and waits for as many."""
    cases = int(flows.case.max(initial=-1)) + 1
    first = np.zeros(cases, np.int64)
    first[flows.case] = np.arange(len(flows))
    columns = np.column_stack(
        [
            column[first]
            for column in (
                *(flows.total_ns, flows.fixed_ns, flows.waits_for, flows.ranks),
                *(flows.share, flows.share_of_node),
            )
        ]
    )
    packed = np.ascontiguousarray(columns).view(np.dtype((np.void, columns.itemsize * columns.shape[1])))
    lowest, number = np.unique(packed.reshape(-1), return_index=True, return_inverse=True)[1:]
    return lowest[number.reshape(-1)]


def recharged(found: FlowClasses, flows: Flows) -> FlowClasses:
    """Return the classes of a job for flows that cost something else, equal where they were equal before.

    Which flows and ranks stand for which depends on what is equal only, not on what it is.
    """
    standing = {name: getattr(flows, name)[found.used] for name in _CHARGED}
    return replace(found, flows=replace(found.flows, choices=flows.choices, **standing))


_CHARGED = ("total_ns", "fixed_ns", "moved", "share", "share_of_node", "choice", "extrapolated")
"""What flows are charged."""


def _check(flows: Flows, class_of: Int64, representatives: Int64, flow: Int64) -> None:
    """Refuse a partition that is not stable, value by value."""
    cost = _costs_of(flows)
    member = (class_of[flows.place] << 40) + (flows.row << 2) + flows.role
    order = np.lexsort((member, flows.flow))
    bounds = np.searchsorted(flows.flow[order], np.arange(len(flows) + 1))
    fine = (cost == cost[flow]).all() and (np.diff(bounds) == np.diff(bounds)[flow]).all()
    if fine:
        mine = flows.flow[order]
        there = np.arange(len(order)) - bounds[mine] + bounds[flow[mine]]
        fine = (member[order] == member[order][there]).all()
    if fine:
        # A rank and the one that stands for it have the same graph, so the same rows.
        order = np.lexsort((flows.row, flows.place))
        bounds = np.searchsorted(flows.place[order], np.arange(len(class_of) + 1))
        stand = representatives[class_of]
        fine = bool((np.diff(bounds) == np.diff(bounds)[stand]).all())
    if fine:
        mine = flows.place[order]
        there = np.arange(len(order)) - bounds[mine] + bounds[stand[mine]]
        same = flow[flows.flow[order]] == flow[flows.flow[order]][there]
        fine = bool((same & (flows.row[order] == flows.row[order][there])).all())
    if not fine:
        raise Unfoldable("the classes of ranks are not stable")


def _check_nodes(class_of: Int64, node_of: Int64, node_class: Int64) -> None:
    order = np.lexsort((class_of, node_of))
    bounds = np.searchsorted(node_of, np.arange(len(node_class) + 1))
    if (np.diff(bounds) != np.diff(bounds)[node_class]).any():
        raise Unfoldable("the classes of nodes are not stable")
    there = np.arange(len(order)) - bounds[node_of] + bounds[node_class[node_of]]
    if (class_of[order] != class_of[order][there]).any():
        raise Unfoldable("the classes of nodes are not stable")


def _standing(flows: Flows, used: Int64, number: Int64, representatives: Int64) -> Flows:
    """Return the flows that stand for others, with the members that are simulated.

    Args:
        flows: All flows.
        used: Those that stand for others.
        number: (M,) for each flow the number among these of the one that stands for it.
        representatives: The ranks that are simulated.
    """
    mine = np.flatnonzero(np.isin(flows.place, representatives))
    of, counts = number[flows.flow[mine]], flows.counts[mine]
    # A flow that lacks a member never begins.
    came = np.bincount(flows.flow[flows.counts], minlength=len(flows))[used]
    waits_for = np.bincount(of[counts], minlength=len(used))
    waits_for[came < flows.waits_for[used]] = NEVER
    of_flows = {name: getattr(flows, name)[used] for name in ("kind", "size", "ranks", "case", *_CHARGED)}
    return replace(
        flows,
        **of_flows,
        waits_for=waits_for,
        flow=of,
        place=flows.place[mine],
        row=flows.row[mine],
        role=flows.role[mine],
        counts=counts,
    )
