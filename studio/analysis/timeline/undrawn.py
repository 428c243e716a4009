"""Find nodes without times, which a Gantt cannot draw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studio.analysis.job.kinds import infer_counted_types, label_counted_type
from studio.analysis.timeline.gantt import Gantt


@dataclass(frozen=True, slots=True)
class Undrawn:
    """Nodes of the job that have no bar.

    Attributes:
        nodes: All nodes of all ranks, drawn or not.
        by_type: How many of each type are not drawn, the most first; their sum and the bars make `nodes`.
        ranks: Numbers of the ranks none of whose nodes is drawn, rising.
    """

    nodes: int
    by_type: tuple[tuple[str, int], ...]
    ranks: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many nodes are not drawn."""
        return sum(count for _, count in self.by_type)


def find_undrawn(gantt: Gantt) -> Undrawn:
    """Return the nodes of a job that have no span in a Gantt."""
    trace = gantt.trace
    nodes = sum(len(trace.graph_of(rank)) for rank in trace.ranks)
    if nodes == len(gantt):
        return Undrawn(nodes, (), ())
    left: Counter[int] = Counter()
    types = [infer_counted_types(graph) for graph in trace.graphs]
    for graph, uses in Counter(rank.graph for rank in trace.ranks).items():
        _add_counts(left, types[graph], uses)
    rank_of = dict(zip(gantt.rows.track.tolist(), gantt.rows.rank.tolist(), strict=True))
    for track, uses in Counter(gantt.rows.track.tolist()).items():
        part = gantt.coverage.first_places(*gantt.coverage.bounds[track : track + 2].tolist())
        graph_type = types[gantt.rank(rank_of[track]).graph]
        _add_counts(left, graph_type[gantt.coverage.row[part]], -uses)
    by_type = [(label_counted_type(code), count) for code, count in left.most_common() if count]
    drawn = set(gantt.rows.rank.tolist())
    return Undrawn(nodes, tuple(by_type), tuple(sorted({rank.number for rank in trace.ranks} - drawn)))


def _add_counts(left: Counter[int], types: NDArray[np.integer], uses: int) -> None:
    for code, count in zip(*np.unique(types, return_counts=True), strict=True):
        left[int(code)] += int(count) * uses
