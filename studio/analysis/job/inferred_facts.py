"""What linking has inferred of a communication, since no file wrote it."""

from __future__ import annotations

import numpy as np

from studio.distinct import find_distinct
from studio.trace import Bool, CollectiveType, Graph, Int64, decode_value, read_int_column

INFERRED = "comm_inferred"
"""The attribute in which linking says so, by facts: `group`, `size`, `end`."""


def is_inferred(graph: Graph, row: int, fact: str) -> bool:
    """Whether a fact of a node's communication was inferred; not where there is no node, row -1."""
    if row < 0:
        return False
    _, where = graph.rows_with(INFERRED, np.array([row]))
    inferred = decode_value(graph.attrs, int(where[-1]), graph.strings, ()) if len(where) else None
    return isinstance(inferred, list) and fact in inferred


def lack_size(graph: Graph, rows: Int64) -> Bool:
    """Return which of some nodes (C,) are communication of which the recording does not tell how much it moves; their size is 0 then.

    Args:
        graph: The graph.
        rows: (C,) its nodes, in any order.
    """
    among = find_distinct(rows)
    lacking, _ = graph.rows_with(INFERRED, among)
    sized, size = read_int_column(graph, "comm_size", among=among)
    lacking = np.intersect1d(lacking, sized[size == 0])
    typed, kind = read_int_column(graph, "comm_type", among=among)
    lacking = np.setdiff1d(lacking, typed[kind == CollectiveType.BARRIER])
    for key in ("bytes_in", "bytes_out"):
        lacking = np.setdiff1d(lacking, graph.rows_with(key, among)[0])
    return np.isin(rows, lacking)
