"""Export a rank as a pandas table or a networkx graph, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from studio.analysis.collectives.groups import comm_nodes
from studio.errors import TraceError
from studio.trace import (
    NONE,
    Graph,
    NodeType,
    Rank,
    Trace,
    collective_name,
    dense_column,
    dependency_ids,
    node_attributes,
    shown_type,
    shown_types,
    type_name,
)

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd


def to_pandas(trace: Trace, rank: int) -> pd.DataFrame:
    """Return the nodes of a rank as a table, one row per node in file order.

    Columns: id, name, type, start_ns (missing where not recorded), duration_ns, operations, collective, group,
    bytes, ctrl_deps and data_deps (lists of ids).

    Raises:
        TraceError: The trace has no such rank.
    """
    import pandas as pd

    owner = _rank(trace, rank)
    graph = trace.graph_of(owner)
    names, communication = list(graph.strings), comm_nodes(graph)
    collective, group = np.full(len(graph), None, object), np.full(len(graph), None, object)
    for row, kind, number, slot in zip(
        communication.rows.tolist(),
        communication.type.tolist(),
        communication.collective.tolist(),
        communication.group_slot.tolist(),
        strict=True,
    ):
        if kind == NodeType.COMM_COLL and number != NONE:
            collective[row] = collective_name(number)
        if slot != NONE:
            group[row] = str(owner.slots[slot])
    return pd.DataFrame(
        {
            "id": graph.id,
            "name": [names[code] for code in graph.name.tolist()],
            "type": pd.Categorical([type_name(number) for number in shown_types(graph).tolist()]),
            "start_ns": pd.Series(graph.start_ns, dtype="Int64").mask(graph.start_ns < 0),
            "duration_ns": graph.duration_ns,
            "operations": dense_column(graph, "num_ops", 0),
            "collective": collective,
            "group": group,
            "bytes": dense_column(graph, "comm_size", 0),
            "ctrl_deps": _ids(graph, "ctrl"),
            "data_deps": _ids(graph, "data"),
        }
    )


def to_networkx(trace: Trace, rank: int) -> nx.MultiDiGraph[int]:
    """Return a rank as a graph with edges from each node to the nodes that wait for it.

    Nodes are row numbers with `id`, `name`, `type`, `start_ns`, `duration_ns` and `attributes` (name → value); edges
    have `kind`, "data" or "ctrl". Dangling dependencies have no edge.

    Raises:
        TraceError: The trace has no such rank.
    """
    import networkx as nx

    owner = _rank(trace, rank)
    graph = trace.graph_of(owner)
    result: nx.MultiDiGraph[int] = nx.MultiDiGraph(rank=rank)
    for row in range(len(graph)):
        attributes = {
            attribute.name: attribute.value for attribute in node_attributes(graph, row, owner.slots)
        }
        result.add_node(
            row,
            id=int(graph.id[row]),
            name=graph.strings[int(graph.name[row])],
            type=type_name(shown_type(graph, row)),
            start_ns=int(graph.start_ns[row]),
            duration_ns=int(graph.duration_ns[row]),
            attributes=attributes,
        )
    for kind in ("ctrl", "data"):
        deps = getattr(graph, kind)
        after = np.repeat(np.arange(len(graph)), np.diff(deps.offsets))
        there = deps.rows >= 0
        pairs = zip(deps.rows[there].tolist(), after[there].tolist(), strict=True)
        result.add_edges_from(((before, later) for before, later in pairs), kind=kind)
    return result


def _rank(trace: Trace, number: int) -> Rank:
    rank = trace.rank(number)
    if rank is None:
        known = ", ".join(str(rank.number) for rank in trace.ranks[:8]) + (
            ", …" if len(trace.ranks) > 8 else ""
        )
        raise TraceError(f"The trace has no rank {number}.", hint=f"Its ranks are {known}.")
    return rank


def _ids(graph: Graph, kind: str) -> list[list[int]]:
    deps = getattr(graph, kind)
    ids = dependency_ids(graph, deps)
    return [part.tolist() for part in np.split(ids, deps.offsets[1:-1])] if len(graph) else []
