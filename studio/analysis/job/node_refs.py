"""Name nodes as addresses do, and find them by such names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from studio.analysis.job.kinds import infer_counted_type, label_counted_type
from studio.errors import TraceError
from studio.trace import Graph

_REF = re.compile(r"(?P<id>[0-9]{1,20})(?:\.(?P<again>[0-9]{1,10}))?")


def format_node_ref(graph: Graph, row: int) -> str:
    """Return the address of a node: its id, with a count if other nodes have the same id.

    Example: "118", or "118.1" for the second node with id 118.
    """
    before = int(np.count_nonzero(graph.id[:row] == graph.id[row]))
    return f"{graph.id[row]}.{before}" if before else str(graph.id[row])


def describe_node(graph: Graph, rank: int, row: int) -> dict[str, Any]:
    """Describe a node of a rank in plain data: the rank's number, the node as addresses have it, its type and its name."""
    return {
        "rank": rank,
        "node": format_node_ref(graph, row),
        "type": label_counted_type(infer_counted_type(graph, row)),
        "name": graph.strings[int(graph.name[row])],
    }


def find_node(graph: Graph, ref: str) -> int:
    """Return the row of the node that an address names.

    Raises:
        TraceError: The graph has no such node.
    """
    match = _REF.fullmatch(ref)
    if match and int(match["id"]) < 2**64:
        rows = np.flatnonzero(graph.id == np.uint64(int(match["id"])))
        again = int(match["again"] or 0)
        if again < len(rows):
            return int(rows[again])
    raise TraceError(f"This rank has no node {ref[:40]!r}.", hint="Nodes are named by the id in their file.")
