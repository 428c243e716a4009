"""Count collectives, sends and receives per rank and comm group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.inferred_facts import lack_size
from studio.analysis.job.renumbered import share_graphs
from studio.distinct import find_distinct
from studio.trace import (
    GROUP_KEYS,
    NONE,
    WORLD,
    Bool,
    CollectiveType,
    Graph,
    Int32,
    Int64,
    NodeType,
    Rank,
    Trace,
    communicates,
    group_slots,
    read_dense_column,
    read_int_column,
)


@dataclass(frozen=True, slots=True)
class CommNodes:
    """The communication nodes of a graph.

    M nodes.

    Attributes:
        rows: (M,) their rows, rising.
        type: (M,) NodeType.
        collective: (M,) CollectiveType, -1 where the node names none.
        bytes: (M,) payload on this rank, 0 where none is written.
        group_slot: (M,) slot of the graph that holds the comm group's name, -1 where it names none.
        sized: (M,) whether the payload is known: it is written, or the node is a barrier, which has none.
    """

    rows: Int64
    type: Int32
    collective: Int64
    bytes: Int64
    group_slot: Int64
    sized: Bool


def collect_comm_nodes(graph: Graph) -> CommNodes:
    """Return the communication nodes of a graph."""
    rows = np.flatnonzero(communicates(graph))
    kind = read_dense_column(graph, "comm_type", NONE)[rows]
    written, amount = np.zeros(len(graph), bool), np.zeros(len(graph), np.int64)
    rows_with_size, values = read_int_column(graph, "comm_size")
    written[rows_with_size], amount[rows_with_size] = True, values
    size = amount[rows]
    sized = written[rows] | ((graph.type[rows] == NodeType.COMM_COLL) & (kind == CollectiveType.BARRIER))
    return CommNodes(rows, graph.type[rows], kind, size, group_slots(graph)[rows], sized)


def find_empty_collectives(graph: Graph, rows: Int64) -> Bool:
    """Return which of some nodes (C,) are collectives that move nothing by what they say, for which libraries wait for nobody.

    Those of empty tensors: gloo returns from them at once, whoever is missing. A barrier has no size and waits for all, as may what
    nobody knows the size of.

    Args:
        graph: The graph.
        rows: (C,) its nodes, in any order.
    """
    among = find_distinct(rows)
    sized, size = read_int_column(graph, "comm_size", among=among)
    empty = sized[(size == 0) & (graph.type[sized] == NodeType.COMM_COLL)].astype(np.int64)
    typed, kind = read_int_column(graph, "comm_type", among=empty)
    is_empty = np.isin(rows, empty) & ~np.isin(rows, typed[kind == CollectiveType.BARRIER])
    is_empty[is_empty] = ~lack_size(graph, rows[is_empty])
    return is_empty


@dataclass(frozen=True, slots=True)
class GroupUse:
    """How much each rank communicates in each comm group.

    C cells, one per group and rank that use each other.

    Attributes:
        groups: Group names, those of the trace first; "" is the group of all ranks.
        ranks: Rank numbers.
        group, rank: (C,) indices into `groups` and `ranks`.
        count, bytes: (C,) communication nodes and their bytes.
        sized: (C,) how many of them say how much they move.
    """

    groups: tuple[str, ...]
    ranks: tuple[int, ...]
    group: Int64
    rank: Int64
    count: Int64
    bytes: Int64
    sized: Int64


def select_shared_use(use: GroupUse) -> tuple[GroupUse, int]:
    """Return the groups of several ranks, and how many have one; all groups, where none has several."""
    members = np.bincount(use.group, minlength=len(use.groups))
    keep = np.flatnonzero(members > 1)
    if not len(keep):
        return use, 0
    place = np.full(len(use.groups), -1, np.int64)
    place[keep] = np.arange(len(keep))
    inside = place[use.group] >= 0
    names = tuple(use.groups[index] for index in keep.tolist())
    cells = [column[inside] for column in (place[use.group], use.rank, use.count, use.bytes, use.sized)]
    return GroupUse(names, use.ranks, *cells), len(use.groups) - len(keep)


def sum_group_use(trace: Trace) -> GroupUse:
    """Sum communication per comm group and rank. Members that send nothing have cells of 0."""
    trace = share_graphs(trace)
    number = {group.name: index for index, group in enumerate(trace.groups)}
    tables = [_sum_by_slot(graph) for graph in trace.graphs]
    cells: dict[tuple[int, int], tuple[int, int, int]] = {}
    row_of = {rank.number: index for index, rank in enumerate(trace.ranks)}
    for index, group in enumerate(trace.groups):
        cells.update({(index, row_of[member]): (0, 0, 0) for member in group.ranks if member in row_of})
    for rank_index, rank in enumerate(trace.ranks):
        for slot, count, size, sized in tables[rank.graph]:
            name = WORLD if slot == NONE else str(rank.slots[slot])
            cell = (number.setdefault(name, len(number)), rank_index)
            before = cells.get(cell, (0, 0, 0))
            cells[cell] = (before[0] + count, before[1] + size, before[2] + sized)
    keys = np.array(sorted(cells), np.int64).reshape(-1, 2)
    values = np.array([cells[group, rank] for group, rank in keys.tolist()], np.int64).reshape(-1, 3)
    names, ranks = tuple(number), tuple(rank.number for rank in trace.ranks)
    return GroupUse(names, ranks, keys[:, 0], keys[:, 1], values[:, 0], values[:, 1], values[:, 2])


def _sum_by_slot(graph: Graph) -> list[tuple[int, int, int, int]]:
    """Return (group slot, nodes, bytes, nodes with a size) of a graph's collectives; sends and receives only where they name a group."""
    nodes = collect_comm_nodes(graph)
    counted = (nodes.type == NodeType.COMM_COLL) | (nodes.group_slot != NONE)
    slots, inverse = np.unique(nodes.group_slot[counted], return_inverse=True)
    count = np.bincount(inverse, minlength=len(slots))
    size = np.zeros(len(slots), np.int64)
    np.add.at(size, inverse, nodes.bytes[counted])
    sized = np.bincount(inverse[nodes.sized[counted]], minlength=len(slots))
    columns = (slots, count, size, sized)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def find_group_name(trace: Trace, rank: Rank, row: int) -> str | None:
    """Return the comm group node `row` names, None where it names none."""
    graph = trace.graph_of(rank)
    for key in GROUP_KEYS:
        rows, where = graph.rows_with(key)
        entries = where[rows == row]
        if len(entries) and graph.attrs.slot[entries[-1]]:
            return str(rank.slots[int(graph.attrs.value[entries[-1]])])
    return None
