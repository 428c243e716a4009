"""Collect from the plan what folding needs; store the classes it finds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from studio.distinct import find_distinct
from studio.sim.collectives import Phase, build_group_phases
from studio.sim.flow_classes import FlowClasses, fold_flows, number_bundle_costs
from studio.sim.flow_plans import Bundles
from studio.sim.flow_uses import fold_uses, join_uses, list_link_uses, list_port_uses
from studio.sim.fold_job import WORLD_GROUP, GraphUse, Job, Neighbourhood, Unfoldable
from studio.sim.folding import ALL_DIFFER, Folding, fold
from studio.sim.kernel import records as k
from studio.sim.node_links import NodeLinks, find_links
from studio.sim.planning import GraphPlan, Planning
from studio.sim.slots import group_number, is_world
from studio.trace import Int64


def fold_ranks(planning: Planning, plans: dict[int, GraphPlan]) -> str:
    """Find the ranks to simulate; returns why none can be folded, or ""."""
    graph_of = np.array([rank.graph for rank in planning.trace.ranks], np.int64)
    if planning.bundles is not None:
        return _fold_flows(planning, planning.bundles, graph_of)
    number_of = group_number if planning.extensions is None else None
    try:
        if planning.replays:
            raise Unfoldable("communication takes its recorded times")
        if planning.extensions is not None and planning.extensions.rank_starts == "recorded":
            raise Unfoldable("ranks begin at their recorded times")
        if len(find_distinct(graph_of)) == len(graph_of):
            raise Unfoldable(ALL_DIFFER)
        uses = [
            _build_use(planning, plan, np.flatnonzero(graph_of == index)) for index, plan in plans.items()
        ]
        planning.folding = fold(
            Job(planning.config, uses, graph_of, planning.groups, partial(is_world, planning), number_of)
        )
    except Unfoldable as reason:
        return str(reason)
    planning.simulated = [planning.trace.ranks[place] for place in planning.folding.representatives.tolist()]
    return ""


def put_uses(planning: Planning) -> None:
    """Work out the flows and what they take of ports, where each rank is simulated."""
    if planning.bundles is None or planning.flows is not None:
        return
    assert planning.costs is not None
    bundles, known = planning.bundles, planning.known
    # Of the same bundles, whatever they cost.
    flows = bundles.expand() if known is None else known.once("expansion", bundles, bundles.expand)
    planning.flows = planning.every_flow = bundles.add_costs(flows, planning.costs)
    per_node = planning.config.topology.dims[0].size
    ports = list_port_uses(planning.flows, planning.npus, per_node, by_node=planning.shares_nics)
    links = _find_node_links(planning, planning.bundles, per_node)
    planning.uses = join_uses(ports, list_link_uses(planning.flows, planning.bundles, links, planning.npus))


def _find_node_links(planning: Planning, bundles: Bundles, per_node: int) -> NodeLinks:
    """Return the links inside nodes that several flows may pass at once; none behind a switch, or without congestion."""
    config = planning.config
    peers = config.costs.wiring.peers if config.costs is not None else 0
    if config.congestion == "unaware":
        peers = 0

    def find() -> NodeLinks:
        return find_links(bundles, per_node, peers)

    return (
        find() if planning.known is None else planning.known.once("links", (bundles, per_node, peers), find)
    )


def _fold_flows(planning: Planning, bundles: Bundles, graph_of: Int64) -> str:
    """Find the ranks to simulate of a job whose collectives and messages are flows; returns why none can be folded, or ""."""
    extensions, memory, costs = planning.extensions, planning.config.remote_memory, planning.costs
    assert costs is not None
    if not planning.symmetric:
        return "what happens first within a nanosecond depends on the numbers of ranks"
    if memory is not None and memory.sharing != "per_npu":
        return "NPUs wait for shared memory in the order of their numbers"
    if extensions is not None and extensions.rank_starts == "recorded":
        return "ranks begin at their recorded times"
    per_node, by_node = planning.config.topology.dims[0].size, planning.shares_nics
    kind_of = graph_of
    if extensions is not None and extensions.compute_speeds:
        speeds = [extensions.compute_speeds.get(rank.number, 1.0) for rank in planning.trace.ranks]
        own = np.unique(np.array(speeds), return_inverse=True)[1].reshape(-1)
        kind_of = graph_of * (int(own.max()) + 1) + own
    try:
        classes = _find_flow_classes(planning, bundles, kind_of, per_node, by_node=by_node)
    except Unfoldable as reason:
        return str(reason)
    planning.folding = classes.folding
    planning.flows = bundles.add_costs(classes.standing, costs)
    planning.every_flow = every = bundles.add_costs(classes.flows, costs)
    ports = list_port_uses(every, planning.npus, per_node, by_node=by_node, owners=classes.owners)
    taken = join_uses(ports, list_link_uses(every, bundles, classes.links, planning.npus, classes.chosen))
    planning.uses = fold_uses(taken, classes.flow)
    planning.simulated = [planning.trace.ranks[place] for place in classes.folding.representatives.tolist()]
    return ""


def _find_flow_classes(
    planning: Planning, bundles: Bundles, kind_of: Int64, per_node: int, *, by_node: bool
) -> FlowClasses:
    """Return the classes of ranks; those that an earlier simulation found, where the same flows cost the same there.

    Which flows and ranks stand for which depends on what is equal only, not on what it is.
    """
    assert planning.costs is not None
    cost = number_bundle_costs(bundles, planning.costs)
    links = _find_node_links(planning, bundles, per_node)

    def find() -> FlowClasses:
        return fold_flows(bundles, cost, kind_of, per_node, by_node=by_node, links=links)

    if planning.known is None:
        return find()
    shared = links.link.tobytes(), links.bundle.tobytes()
    key = bundles, cost.tobytes(), kind_of.tobytes(), per_node, by_node, shared
    return planning.known.once("classes", key, find)


def _build_use(planning: Planning, plan: GraphPlan, ranks: Int64) -> GraphUse:
    """Return what decides about the classes of the ranks of a graph."""
    kind, memory = plan.nodes[:, k.Node.KIND], planning.config.remote_memory
    if memory is not None and memory.sharing != "per_npu" and (kind == k.Kind.MEMORY).any():
        raise Unfoldable("NPUs wait for shared memory in the order of their numbers")
    nodes = plan.nodes[kind == k.Kind.COLLECTIVE]
    world: dict[int, frozenset[Phase]] = {}
    grouped: dict[int, frozenset[Phase]] = {}
    columns = (k.Node.GROUP, k.Node.WORLD, k.Node.GROUPED)
    for slot, all_, part in np.unique(nodes[:, columns], axis=0).tolist():
        if all_ not in planning.phases_of:
            raise Unfoldable("a collective is given as a trace")
        group = slot if slot >= 0 else WORLD_GROUP
        world[group] = world.get(group, frozenset()) | planning.phases_of[all_]
        grouped[group] = grouped.get(group, frozenset()) | _list_grouped_phases(planning, part)
    slots = tuple(sorted(plan.collective_slots)), tuple(sorted(plan.peer_slots))
    own, own_ranks = len(plan.graph.slot_key), [planning.trace.ranks[place] for place in ranks.tolist()]
    values: dict[int, Sequence[int | str]] = {}
    for slot in (*slots[0], *slots[1]):
        if slot < own:
            values[slot] = [rank.slots[slot] for rank in own_ranks]
        else:
            values[slot] = [plan.literals[slot - own][1]] * len(own_ranks)
    return GraphUse(ranks, *slots, values, int(nodes[:, k.Node.STREAMS].sum()), world, grouped)


def _list_grouped_phases(planning: Planning, part: int) -> frozenset[Phase]:
    """Return the phases in comm groups that nodes name: as a list, or in the extended mode as a variety."""
    if planning.extensions is None:
        return planning.phases_of[part]
    return frozenset(build_group_phases(planning.config, list(planning.varieties)[part].kind))


def name_neighbourhoods(planning: Planning, folding: Folding) -> None:
    """Write the name of its neighbourhood into each phase."""
    placed = dict(planning.arena.parts)
    for key, start in planning.lists.items():
        if key[0] == "phases":
            for i, phase in enumerate(key[2:]):
                assert isinstance(phase, Phase)
                record = placed[start][8 + k.Phase.WORDS * i :]
                record[k.Phase.NAME] = folding.kinds.get(Neighbourhood.of(phase), 0)
