"""What linking has inferred of a communication, since no file wrote it."""

from __future__ import annotations

import numpy as np

from studio.distinct import find_distinct
from studio.trace import (
    NSIGHT,
    RECORDER,
    ROCPROF,
    XLA,
    Bool,
    CollectiveType,
    Graph,
    Int64,
    Trace,
    decode_value,
    read_int_column,
)

INFERRED = "comm_inferred"
"""The attribute in which linking says so, by facts: `group`, `size`, `end`."""

_SIZES_OF = {
    NSIGHT: "export Nsight's report again with what NCCL says of sizes (nsys export --type sqlite --include-blobs=true)",
    ROCPROF: "rocprof writes no sizes of RCCL's calls; record with PyTorch's profiler instead (record_shapes)",
    XLA: "open the .xplane.pb of a recording that holds its programs, whose collectives have sizes",
}
_SIZES = (
    "record the shapes of tensors (record_shapes of PyTorch's profiler), or open the execution trace of the same rank beside the Kineto "
    "file; of kernels that send tokens to experts no recorder writes how much"
)


def explain_unknown_sizes(trace: Trace) -> str:
    """Say how to record a job so that sizes of its communication are known: a sentence without its beginning and end."""
    recorders = dict.fromkeys(str(rank.metadata_value(RECORDER, "")) for rank in trace.ranks)
    return "; ".join(dict.fromkeys(_SIZES_OF.get(recorder, _SIZES) for recorder in recorders))


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
