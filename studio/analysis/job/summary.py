"""A job in a few numbers, computed once at import and stored with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from studio.analysis.collectives.groups import collect_comm_nodes
from studio.analysis.job.kinds import (
    LIBRARY_KERNEL,
    infer_counted_types,
    label_counted_type,
)
from studio.analysis.job.renumbered import share_graphs
from studio.distinct import find_distinct
from studio.notebook import format_record
from studio.trace import (
    NONE,
    Graph,
    Int64,
    NodeType,
    Trace,
    compute_recorded_ends,
    label_collective,
    read_int_column,
    type_name,
)
from studio.units import format_counted, format_ns

EDITION: Final = 1
"""Raised when a number of `Summary` means something else than before; jobs that were stored with those of an older one are counted again."""


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
        bytes_most_rank: The rank with the most payload; -1 where several tie, or none has any.
        duration_ns: Recorded durations on all ranks together.
        duration_most_ns, duration_most_rank: Longest on one rank, and which it is; -1 where several tie, or nothing is
            recorded.
    """

    name: str
    nodes: int
    rank_least: int
    rank_most: int
    bytes: int = 0
    bytes_least: int = 0
    bytes_most: int = 0
    bytes_mean: float = 0.0
    bytes_most_rank: int = NONE
    duration_ns: int = 0
    duration_most_ns: int = 0
    duration_most_rank: int = NONE

    __repr__ = format_record


