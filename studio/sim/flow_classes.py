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

Bundles instead of flows
    The partition is found before flows are expanded: a job of 16,384 ranks has hundreds of millions of messages, and a few
    ten thousand pairs of ranks between which they pass. A bundle (`flow_plans.Bundles`) is all collectives of a comm group or
    all messages from one rank to another. Bundles are equivalent that have as many flows, of which the n-th cost the same, and
    whose members are as many ranks of each class with each part; a part says which nodes of a member come to which of the
    bundle's flows. So the n-th flows of equivalent bundles are equivalent as above, row by row, and a partition that is
    stable for bundles is so for flows. It may be finer than the coarsest one for flows, where ranks of one graph are alike in
    flows that come in other bundles; then more ranks are simulated than had to be. Only the flows of ranks that are
    simulated, and of those that share ports with them, are expanded.

Links inside nodes
    Links between the NPUs of a pair are told apart by the bundles that pass them (`node_links`). They are equivalent where as many
    bundles of each class pass them, and equivalent bundles pass as many links of each class, so that by the same induction
    equivalent links carry the same load, and one stands for all that are equivalent to it. All bundles that pass it are expanded.

How the partition is found
    By hashes of 64 bits, refined until no class splits. Whether it is stable is then checked value by value, so that
    hashes that are equal by accident cannot pass; if it is not, every rank is simulated by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from studio.analysis.numbering import number_by_first
from studio.columns import join_ranges
from studio.distinct import find_distinct
from studio.sim.charges import Costs
from studio.sim.flow_plans import NEVER, Bundles, Expansion
from studio.sim.fold_job import Unfoldable
from studio.sim.folding import ALL_DIFFER, Folding
from studio.sim.node_links import NO_LINKS, NodeLinks
from studio.trace import Int64

UInt64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FlowClasses:
    """Which ranks and flows stand for which.

    M flows: those in which a rank takes part that is simulated, or that shares ports with one, and those that pass the
    links that stand for all.

    Attributes:
        folding: The classes of ranks.
        owners: NPUs, and the number of NPUs + nodes, whose ports stand for all.
        links: Links inside nodes that stand for all.
        chosen: The bundles whose flows these are, rising.
        flows: The flows.
        flow: (M,) per flow the number of the one that stands for it, among `standing`.
        standing: The flows that stand for others, their members those of the ranks that are simulated.
    """

    folding: Folding
    owners: Int64
    links: NodeLinks
    chosen: Int64
    flows: Expansion
    flow: Int64
    standing: Expansion


def fold_flows(
    bundles: Bundles,
    cost: Int64,
    kind_of: Int64,
    per_node: int,
    *,
    by_node: bool,
    links: NodeLinks = NO_LINKS,
) -> FlowClasses:
    """Return the classes of ranks and flows of a job.

    Args:
        bundles: The flows, by who takes part.
        cost: (B,) a number per bundle; the n-th flows of those with equal ones cost the same.
        kind_of: (R,) a number per rank; those with different numbers differ in what they compute.
        per_node: NPUs of a node.
        by_node: Whether the NPUs of a node share its ports.
        links: The links inside nodes.

    Raises:
        Unfoldable: No two ranks are equivalent, or the classes are not stable.
    """
    ranks = len(kind_of)
    node_of = np.arange(ranks) // per_node
    signs = _Signs(bundles, cost, node_of if by_node else None, ranks, links)
    class_of = np.unique(kind_of, return_inverse=True)[1].reshape(-1)
    count = 0
    while count < len(find_distinct(class_of)):
        count = len(find_distinct(class_of))
        if count == ranks:
            raise Unfoldable(ALL_DIFFER)
        pairs = np.stack([class_of.astype(np.uint64), signs.of_ranks(class_of)])
        class_of = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    class_of, representatives = number_by_first(class_of)
    bundle = _find_first(signs.of_bundles(class_of))
    node_class = _find_first(signs.of_nodes(class_of)) if by_node else class_of
    _check(bundles, cost, class_of, representatives, bundle)
    link = _find_first(signs.of_links(class_of))
    _check_links(links, bundle, link)
    standing_links = links.of(find_distinct(link))
    owners = near = representatives
    if by_node:
        _check_nodes(class_of, node_of, node_class)
        nodes = find_distinct(node_class)
        owners = np.concatenate([owners, ranks + nodes])
        near = np.flatnonzero(np.isin(node_of, nodes) | np.isin(np.arange(ranks), representatives))
    chosen = find_distinct(np.concatenate([bundles.of_ranks(near), standing_links.bundle]))
    flows = bundles.expand(chosen)
    lengths = np.diff(bundles.offsets)[bundles.sort[chosen]]
    position = join_ranges(0, lengths)
    # Flows are equivalent that have the same position in equivalent bundles.
    code = np.repeat(bundle[chosen], lengths) * (int(lengths.max(initial=0)) + 1) + position
    used, flow = np.unique(code, return_index=True, return_inverse=True)[1:]
    flow = flow.reshape(-1)
    folding = Folding(class_of, representatives, {}, {}, {})
    standing = _select_standing(flows, used, flow, representatives)
    return FlowClasses(folding, owners, standing_links, chosen, flows, flow, standing)


