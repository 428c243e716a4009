"""What nodes occupy: the accelerator, the network, remote memory, the host, nothing, or a device's memory."""

from __future__ import annotations

import numpy as np

from studio.trace import Bool, Graph, Int64, NodeType, copies, idles, int_column

COMPUTE, COMMUNICATION, MEMORY, CPU, NOTHING, COPY = range(6)


def node_kinds(graph: Graph) -> Int64:
    """Return (N,) the kind of work of each node of a graph."""
    kinds = np.full(len(graph), NOTHING, np.int64)
    kinds[graph.type == NodeType.COMP] = COMPUTE
    kinds[copies(graph)] = COPY
    kinds[idles(graph)] = NOTHING
    kinds[_talks(graph)] = COMMUNICATION
    kinds[(graph.type == NodeType.MEM_LOAD) | (graph.type == NodeType.MEM_STORE)] = MEMORY
    rows, values = int_column(graph, "is_cpu_op")
    kinds[rows[values != 0]] = CPU
    return kinds


def work_kinds(graph: Graph) -> Int64:
    """Return (N,) the kind of work of each node as accounts of time have it.

    As `node_kinds`, but where no node computes on an accelerator the processor is what the job runs on: its operators are
    compute, its collectives communication, and the time between operators stays the host's. And time for which a stream
    waited to be given work is the host's.
    """
    kinds = node_kinds(graph)
    kinds[idles(graph)] = CPU
    if not np.isin(kinds, (COMPUTE, COPY)).any():
        rows, _ = graph.rows_with("gap")
        on_cpu = kinds == CPU
        on_cpu[rows] = False
        kinds[on_cpu & (graph.type == NodeType.COMP)] = COMPUTE
        kinds[on_cpu & _talks(graph)] = COMMUNICATION
    return kinds


def _talks(graph: Graph) -> Bool:
    return np.asarray((graph.type >= NodeType.COMM_SEND) & (graph.type <= NodeType.COMM_COLL))
