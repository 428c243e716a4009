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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from studio.sim.flow_plans import NEVER, Flows
from studio.sim.folding import Folding, Unfoldable
from studio.trace import Int32, Int64

UInt64 = npt.NDArray[np.uint64]
Integers = Int32 | Int64
_BLOCK = 1 << 20


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
    class_of, representatives = _number_classes(class_of)
    flow = _first_of(signs.of_flows(class_of))
    node_class = _first_of(signs.of_nodes(class_of)) if by_node else class_of
    orders = signs.by_flow, signs.by_rank
    # Hashes are as large as the members of all flows, and so is what checking takes.
    del signs
    _check(flows, class_of, representatives, flow, orders)
    owners = representatives
    if by_node:
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


def _number_classes(class_of: Int64) -> tuple[Int64, Int64]:
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
    mixed = np.asarray(values).astype(np.uint64)
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _sums(values: UInt64, bounds: Int64) -> UInt64:
    """Return sums of parts, modulo 2^64; the values are lost."""
    np.cumsum(values, out=values)
    total = np.zeros(len(bounds), np.uint64)
    total[bounds > 0] = values[bounds[bounds > 0] - 1]
    return total[1:] - total[:-1]


def _blocks(count: int) -> Iterator[slice]:
    """Yield parts of what is as long as the members of all flows: what is computed of one part at a time takes no room."""
    for begin in range(0, count, _BLOCK):
        yield slice(begin, min(begin + _BLOCK, count))


def _order_of(keys: Int32) -> Int32:
    """Return the places of keys in the order of the keys, in 4 bytes each."""
    return np.argsort(keys, kind="stable").astype(np.int32)


class _Signs:
    """Hashes of ranks, flows and nodes by the classes of ranks."""

    def __init__(self, flows: Flows, node_of: Int64 | None, ranks: int) -> None:
        self.flows, self.node_of = flows, node_of
        part = np.empty(len(flows.row), np.uint64)
        for block in _blocks(len(part)):
            part[block] = _mix(flows.row[block] * np.int64(4) + flows.role[block])
        self.by_flow = _order_of(flows.flow)
        self.flow_bounds = _bounds(flows.flow, len(flows))
        self.by_rank = _order_of(flows.place)
        self.rank_bounds = _bounds(flows.place, ranks)
        self.part, self.cost = part, _mix(_costs_of(flows))

    def of_flows(self, class_of: Int64) -> UInt64:
        """Return (M,) hashes of flows: what they cost, and who meets there."""
        members = self._members(_mix(class_of), self.flows.place, self.by_flow)
        return _mix(_sums(members, self.flow_bounds) ^ self.cost)

    def _members(self, signs: UInt64, of: Int32, order: Int32) -> UInt64:
        """Return (P,) hashes of members in an order: the sign of whom or what each is of, and what it does there."""
        mixed = np.empty(len(order), np.uint64)
        for block in _blocks(len(order)):
            mine = order[block]
            mixed[block] = _mix(signs[of[mine]] ^ self.part[mine])
        return mixed

    def of_ranks(self, class_of: Int64) -> UInt64:
        """Return (R,) hashes of ranks: the flows of their nodes, and who is in their node."""
        signs = _sums(self._members(self.of_flows(class_of), self.flows.flow, self.by_rank), self.rank_bounds)
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


def _check(
    flows: Flows, class_of: Int64, representatives: Int64, flow: Int64, orders: tuple[Int32, Int32]
) -> None:
    """Refuse a partition that is not stable, value by value.

    Args:
        flows: The flows.
        class_of: (R,) the class of each rank.
        representatives: The rank that stands for each class.
        flow: (M,) per flow the one that stands for it.
        orders: Members by flow, and by rank.
    """
    by_flow, by_rank = orders
    cost = _costs_of(flows)
    stand = representatives[class_of]
    member = np.empty(len(flows.row), np.int64)
    met = np.empty(len(flows.row), np.int32)
    for block in _blocks(len(member)):
        does = flows.row[block] * np.int64(4) + flows.role[block]
        member[block] = (class_of[flows.place[block]] << 40) + does
        met[block] = flow[flows.flow[block]]
    # A rank and the one that stands for it have the same graph, so the same rows.
    if not (
        (cost == cost[flow]).all()
        and _are_alike((member,), flows.flow, flow, by_flow)
        and _are_alike((flows.row, met), flows.place, stand, by_rank)
    ):
        raise Unfoldable("the classes of ranks are not stable")


def _are_alike(columns: tuple[Integers, ...], part: Int32, stand: Int64, order: Int32) -> bool:
    """Whether each part has the same members as the part that stands for it.

    Args:
        columns: What has to be the same of members, that of the first column with no other order among equal ones.
        part: The part of each member.
        stand: Per part the one that stands for it.
        order: Members by part.
    """
    bounds = _bounds(part, len(stand))
    count = np.diff(bounds)
    if (count != count[stand]).any():
        return False
    # Members of parts that are alike mostly come in the same order; they are sorted only where they do not.
    return _are_same(columns, part, stand, order, bounds) or _are_same(
        columns, part, stand, np.lexsort((columns[0], part)), bounds
    )


def _are_same(
    columns: tuple[Integers, ...], part: Int32, stand: Int64, order: Integers, bounds: Int64
) -> bool:
    """Whether each member in an order is the same as that at its place in the part that stands for its own."""
    for block in _blocks(len(order)):
        own = order[block]
        mine = part[own]
        other = order[np.arange(block.start, block.stop) - bounds[mine] + bounds[stand[mine]]]
        if any((column[own] != column[other]).any() for column in columns):
            return False
    return True


def _bounds(keys: Int32, count: int) -> Int64:
    """Return (K + 1,) where each of K keys begins among the keys in order, and where the last ends."""
    return np.append(0, np.bincount(keys, minlength=count).cumsum())


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
        flow=of.astype(np.int32),
        place=flows.place[mine],
        row=flows.row[mine],
        role=flows.role[mine],
        counts=counts,
    )
