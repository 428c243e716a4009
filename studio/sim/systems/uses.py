"""What a job asks of a network: its collectives by kind, group and size, and the devices it was recorded on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.groups import collect_comm_nodes
from studio.analysis.job.completeness import infer_completeness
from studio.analysis.job.renumbered import share_graphs
from studio.distinct import find_distinct
from studio.sim.collectives import EXTENDED_KIND_OF
from studio.trace import NONE, WORLD, Graph, Int64, NodeType, Trace, list_recorded_devices


@dataclass(frozen=True, slots=True)
class Uses:
    """The collectives of a job.

    Attributes:
        ranks: Ranks of the job.
        groups: Ranks by comm group, as far as the job lists them; "" is all.
        sizes: `comm_size` of the collectives, rising, by kind and group.
        devices: What the ranks were recorded on, most frequent first.
    """

    ranks: int
    groups: Mapping[str, tuple[int, ...]]
    sizes: Mapping[tuple[str, str], Int64]
    devices: tuple[str, ...]


def uses_of(trace: Trace) -> Uses:
    """Return what a job asks of a network."""
    ranks, trace = infer_completeness(trace).world, share_graphs(trace)
    listed = {group.name: tuple(group.ranks) for group in trace.groups}
    by_graph = [_group_sizes(graph) for graph in trace.graphs]
    sizes_of: dict[tuple[str, str], list[Int64]] = {}
    seen = set()
    for rank in trace.ranks:
        for (kind, slot), sizes in by_graph[rank.graph].items():
            name = WORLD if slot == NONE else str(rank.slots[slot])
            if (rank.graph, kind, name) not in seen:
                seen.add((rank.graph, kind, name))
                sizes_of.setdefault((kind, name), []).append(sizes)
    used = {name for _, name in sizes_of}
    groups = {name: listed.get(name, tuple(range(ranks)) if name == WORLD else ()) for name in used}
    several = {
        key: find_distinct(np.concatenate(sizes))
        for key, sizes in sizes_of.items()
        if len(groups[key[1]]) > 1
    }
    return Uses(ranks, groups, several, list_recorded_devices(trace))


def _group_sizes(graph: Graph) -> dict[tuple[str, int], Int64]:
    """Return the sizes of a graph's collectives, by kind and by the slot that holds their group."""
    nodes = collect_comm_nodes(graph)
    collective = nodes.type == NodeType.COMM_COLL
    by_slot: dict[tuple[str, int], Int64] = {}
    for number, slot in {
        *zip(nodes.collective[collective].tolist(), nodes.group_slot[collective].tolist(), strict=True)
    }:
        kind = EXTENDED_KIND_OF.get(number)
        if kind is not None:
            is_own = collective & (nodes.collective == number) & (nodes.group_slot == slot)
            by_slot[kind, slot] = find_distinct(nodes.bytes[is_own])
    return by_slot
