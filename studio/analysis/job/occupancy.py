"""What all ranks did over time: the share of ranks in each part, in equal bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.breakdown import COMMUNICATION, COMPUTE, COPY, CPU, MEMORY, node_kinds
from studio.timeline import NodeTimes
from studio.trace import NONE, Float64, Int64, Trace

LAYERS = (COMPUTE, COMMUNICATION, COPY, MEMORY, CPU)
"""A moment of a rank counts as the first of these that is under way."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The share of ranks in each part over time.

    B bins.

    Attributes:
        edges_ns: (B+1,) from the beginning of the run to its finish.
        share: (5, B) share of the ranks' time in each of `LAYERS`, 0 to 1; what is left is idle.
        ranks: How many ranks have times.
    """

    edges_ns: Float64
    share: Float64
    ranks: int


def occupancy(trace: Trace, times: NodeTimes, *, origin_ns: int, makespan_ns: int, bins: int) -> Occupancy:
    """Return the share of ranks in each part; overlaps count for the first of `LAYERS`.

    Args:
        trace: The job.
        times: When its nodes ran.
        origin_ns: When the run began.
        makespan_ns: How long it took.
        bins: Into how many equal parts it is cut.
    """
    known = np.flatnonzero(times.first != NONE)
    _, index, alike = np.unique(times.first[known], return_index=True, return_counts=True)
    edges = np.linspace(0, makespan_ns, bins + 1)
    covered = np.zeros((len(LAYERS), bins))
    kinds = [node_kinds(graph) for graph in trace.graphs]
    for place, weight in zip(known[index].tolist(), alike.tolist(), strict=True):
        spans = times.spans(trace, np.array([place]))
        kind = kinds[trace.ranks[place].graph][spans.row]
        before = np.zeros(bins)
        for number in range(len(LAYERS)):
            chosen = np.isin(kind, LAYERS[: number + 1])
            busy = _busy(spans.start_ns[chosen] - origin_ns, spans.end_ns[chosen] - origin_ns, edges)
            covered[number] += weight * (busy - before)
            before = busy
    width = makespan_ns / bins if makespan_ns else 1
    return Occupancy(edges, covered / max(len(known), 1) / width, len(known))


def _busy(start: Int64, end: Int64, edges: Float64) -> Float64:
    """Return (B,) the share of each bin that intervals cover, overlaps counted once."""
    if not len(start):
        return np.zeros(len(edges) - 1)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    opens = np.append(True, start[1:] > end[:-1])
    closes = np.append(opens[1:], True)
    start, end = start[opens], end[closes]
    before = np.concatenate(([0], np.cumsum(end - start)))
    place = np.searchsorted(start, edges, side="right")
    last = np.maximum(place - 1, 0)
    until = np.where(place > 0, before[last] + np.minimum(edges, end[last]) - start[last], 0.0)
    return np.diff(until)
