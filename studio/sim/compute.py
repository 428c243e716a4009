"""Where the time of compute nodes comes from: the recording, the roofline, or nowhere.

In the model of ASTRA-sim a system with a roofline replaces every recorded time. Beyond it a node keeps its own, and
the roofline serves those without one, unless all are to be computed anew for another GPU.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from studio.analysis.job.renumbered import share_graphs
from studio.distinct import find_distinct
from studio.sim.config import SystemConfig
from studio.trace import (
    Bool,
    Float64,
    Graph,
    Int32,
    Int64,
    NodeType,
    Trace,
    are_copies,
    are_idle,
    find_int_column,
    is_flagged,
    is_generated,
    read_int_column,
)


class Source(IntEnum):
    """Where the time of a node comes from; NONE is for nodes that do not compute on a device."""

    NONE = 0
    RECORDED = 1
    ROOFLINE = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class ComputeTimes:
    """How many compute nodes of a job take which time; those of all ranks, CPU nodes, copies and idle times left out.

    Attributes:
        recorded: Nodes that take their recorded duration.
        roofline: Nodes that take the time of the roofline.
        unknown: Nodes with neither, which take 1 ns.
        processor: Operators that take the time they were recorded with on a processor (CPU), where no node of the job
            computes on an accelerator; else 0.
        is_generated: Whether the job was generated, so that durations in its files are of no recording.
    """

    recorded: int
    roofline: int
    unknown: int
    processor: int = 0
    is_generated: bool = False

    @property
    def all(self) -> int:
        """Compute nodes in all."""
        return self.recorded + self.roofline + self.unknown

    @property
    def words(self) -> str:
        """The shares in words; empty where nothing computes.

        Example:
            >>> ComputeTimes(98, 2, 0).words
            'compute: recorded on 98 % of nodes, roofline on 2 %, at peak rates: hardware takes longer'
            >>> ComputeTimes(5, 0, 0).words
            'compute: recorded on all nodes'
            >>> ComputeTimes(5, 0, 0, is_generated=True).words
            'compute: generated on all nodes'
            >>> ComputeTimes(0, 5, 0).words
            'compute: roofline on all nodes, at peak rates: hardware takes longer'
            >>> ComputeTimes(0, 0, 0, 12).words
            'compute: recorded on processors (CPU), since no operation of a GPU was recorded'
        """
        if self.processor:
            return "compute: recorded on processors (CPU), since no operation of a GPU was recorded"
        named = (
            ("generated" if self.is_generated else "recorded", self.recorded),
            ("roofline", self.roofline),
            ("no time known (1 ns each)", self.unknown),
        )
        parts = [(name, count) for name, count in named if count]
        bound = ", at peak rates: hardware takes longer" if self.roofline else ""
        if len(parts) == 1:
            return f"compute: {parts[0][0]} on all nodes{bound}"
        texts = [f"{name} on {_format_percent(count, self.all)}" for name, count in parts]
        return f"compute: {texts[0]} of nodes, {', '.join(texts[1:])}{bound}" if texts else ""


def _format_percent(count: int, of: int) -> str:
    """Format a share; neither all nor nothing unless it is."""
    share = 100 * count / of
    if share >= 1 and share <= 99:
        return f"{share:.0f} %"
    return f"{share:.2g} %" if share < 1 else f"{min(share, 99.99):.4g} %"


def compute_times(trace: Trace, config: SystemConfig) -> ComputeTimes:
    """Count the compute nodes of a job by where their times come from."""
    trace = share_graphs(trace)
    ranks = Counter(rank.graph for rank in trace.ranks)
    counts = np.zeros(len(Source), np.int64)
    for index, times in ranks.items():
        counts += times * np.bincount(compute_sources(trace.graphs[index], config), minlength=len(Source))
    recorded, roofline, unknown = (
        int(counts[source]) for source in (Source.RECORDED, Source.ROOFLINE, Source.UNKNOWN)
    )
    if recorded or roofline or unknown or config.extensions is None:
        generated = all(map(is_generated, trace.ranks))
        return ComputeTimes(recorded, roofline, unknown, is_generated=generated)
    operators = sum(times * _count_timed_operators(trace.graphs[index]) for index, times in ranks.items())
    return ComputeTimes(0, 0, 0, processor=operators)


def _count_timed_operators(graph: Graph) -> int:
    """Count the operators that a processor ran for a recorded time; the time between operators is none."""
    operators = (graph.type == NodeType.COMP) & is_flagged(graph, "is_cpu_op") & (graph.duration_ns > 0)
    operators[graph.rows_with("gap")[0]] = False
    return int(operators.sum())


def compute_mean_times(trace: Trace, config: SystemConfig) -> dict[str, float]:
    """Return what the compute nodes of a rank take together, in the mean, by what `compute-times` may be.

    One after the other: where nodes overlap, a run takes less.
    """
    if config.roofline is None or config.extensions is None:
        return {}
    trace = share_graphs(trace)
    ranks = Counter(rank.graph for rank in trace.ranks)
    totals = {}
    for choice in ("recorded", "roofline"):
        extensions = replace(config.extensions, compute_times=choice)
        other = replace(config, extensions=extensions)
        each = sum(count * _compute_total_ns(trace.graphs[index], other) for index, count in ranks.items())
        totals[choice] = each / max(len(trace.ranks), 1)
    return totals


def _compute_total_ns(graph: Graph, config: SystemConfig) -> float:
    sources = compute_sources(graph, config)
    recorded = int(graph.duration_ns[sources == Source.RECORDED].sum())
    computed = np.flatnonzero(sources == Source.ROOFLINE)
    ops, size = (_read_column(graph, key)[computed] for key in ("num_ops", "tensor_size"))
    some = size > 0
    performance = compute_attainable(config, ops[some], size[some])[1]
    return recorded + float((ops[some] / performance * 1e9).sum()) + int((sources == Source.UNKNOWN).sum())


def _read_column(graph: Graph, key: str) -> Int64:
    rows, values = read_int_column(graph, key)
    column = np.zeros(len(graph), np.int64)
    column[rows] = values
    return column


def compute_attainable(config: SystemConfig, ops: Int64, size_bytes: Int64) -> tuple[Float64, Float64]:
    """Return intensity (operations per byte) and attainable performance (operations per second) under the roofline."""
    assert config.roofline is not None
    bandwidth, peak = config.local_memory_bytes_per_ns * 1e9, config.roofline.peak_tera_ops_per_s * 1e12
    intensity = ops.astype(np.float64) / size_bytes.astype(np.float64)
    return intensity, np.minimum(bandwidth * intensity, peak)


@dataclass(frozen=True, slots=True)
class ComputeColumns:
    """What decides where the times of compute nodes come from, of graphs that differ in times and operations alone.

    N nodes.

    Attributes:
        computes: (N,) whether it is a node that computes on the device.
        ops, size: Rows of the nodes that say how many operations they are and how many bytes they touch, and where.
        are_whole: Whether all that say so do in whole numbers.
    """

    computes: Bool
    ops: tuple[Int32, Int64]
    size: tuple[Int32, Int64]
    are_whole: bool


def find_compute_columns(graph: Graph) -> ComputeColumns:
    """Return what decides where times of compute nodes come from."""
    computes = (
        (graph.type == NodeType.COMP)
        & ~is_flagged(graph, "is_cpu_op")
        & ~are_idle(graph)
        & ~are_copies(graph)
    )
    ops, size = (find_int_column(graph, key) for key in ("num_ops", "tensor_size"))
    are_whole = all(
        len(find_distinct(graph.rows_with(key)[0])) == len(rows)
        for key, (rows, _) in (("num_ops", ops), ("tensor_size", size))
    )
    return ComputeColumns(computes, ops, size, are_whole)


def compute_sources(graph: Graph, config: SystemConfig, columns: ComputeColumns | None = None) -> Int64:
    """Return (N,) where the time of each node comes from, as `Source`.

    Args:
        graph: The graph.
        config: The system.
        columns: What `find_compute_columns` returns, where it is known.
    """
    columns = columns or find_compute_columns(graph)
    recorded: Bool = graph.duration_ns > 0
    sources = np.where(recorded, Source.RECORDED, Source.UNKNOWN)
    if config.roofline is not None and config.needs_every_rank:
        has_operations = _says_operations(graph, columns)
        if config.extensions is None:
            sources[:] = Source.ROOFLINE
        elif config.extensions.compute_times == "roofline":
            sources[has_operations] = Source.ROOFLINE
        else:
            sources[has_operations & ~recorded] = Source.ROOFLINE
    return np.where(columns.computes, sources, Source.NONE)


def _says_operations(graph: Graph, columns: ComputeColumns) -> Bool:
    """Return (N,) whether a node says how many operations it is, and how many bytes it touches."""
    is_known = np.ones(len(graph), bool)
    # No bytes is a statement: the node completes at once. No operations is none.
    for (rows, where), least in ((columns.ops, 1), (columns.size, 0)):
        column = np.zeros(len(graph), bool)
        column[rows] = graph.attrs.value[where] >= least
        is_known &= column
    return is_known
