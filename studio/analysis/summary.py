"""What a job is, in a few numbers: computed once when it is imported and kept with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.communication import comm_nodes
from studio.trace import NONE, Int64, NodeType, Trace, collective_name, int_column, type_name


@dataclass(frozen=True, slots=True)
class Share:
    """One kind of node, over all ranks.

    Attributes:
        name: Node type, or collective type.
        nodes: How many there are on all ranks together.
        rank_least, rank_most: Fewest and most nodes on one rank.
        bytes: Payload on all ranks together, 0 for kinds that move none.
        bytes_least, bytes_most: Least and most payload on one rank.
        bytes_mean: Mean payload of a rank.
    """

    name: str
    nodes: int
    rank_least: int
    rank_most: int
    bytes: int = 0
    bytes_least: int = 0
    bytes_most: int = 0
    bytes_mean: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """A job in a few numbers.

    Attributes:
        ranks: Ranks present.
        graphs: Distinct graphs among them.
        nodes: Nodes on all ranks together.
        control_dependencies, data_dependencies: Likewise.
        types: Nodes by type, most frequent first.
        collectives: Collectives by type, then sends and receives; most bytes first.
        operations: Floating-point operations of compute nodes (attribute `num_ops`), all ranks.
        start_ns, end_ns: First recorded start and last recorded end; -1 where no node has a start.
        timed_nodes: Nodes with a recorded start.
        duration_ns: Recorded durations added up over all ranks.
        schema: Schema versions the files name.
    """

    ranks: int
    graphs: int
    nodes: int
    control_dependencies: int
    data_dependencies: int
    types: tuple[Share, ...]
    collectives: tuple[Share, ...]
    operations: int
    start_ns: int
    end_ns: int
    timed_nodes: int
    duration_ns: int
    schema: tuple[str, ...]


def summarise(trace: Trace) -> Summary:
    """Return the summary of a trace."""
    graph_of_rank = np.array([rank.graph for rank in trace.ranks], np.int64)
    uses = np.bincount(graph_of_rank, minlength=len(trace.graphs)).tolist()
    graphs = trace.graphs
    starts = [int(g.start_ns[g.start_ns >= 0].min(initial=2**63 - 1)) for g in graphs]
    timed = [int((g.start_ns >= 0).sum()) for g in graphs]
    ends = [int((g.start_ns + g.duration_ns)[g.start_ns >= 0].max(initial=NONE)) for g in graphs]
    return Summary(
        ranks=len(trace.ranks),
        graphs=len(graphs),
        nodes=trace.node_count,
        control_dependencies=sum(len(g.ctrl.rows) * n for g, n in zip(graphs, uses, strict=True)),
        data_dependencies=sum(len(g.data.rows) * n for g, n in zip(graphs, uses, strict=True)),
        types=_types(trace, graph_of_rank),
        collectives=_collectives(trace, graph_of_rank),
        operations=sum(int(int_column(g, "num_ops")[1].sum()) * n for g, n in zip(graphs, uses, strict=True)),
        start_ns=min(starts, default=NONE) if any(timed) else NONE,
        end_ns=max(ends, default=NONE),
        timed_nodes=sum(t * n for t, n in zip(timed, uses, strict=True)),
        duration_ns=sum(int(g.duration_ns.sum()) * n for g, n in zip(graphs, uses, strict=True)),
        schema=tuple(sorted({rank.version for rank in trace.ranks if rank.version})),
    )


def _types(trace: Trace, graph_of_rank: Int64) -> tuple[Share, ...]:
    tables = [
        dict(zip(*(a.tolist() for a in np.unique(g.type, return_counts=True)), strict=True))
        for g in trace.graphs
    ]
    numbers = sorted({number for table in tables for number in table})
    shares = []
    for number in numbers:
        per_rank = np.array([table.get(number, 0) for table in tables], np.int64)[graph_of_rank]
        shares.append(_share(type_name(number), per_rank, np.zeros_like(per_rank)))
    return tuple(sorted(shares, key=lambda share: (-share.nodes, share.name)))


def _collectives(trace: Trace, graph_of_rank: Int64) -> tuple[Share, ...]:
    """Return collectives by type, sends and receives among them under their node type's name."""
    tables: list[dict[str, tuple[int, int]]] = []
    for graph in trace.graphs:
        nodes = comm_nodes(graph)
        labels = np.where(
            nodes.type == NodeType.COMM_COLL, nodes.collective, -10 - nodes.type.astype(np.int64)
        )
        table = {}
        for label in np.unique(labels).tolist():
            chosen = labels == label
            table[_label(label)] = (int(chosen.sum()), int(nodes.bytes[chosen].sum()))
        tables.append(table)
    names = sorted({name for table in tables for name in table})
    shares = []
    for name in names:
        counts = np.array([table.get(name, (0, 0))[0] for table in tables], np.int64)[graph_of_rank]
        sizes = np.array([table.get(name, (0, 0))[1] for table in tables], np.int64)[graph_of_rank]
        shares.append(_share(name, counts, sizes))
    return tuple(sorted(shares, key=lambda share: (-share.bytes, -share.nodes, share.name)))


def _label(label: int) -> str:
    if label <= -10:
        return type_name(-10 - label).removeprefix("COMM_")
    return "UNNAMED COLLECTIVE" if label == NONE else collective_name(label)


def _share(name: str, counts: Int64, sizes: Int64) -> Share:
    return Share(
        name,
        int(counts.sum()),
        int(counts.min(initial=2**62)),
        int(counts.max(initial=0)),
        int(sizes.sum()),
        int(sizes.min(initial=2**62)),
        int(sizes.max(initial=0)),
        float(sizes.mean()) if len(sizes) else 0.0,
    )
