"""Durations of the nodes of each type in a run or recording, and the rank where they are longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studio.analysis.job.kinds import infer_counted_types, label_counted_type
from studio.analysis.job.summary import rank_with_most
from studio.distinct import find_distinct
from studio.timeline import NodeTimes
from studio.trace import Int32, Int64, Trace


@dataclass(frozen=True, slots=True)
class TypeTime:
    """Total duration of the nodes of one type; overlapping nodes count in full.

    Attributes:
        total_ns: On all ranks together.
        most_ns, most_rank: Longest on one rank, and which it is; -1 where several tie, or it is 0.
    """

    total_ns: int
    most_ns: int
    most_rank: int


def type_times(trace: Trace, times: NodeTimes) -> dict[str, TypeTime]:
    """Return the total durations of each node type of a trace; gaps have types of their own."""
    types = [infer_counted_types(graph) for graph in trace.graphs]
    kinds = sorted({kind for of_graph in types for kind in find_distinct(of_graph).tolist()})
    sums = np.zeros((len(trace.ranks), len(kinds)), np.int64)
    known: dict[tuple[int, int], list[int]] = {}  # ranks that one was simulated for share its times
    for index, (rank, first) in enumerate(zip(trace.ranks, times.first.tolist(), strict=True)):
        if first < 0:
            continue
        if (rank.graph, first) not in known:
            own_types = types[rank.graph]
            known[rank.graph, first] = _sum_by_kind(
                own_types, _compute_durations(times, first, len(own_types)), kinds
            )
        sums[index] = known[rank.graph, first]
    numbers = [rank.number for rank in trace.ranks]
    return {
        label_counted_type(kind): _build_type_time(sums[:, column], numbers)
        for column, kind in enumerate(kinds)
    }


def _compute_durations(times: NodeTimes, first: int, count: int) -> Int64:
    start, end = times.start_ns[first : first + count], times.end_ns[first : first + count]
    return np.where((start < 0) | (end < 0), 0, end - start)


def _sum_by_kind(types: Int32, lasted: Int64, kinds: Sequence[int]) -> list[int]:
    return [int(lasted[types == kind].sum()) for kind in kinds]


def _build_type_time(of_rank: Int64, numbers: Sequence[int]) -> TypeTime:
    return TypeTime(int(of_rank.sum()), int(of_rank.max()), rank_with_most(of_rank, numbers))