def _find_first(signs: UInt64) -> Int64:
    """Return for each sign where it is first."""
    _, first, inverse = np.unique(signs, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]


def _hash_values(values: Any) -> UInt64:
    """Return hashes of 64 bits (splitmix64)."""
    mixed = np.asarray(values).astype(np.uint64)
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _sum_parts(values: UInt64, bounds: Int64) -> UInt64:
    """Return sums of parts, modulo 2^64; the values are lost."""
    np.cumsum(values, out=values)
    total = np.zeros(len(bounds), np.uint64)
    total[bounds > 0] = values[bounds[bounds > 0] - 1]
    return total[1:] - total[:-1]


class _Signs:
    """Hashes of ranks, bundles, nodes and links by the classes of ranks."""

    def __init__(
        self, bundles: Bundles, cost: Int64, node_of: Int64 | None, ranks: int, links: NodeLinks
    ) -> None:
        self.bundles, self.node_of, self.links = bundles, node_of, links
        # Mixed twice, unlike classes: of small numbers mixed alike, 0 with 1 would be 1 with 0.
        self.part, self.cost = _hash_values(_hash_values(bundles.part)), _hash_values(cost)
        # Members come bundle by bundle.
        self.by_bundle = np.arange(len(bundles.bundle))
        self.bundle_bounds = _find_bounds(bundles.bundle, len(bundles))
        self.by_rank = np.argsort(bundles.place, kind="stable")
        self.rank_bounds = _find_bounds(bundles.place, ranks)

        self.link_bounds = _find_bounds(links.link, len(links))
        self.passing = np.argsort(links.bundle, kind="stable")
        self.passing_bounds = _find_bounds(links.bundle, len(bundles))

    def of_bundles(self, class_of: Int64) -> UInt64:
        """Return (B,) hashes of bundles: what their flows cost, who meets there, and the links that they pass."""
        signs = self._hash_members(class_of)
        if len(self.links):
            links = self._hash_passing(signs)
            signs = _hash_values(
                signs + _sum_parts(_hash_values(links[self.links.link[self.passing]]), self.passing_bounds)
            )
        return signs

    def of_links(self, class_of: Int64) -> UInt64:
        """Return (L,) hashes of links: the bundles that pass them."""
        return self._hash_passing(self.of_bundles(class_of))

    def _hash_passing(self, signs: UInt64) -> UInt64:
        return _sum_parts(_hash_values(signs[self.links.bundle]), self.link_bounds)

    def _hash_members(self, class_of: Int64) -> UInt64:
        members = self._hash_in_order(_hash_values(class_of), self.bundles.place, self.by_bundle)
        return _hash_values(_sum_parts(members, self.bundle_bounds) ^ self.cost)

    def _hash_in_order(self, signs: UInt64, of: Int64, order: Int64) -> UInt64:
        """Return (Q,) hashes of members in an order: the sign of whom or what each is of, and its part there."""
        return _hash_values(signs[of[order]] ^ self.part[order])

    def of_ranks(self, class_of: Int64) -> UInt64:
        """Return (R,) hashes of ranks: the bundles they take part in, and who is in their node."""
        members = self._hash_in_order(self.of_bundles(class_of), self.bundles.bundle, self.by_rank)
        signs = _sum_parts(members, self.rank_bounds)
        if self.node_of is not None:
            signs = signs ^ _hash_values(self.of_nodes(class_of))[self.node_of]
        return signs

    def of_nodes(self, class_of: Int64) -> UInt64:
        """Return hashes of nodes: the classes of their ranks."""
        assert self.node_of is not None
        bounds = np.searchsorted(self.node_of, np.arange(int(self.node_of[-1]) + 2))
        return _sum_parts(_hash_values(class_of), bounds)


