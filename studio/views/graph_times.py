"""When the nodes that the Graph page draws ran."""

from __future__ import annotations

import numpy as np

from studio.session import Session, keep_result
from studio.trace import NONE, Int64


@keep_result
def collect_node_spans(
    session: Session, job: str, graph: int, run: str | None, rank: int
) -> tuple[Int64, Int64]:
    """Return (N,) starts and ends of a graph's nodes on a rank, -1 where unknown."""
    columns = session.trace(job).graphs[graph]
    if not run:
        return columns.start_ns, np.where(columns.start_ns >= 0, columns.start_ns + columns.duration_ns, NONE)
    times = session.times(job, run)
    first = int(times.first[rank])
    if first < 0:
        nothing = np.full(len(columns), NONE, np.int64)
        return nothing, nothing
    return times.start_ns[first : first + len(columns)], times.end_ns[first : first + len(columns)]
