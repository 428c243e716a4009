"""Export ranks as pandas and Arrow tables, or one as a networkx graph, for notebooks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from studio.analysis.collectives.groups import CommNodes, collect_comm_nodes
from studio.analysis.job.kinds import infer_counted_types, label_counted_type
from studio.trace import (
    NONE,
    Graph,
    NodeType,
    Rank,
    Trace,
    is_flagged,
    label_collective,
    list_dependency_ids,
    list_node_attributes,
    read_dense_column,
    read_int_column,
)

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import pyarrow as pa


def to_pandas(trace: Trace, rank: int | Rank | None = None) -> pd.DataFrame:
    """Return the nodes of a rank as a table, or those of all ranks, one row per node in file order.

    Columns: rank (where none is chosen), id, name, type, start_ns (missing where not recorded), duration_ns, operations,
    collective, group, bytes, is_cpu_op (work of the host), stream (of a device; missing where none is written), ctrl_deps and
    data_deps (lists of ids). Types are those that `chakra-studio info` counts: `COPY` for copies, and `host gap`, `device gap`,
    `communication kernel` and `assumed arrival` for what is written as compute and is none. Starts are those of the
    file. What a file does not say of duration, operations and bytes is 0.

    Args:
        trace: The job.
        rank: A rank, by number or itself; None puts all of them into one table.

    Raises:
        TraceError: The trace has no such rank.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> nodes = studio.to_pandas(trace)
        >>> len(nodes), sorted(set(nodes["rank"]))
        (2488, [0, 1, 2, 3, 4, 5, 6, 7])
        >>> int(studio.to_pandas(trace, rank=3)["bytes"].sum()) == int(nodes[nodes["rank"] == 3]["bytes"].sum())
        True
    """
    return _build_table(trace) if rank is None else _build_rank_table(trace, trace.known_rank(rank))


def _build_table(trace: Trace) -> pd.DataFrame:
    """Return the nodes of all ranks."""
    import pandas as pd

    # Ranks that share a graph differ in the names of comm groups alone.
    of_graph: dict[int, tuple[pd.DataFrame, CommNodes]] = {}
    tables = []
    for rank in trace.ranks:
        if rank.graph not in of_graph:
            of_graph[rank.graph] = _build_rank_table(trace, rank), collect_comm_nodes(trace.graph_of(rank))
            tables.append(of_graph[rank.graph][0])
            continue
        known, named = of_graph[rank.graph]
        tables.append(known.assign(group=_list_group_names(rank, len(known), named)))
    numbers = np.repeat([rank.number for rank in trace.ranks], [len(table) for table in tables])
    whole = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    whole["type"] = whole["type"].astype("category")
    whole.insert(0, "rank", numbers)
    return whole


def _build_rank_table(trace: Trace, rank: Rank) -> pd.DataFrame:
    """Return the nodes of one rank."""
    import pandas as pd

    graph = trace.graph_of(rank)
    names, communication = list(graph.strings), collect_comm_nodes(graph)
    collective = np.full(len(graph), None, object)
    for row, kind, number in zip(
        communication.rows.tolist(),
        communication.type.tolist(),
        communication.collective.tolist(),
        strict=True,
    ):
        if kind == NodeType.COMM_COLL and number != NONE:
            collective[row] = label_collective(number)
    group = _list_group_names(rank, len(graph), communication)
    streams = np.zeros(len(graph), np.bool_)
    streams[read_int_column(graph, "stream")[0]] = True
    return pd.DataFrame(
        {
            "id": graph.id,
            "name": [names[code] for code in graph.name.tolist()],
            "type": pd.Categorical(_list_type_names(graph)),
            "start_ns": pd.Series(graph.start_ns, dtype="Int64").mask(graph.start_ns < 0),
            "duration_ns": graph.duration_ns,
            "operations": read_dense_column(graph, "num_ops", 0),
            "collective": collective,
            "group": group,
            "bytes": read_dense_column(graph, "comm_size", 0),
            "is_cpu_op": is_flagged(graph, "is_cpu_op"),
            "stream": pd.Series(read_dense_column(graph, "stream", NONE), dtype="Int64").mask(~streams),
            "ctrl_deps": _list_dependency_ids(graph, "ctrl"),
            "data_deps": _list_dependency_ids(graph, "data"),
        }
    )


def _list_group_names(rank: Rank, count: int, communication: CommNodes) -> NDArray[np.object_]:
    """Return (N,) the comm group of each node of a rank, None where it names none."""
    group = np.full(count, None, object)
    for row, slot in zip(communication.rows.tolist(), communication.group_slot.tolist(), strict=True):
        if slot != NONE:
            group[row] = str(rank.slots[slot])
    return group


def to_arrow(trace: Trace, rank: int | Rank | None = None) -> pa.Table:
    """Return the table of `to_pandas` as an Arrow table, for Polars, DuckDB, Parquet and the like.

    Args:
        trace: The job.
        rank: A rank, by number or itself; None puts all of them into one table.

    Raises:
        TraceError: The trace has no such rank.

    Example:
        >>> import studio
        >>> table = studio.to_arrow(studio.read(studio.sample_path("transformer_8r")))
        >>> table.num_rows, table.column_names[:4]
        (2488, ['rank', 'id', 'name', 'type'])
    """
    import pyarrow as pa

    kinds = {"collective": pa.string(), "group": pa.string(), "name": pa.string(), "type": pa.string()}
    kinds |= {"ctrl_deps": pa.list_(pa.uint64()), "data_deps": pa.list_(pa.uint64())}
    frame = to_pandas(trace, rank)
    # A rank at a time would give each its own dictionary of texts.
    columns = {
        str(name): pa.array(frame[name].astype(object) if kind == pa.string() else frame[name], type=kind)
        for name in frame.columns
        for kind in [kinds.get(str(name))]
    }
    return pa.table(columns)


def to_networkx(trace: Trace, rank: int | Rank) -> nx.MultiDiGraph[int]:
    """Return a rank as a graph with edges from each node to the nodes that wait for it.

    Nodes are row numbers with `id`, `name`, `type` (as in `to_pandas`), `start_ns` (-1 where not recorded), `duration_ns` (0
    where not recorded) and `attributes` (name → value); edges have `kind`, "data" or "ctrl". Dangling dependencies have no edge.

    Args:
        trace: The job.
        rank: The rank, by number or itself.

    Raises:
        TraceError: The trace has no such rank.

    Example:
        >>> import studio
        >>> trace = studio.read(studio.sample_path("transformer_8r"))
        >>> graph = studio.to_networkx(trace, rank=0)
        >>> graph.number_of_nodes() == len(trace.graph_of(0))
        True
    """
    import networkx as nx

    owner = trace.known_rank(rank)
    graph = trace.graph_of(owner)
    types = _list_type_names(graph).tolist()
    result: nx.MultiDiGraph[int] = nx.MultiDiGraph(rank=rank)
    for row in range(len(graph)):
        attributes = {
            attribute.name: attribute.value for attribute in list_node_attributes(graph, row, owner.slots)
        }
        result.add_node(
            row,
            id=int(graph.id[row]),
            name=graph.strings[int(graph.name[row])],
            type=types[row],
            start_ns=int(graph.start_ns[row]),
            duration_ns=int(graph.duration_ns[row]),
            attributes=attributes,
        )
    for kind in ("ctrl", "data"):
        deps = getattr(graph, kind)
        after = deps.list_waiting()
        is_present = deps.rows >= 0
        pairs = zip(deps.rows[is_present].tolist(), after[is_present].tolist(), strict=True)
        result.add_edges_from(((before, later) for before, later in pairs), kind=kind)
    return result


def _list_type_names(graph: Graph) -> NDArray[np.object_]:
    """Return (N,) the types that nodes are counted by, in words."""
    numbers, which = np.unique(infer_counted_types(graph), return_inverse=True)
    return np.array([label_counted_type(number) for number in numbers.tolist()], object)[which]


def _list_dependency_ids(graph: Graph, kind: str) -> list[list[int]]:
    deps = getattr(graph, kind)
    ids, offsets = list_dependency_ids(graph, deps).tolist(), deps.offsets.tolist()
    return [ids[low:high] for low, high in pairwise(offsets)]
