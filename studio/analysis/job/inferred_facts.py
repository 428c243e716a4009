"""What linking has inferred of a communication, since no file wrote it."""

from __future__ import annotations

import numpy as np

from studio.trace import Graph, decode_value

INFERRED = "comm_inferred"
"""The attribute in which linking says so, by facts: `group`, `size`, `end`."""


def is_inferred(graph: Graph, row: int, fact: str) -> bool:
    """Whether a fact of a node's communication was inferred; not where there is no node, row -1."""
    if row < 0:
        return False
    _, where = graph.rows_with(INFERRED, np.array([row]))
    inferred = decode_value(graph.attrs, int(where[-1]), graph.strings, ()) if len(where) else None
    return isinstance(inferred, list) and fact in inferred
