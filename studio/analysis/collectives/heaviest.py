"""Which collective moves the most in a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from studio.analysis.collectives.groups import collect_comm_nodes
from studio.analysis.job.completeness import infer_completeness
from studio.trace import NONE, CollectiveType, Graph, NodeType, Trace


@dataclass(frozen=True, slots=True)
class Heaviest:
    """Collectives of one kind, size and group.

    Attributes:
        kind: Their name, such as all_reduce.
        bytes: What a rank puts in.
        ranks: The members.
    """

    kind: str
    bytes: int
    ranks: tuple[int, ...]


def find_heaviest_collective(trace: Trace, kinds: Container[str]) -> Heaviest | None:
    """Return the collectives of one kind, size and group that move most bytes in all; None where there are none.

    Args:
        trace: The job.
        kinds: The kinds that count.
    """
    total: Counter[tuple[int, int, str]] = Counter()
    counted: dict[int, list[list[int]]] = {}
    for rank in trace.ranks:
        if rank.graph not in counted:
            counted[rank.graph] = _count_collectives(trace.graphs[rank.graph])
        for kind, size, slot, count in counted[rank.graph]:
            group = str(rank.slots[slot]) if slot != NONE else ""
            total[(kind, size, group)] += size * count
    listed = {group.name: group.ranks for group in trace.groups}
    everyone = tuple(range(infer_completeness(trace).world))
    for (kind, size, group), _ in total.most_common():
        name, members = CollectiveType(kind).name.lower(), listed.get(group, everyone)
        if name in kinds and len(members) > 1:
            return Heaviest(name, size, members)
    return None


def _count_collectives(graph: Graph) -> list[list[int]]:
    """Return kind, size and slot of the group of the collectives of a graph that move something, each once with its number."""
    nodes = collect_comm_nodes(graph)
    chosen = (nodes.type == NodeType.COMM_COLL) & (nodes.collective != NONE) & (nodes.bytes > 0)
    columns = np.column_stack((nodes.collective[chosen], nodes.bytes[chosen], nodes.group_slot[chosen]))
    distinct, count = np.unique(columns, axis=0, return_counts=True)
    rows: list[list[int]] = np.column_stack((distinct, count)).tolist()
    return rows
