"""When the nodes that the Graph page draws ran."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from studio.pages._state import times_of, trace
from studio.trace import NONE, Int64


@lru_cache(maxsize=4)
def node_spans(root: str, job: str, graph: int, run: str | None, rank: int) -> tuple[Int64, Int64]:
    """Return (N,) when the nodes of a graph began and ended on a rank, -1 where that is not known."""
    columns = trace(job).graphs[graph]
    if not run:
        return columns.start_ns, np.where(columns.start_ns >= 0, columns.start_ns + columns.duration_ns, NONE)
    times = times_of(job, run)
    first = int(times.first[rank])
    if first < 0:
        nothing = np.full(len(columns), NONE, np.int64)
        return nothing, nothing
    return times.start_ns[first : first + len(columns)], times.end_ns[first : first + len(columns)]
