"""What flows take of ports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.graph.neighbours import concatenate_ranges
from studio.sim.flow_plans import RECEIVES, SENDS, Bundles, Flows
from studio.sim.node_links import NodeLinks
from studio.trace import Int64


@dataclass(frozen=True, slots=True)
class Uses:
    """Shares of ports that flows take up.

    U uses.

    Attributes:
        flow: (U,) the flow.
        port: (U,) the port: owner × ports of an owner + its number among these. NPUs come first, then nodes, and behind
            these links inside nodes, each as an owner.
        amount: (U,) what the flow takes of it, at most `charges.WHOLE`.
        per_owner: Ports of an owner: out and in of each dimension.
    """

    flow: Int64
    port: Int64
    amount: Int64
    per_owner: int

    @property
    def owner(self) -> Int64:
        """(U,) the NPU, the number of NPUs + the node, or twice the number of NPUs + the link."""
        return self.port // self.per_owner


def list_port_uses(
    flows: Flows, ranks: int, per_node: int, *, by_node: bool, owners: Int64 | None = None
) -> Uses:
    """Return what flows take of ports.

    Args:
        flows: The flows.
        ranks: Ranks of the job, one an NPU.
        per_node: NPUs of a node.
        by_node: Whether the node has the ports of the dimensions beyond it, not the NPU.
        owners: Whose ports are asked for, NPUs, and nodes numbered on from them; None for all.
    """
    # Without messages what goes out of a rank and what comes in is the same at all times.
    directions = (0, 1) if (flows.role == SENDS).any() else (0,)
    dims = flows.share.shape[1]
    parts = [np.zeros((3, 0), np.int64)]
    wanted = np.zeros(2 * ranks + 1, np.bool_)
    wanted[slice(None) if owners is None else owners] = True
    for dim in range(dims):
        nodes = by_node and dim > 0
        amount = (flows.share_of_node if nodes else flows.share)[flows.flow, dim]
        owner = ranks + flows.place // per_node if nodes else flows.place
        asked = (amount > 0) if owners is None else (amount > 0) & wanted[owner]
        for direction in directions:
            members = np.flatnonzero(asked & (flows.role != (RECEIVES if direction == 0 else SENDS)))
            port = (owner[members] * dims + dim) * 2 + direction
            parts.append(np.stack([flows.flow[members], port, amount[members]]))
    flow, port, amount = np.concatenate(parts, axis=1)
    return _merge_uses(Uses(flow, port, amount, 2 * dims), alone=not by_node)


def list_link_uses(
    flows: Flows, bundles: Bundles, links: NodeLinks, ranks: int, chosen: Int64 | None = None
) -> Uses:
    """Return what flows take of links inside nodes.

    Args:
        flows: The flows of the chosen bundles, in their order.
        bundles: All of them.
        links: The links that are asked for.
        ranks: Ranks of the job, one an NPU.
        chosen: Bundles, rising, those of the links among them; None for all.
    """
    chosen = np.arange(len(bundles)) if chosen is None else chosen
    bounds = np.append(0, np.cumsum(np.diff(bundles.offsets)[bundles.sort[chosen]]))
    at = np.searchsorted(chosen, links.bundle)
    flow = concatenate_ranges(bounds, at)
    per_owner = 2 * flows.share.shape[1]
    port = np.repeat((2 * ranks + links.link) * per_owner, np.diff(bounds)[at])
    amount = flows.share_of_link[flow]
    some = np.flatnonzero(amount)
    return Uses(flow[some], port[some], amount[some], per_owner)


def join_uses(first: Uses, second: Uses) -> Uses:
    """Return the uses of both, which use different ports."""
    if not len(second.flow):
        return first
    return _merge_uses(
        Uses(
            np.concatenate([first.flow, second.flow]),
            np.concatenate([first.port, second.port]),
            np.concatenate([first.amount, second.amount]),
            first.per_owner,
        ),
        alone=True,
    )


def _merge_uses(uses: Uses, *, alone: bool) -> Uses:
    """Return uses sorted by flow and port, with those of the same flow and port merged; `alone` says that none are."""
    order = np.lexsort((uses.port, uses.flow)) if not alone else np.argsort(uses.flow, kind="stable")
    flow, port, amount = uses.flow[order], uses.port[order], uses.amount[order]
    if alone or not len(flow):
        return Uses(flow, port, amount, uses.per_owner)
    first = np.flatnonzero((np.diff(flow, prepend=-1) != 0) | (np.diff(port, prepend=-1) != 0))
    return Uses(flow[first], port[first], np.add.reduceat(amount, first), uses.per_owner)


def fold_uses(uses: Uses, flow: Int64) -> Uses:
    """Return what flows that stand for others take of the ports that `uses` speaks of.

    Args:
        uses: What every flow takes of those ports.
        flow: Per flow the one that stands for it.
    """
    return _merge_uses(Uses(flow[uses.flow], uses.port, uses.amount, uses.per_owner), alone=False)