@dataclass(frozen=True, slots=True)
class Summary:
    """A job in a few numbers.

    Attributes:
        ranks: Ranks present.
        graphs: Distinct graphs among them.
        nodes: Nodes on all ranks together.
        control_dependencies, data_dependencies: Likewise.
        types: Nodes by type, most frequent first; gaps that linking found are no COMP.
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

    __repr__ = format_record


Sums = tuple[int, int, int]
"""Nodes, bytes and recorded nanoseconds."""


@dataclass(frozen=True, slots=True)
class GraphFigures:
    """Counts and sums of one graph, of which the summary of a job is made.

    Attributes:
        nodes, control_dependencies, data_dependencies, operations, timed_nodes, duration_ns: As in `Summary`, of the graph.
        start_ns, end_ns: First recorded start and last recorded end; the largest number and -1 where there is none.
        types, collectives: Sums by kind.
    """

    nodes: int
    control_dependencies: int
    data_dependencies: int
    operations: int
    timed_nodes: int
    duration_ns: int
    start_ns: int
    end_ns: int
    types: dict[str, Sums]
    collectives: dict[str, Sums]


def count_graph(graph: Graph) -> GraphFigures:
    """Return what the summary of a job needs of a graph."""
    timed = graph.start_ns >= 0
    return GraphFigures(
        nodes=len(graph),
        control_dependencies=len(graph.ctrl.rows),
        data_dependencies=len(graph.data.rows),
        operations=int(read_int_column(graph, "num_ops")[1].sum()),
        timed_nodes=int(timed.sum()),
        duration_ns=int(graph.duration_ns.sum()),
        start_ns=int(graph.start_ns[timed].min(initial=2**63 - 1)),
        end_ns=int(compute_recorded_ends(graph)[timed].max(initial=NONE)),
        types=_sum_by_type(graph),
        collectives=_sum_by_collective(graph),
    )


def summarise(trace: Trace, figures: Sequence[GraphFigures] | None = None) -> Summary:
    """Return the summary of a trace.

    Args:
        trace: The trace.
        figures: Those of its graphs, where they are known.
    """
    distinct = len(trace.graphs)
    trace = trace if figures else share_graphs(trace)
    uses = trace.count_ranks()
    counted = figures or [count_graph(graph) for graph in trace.graphs]

    def sum_over_ranks(what: Callable[[GraphFigures], int]) -> int:
        return sum(what(own) * count for own, count in zip(counted, uses, strict=True))

    return Summary(
        ranks=len(trace.ranks),
        graphs=distinct,
        nodes=sum_over_ranks(lambda own: own.nodes),
        control_dependencies=sum_over_ranks(lambda own: own.control_dependencies),
        data_dependencies=sum_over_ranks(lambda own: own.data_dependencies),
        types=_compute_shares(trace, [own.types for own in counted], by_bytes=False),
        collectives=_compute_shares(trace, [own.collectives for own in counted], by_bytes=True),
        operations=sum_over_ranks(lambda own: own.operations),
        start_ns=min((own.start_ns for own in counted), default=NONE)
        if any(own.timed_nodes for own in counted)
        else NONE,
        end_ns=max((own.end_ns for own in counted), default=NONE),
        timed_nodes=sum_over_ranks(lambda own: own.timed_nodes),
        duration_ns=sum_over_ranks(lambda own: own.duration_ns),
        schema=tuple(sorted({rank.version for rank in trace.ranks if rank.version})),
    )


def describe_unknown_kernels(summary: Summary) -> str:
    """Return a sentence on communication kernels of which neither type nor size is known; "" where there are none.

    Example:
        >>> import studio
        >>> describe_unknown_kernels(summarise(studio.read(studio.sample_path("transformer_8r"))))
        ''
    """
    kernels = next((share for share in summary.types if share.name == LIBRARY_KERNEL), None)
    if kernels is None:
        return ""
    single = kernels.nodes == 1
    return (
        f"{format_counted(kernels.nodes, 'communication kernel')}, {format_ns(kernels.duration_ns)} in all, "
        f"{'is' if single else 'are'} of unknown type and size: nothing in the recording says which {'collective it is' if single else 'collectives they are'}."
    )


def _compute_shares(trace: Trace, tables: Sequence[dict[str, Sums]], *, by_bytes: bool) -> tuple[Share, ...]:
    """Return the kinds in tables of each graph, summed over ranks.

    Types are ordered by nodes, collectives by bytes, then nodes: by what tells most of each.
    """
    graph_of_rank = np.array([rank.graph for rank in trace.ranks], np.int64)
    numbers = [rank.number for rank in trace.ranks]
    shares = []
    for name in sorted({name for table in tables for name in table}):
        sums = np.array([table.get(name, (0, 0, 0)) for table in tables], np.int64)[graph_of_rank]
        shares.append(_build_share(name, sums, numbers))
    return tuple(
        sorted(shares, key=lambda share: (-share.bytes if by_bytes else 0, -share.nodes, share.name))
    )


def _sum_by_type(graph: Graph) -> dict[str, Sums]:
    size = np.zeros(len(graph), np.int64)
    nodes = collect_comm_nodes(graph)
    size[nodes.rows] = nodes.bytes
    by_type = {}
    types = infer_counted_types(graph)
    for number in find_distinct(types).tolist():
        chosen = types == number
        sums = int(chosen.sum()), int(size[chosen].sum()), int(graph.duration_ns[chosen].sum())
        by_type[label_counted_type(number)] = sums
    return by_type


def _sum_by_collective(graph: Graph) -> dict[str, Sums]:
    """Return collectives by type; sends and receives under the name of their node type."""
    nodes = collect_comm_nodes(graph)
    duration_ns = graph.duration_ns[nodes.rows]
    labels = np.where(nodes.type == NodeType.COMM_COLL, nodes.collective, -10 - nodes.type.astype(np.int64))
    by_label = {}
    for label in find_distinct(labels).tolist():
        chosen = labels == label
        sums = int(chosen.sum()), int(nodes.bytes[chosen].sum()), int(duration_ns[chosen].sum())
        by_label[_label_kind(label)] = sums
    return by_label


def count_unsized(trace: Trace) -> dict[str, int]:
    """Return how many communication nodes of each kind of `Summary.collectives` have no size."""
    trace = share_graphs(trace)
    uses = trace.count_ranks()
    counts: dict[str, int] = {}
    for graph, count in zip(trace.graphs, uses, strict=True):
        nodes = collect_comm_nodes(graph)
        labels = np.where(
            nodes.type == NodeType.COMM_COLL, nodes.collective, -10 - nodes.type.astype(np.int64)
        )
        for label, rows in zip(*np.unique(labels[~nodes.sized], return_counts=True), strict=True):
            name = _label_kind(int(label))
            counts[name] = counts.get(name, 0) + int(rows) * count
    return counts


def _label_kind(label: int) -> str:
    if label <= -10:
        return type_name(-10 - label).removeprefix("COMM_")
    return "UNNAMED COLLECTIVE" if label == NONE else label_collective(label)


def rank_with_most(of_rank: Int64, ranks: Sequence[int]) -> int:
    """Return the rank with the most, -1 where several tie or none has any."""
    most = of_rank.max()
    indices = np.flatnonzero(of_rank == most)
    return ranks[indices[0]] if most and len(indices) == 1 else NONE


def _build_share(name: str, sums: Int64, ranks: Sequence[int]) -> Share:
    """Return the share of one kind, from its (R, 3) sums per rank."""
    counts, sizes, times = sums.T
    return Share(
        name,
        int(counts.sum()),
        int(counts.min()),
        int(counts.max()),
        int(sizes.sum()),
        int(sizes.min()),
        int(sizes.max()),
        float(sizes.mean()),
        rank_with_most(sizes, ranks),
        int(times.sum()),
        int(times.max()),
        rank_with_most(times, ranks),
    )