def number_bundle_costs(bundles: Bundles, costs: Costs) -> Int64:
    """Return (B,) a number per bundle; where it is equal, as many flows pass, and the n-th ones cost the same.

    They wait for as many, too, and send as many bytes.
    """
    shares = costs.share, costs.share_of_node, costs.share_of_link
    charged = (costs.total_ns, costs.fixed_ns, *shares, costs.moved.view(np.int64))
    columns = np.column_stack((*charged, bundles.waits_for, bundles.ranks))
    packed = np.ascontiguousarray(columns).view(np.dtype((np.void, columns.itemsize * columns.shape[1])))
    number = np.unique(packed.reshape(-1), return_inverse=True)[1].reshape(-1)
    numbers = number[bundles.case]
    seen: dict[bytes, int] = {}
    of_sort = [
        seen.setdefault(numbers[low:high].tobytes(), len(seen))
        for low, high in pairwise(bundles.offsets.tolist())
    ]
    return np.array(of_sort, np.int64)[bundles.sort]


def _check(bundles: Bundles, cost: Int64, class_of: Int64, representatives: Int64, bundle: Int64) -> None:
    """Refuse a partition that is not stable, value by value.

    Args:
        bundles: The bundles.
        cost: (B,) what those cost whose flows cost the same.
        class_of: (R,) the class of each rank.
        representatives: The rank that stands for each class.
        bundle: (B,) per bundle the one that stands for it.
    """
    stand = representatives[class_of]
    member = class_of[bundles.place] * (int(bundles.part.max(initial=0)) + 1) + bundles.part
    met = bundle[bundles.bundle]
    # A rank and the one that stands for it have the same graph, so that equal parts are of the same nodes; no two of a rank are equal.
    if not (
        (cost == cost[bundle]).all()
        and _are_alike(member, member, bundles.bundle, bundle)
        and _are_alike(bundles.part, met, bundles.place, stand)
    ):
        raise Unfoldable("the classes of ranks are not stable")


def _check_links(links: NodeLinks, bundle: Int64, link: Int64) -> None:
    """Refuse classes of links or bundles that are not stable, value by value.

    Args:
        links: The links.
        bundle: (B,) per bundle the one that stands for it.
        link: (L,) per link the one that stands for it.
    """
    passing, passed = bundle[links.bundle], link[links.link]
    if not (
        _are_alike(passing, passing, links.link, link) and _are_alike(passed, passed, links.bundle, bundle)
    ):
        raise Unfoldable("the classes of links are not stable")


def _are_alike(key: Int64, column: Int64, part: Int64, stand: Int64) -> bool:
    """Whether each part has the same members as the part that stands for it.

    Args:
        key: What tells members of a part apart; of those that it does not, columns are equal.
        column: What has to be the same of members besides the key.
        part: The part of each member.
        stand: Per part the one that stands for it.
    """
    bounds = _find_bounds(part, len(stand))
    count = np.diff(bounds)
    if (count != count[stand]).any():
        return False
    order = np.lexsort((key, part))
    own_part = part[order]
    counterpart = order[np.arange(len(order)) - bounds[own_part] + bounds[stand[own_part]]]
    return bool((key[order] == key[counterpart]).all() and (column[order] == column[counterpart]).all())


def _find_bounds(keys: Int64, count: int) -> Int64:
    """Return (K + 1,) where each of K keys begins among the keys in order, and where the last ends."""
    return np.append(0, np.bincount(keys, minlength=count).cumsum())


def _check_nodes(class_of: Int64, node_of: Int64, node_class: Int64) -> None:
    order = np.lexsort((class_of, node_of))
    bounds = np.searchsorted(node_of, np.arange(len(node_class) + 1))
    if (np.diff(bounds) != np.diff(bounds)[node_class]).any():
        raise Unfoldable("the classes of nodes are not stable")
    counterpart = np.arange(len(order)) - bounds[node_of] + bounds[node_class[node_of]]
    if (class_of[order] != class_of[order][counterpart]).any():
        raise Unfoldable("the classes of nodes are not stable")


def _select_standing(flows: Expansion, used: Int64, number: Int64, representatives: Int64) -> Expansion:
    """Return the flows that stand for others, with the members that are simulated.

    Args:
        flows: The flows.
        used: Those that stand for others.
        number: (M,) for each flow the number among these of the one that stands for it.
        representatives: The ranks that are simulated.
    """
    simulated = np.flatnonzero(np.isin(flows.place, representatives))
    of, counts = number[flows.flow[simulated]], flows.counts[simulated]
    # A flow that lacks a member never begins.
    came = np.bincount(flows.flow[flows.counts], minlength=len(flows.case))[used]
    waits_for = np.bincount(of[counts], minlength=len(used))
    waits_for[came < flows.waits_for[used]] = NEVER
    return Expansion(
        flows.case[used],
        flows.turn[used],
        waits_for,
        of.astype(np.int32),
        flows.place[simulated],
        flows.row[simulated],
        flows.role[simulated],
        counts,
    )
