"""Order a recording by its times where its dependencies do not hold what a replay needs.

Merged traces (ET+) and files made of them have the dependencies of the reference's converter: one chain of all operators of a rank,
whatever threads they ran on, and nothing of the time between them. A timeline has none at all. Such a job stays as it is wherever it is
shown, written or simulated on a network; a replay alone plays it in the order of its recording: each node after what it waited for by
the rules of `recorded_waits.py`, in a graph as `ordered_graph.py` builds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from studio.errors import TraceError
from studio.sim.ordered_graph import build_ordered_graph, is_ordered
from studio.sim.recorded_waits import Order, find_order
from studio.trace import Bool, Graph, Rank, Trace

_SCHEMA = "schema"
_OF_PYTORCH = re.compile(r"\d+\.\d+\.\d+-chakra")
_EXPORTED = "exported-timeline"
"""What a reader says of a timeline that was written for viewers."""
_LINKED = "link_"
"""What linking says of itself in the metadata of a rank begins so."""


def is_orderable(trace: Trace) -> bool:
    """Whether a replay orders ranks of a recording by their times."""
    return bool(_find_orderable(trace))


def count_untimed(trace: Trace) -> int:
    """Return how many nodes took time and do not say when in ranks that a replay would order by times else."""
    graphs = [trace.graphs[index] for index in _find_lacking(trace)]
    return sum(int(_are_untimed(graph).sum()) for graph in graphs)


def is_linked_rank(rank: Rank) -> bool:
    """Whether the files of a rank were linked here: dependencies then hold what a replay needs."""
    return any(attribute.name.startswith(_LINKED) for attribute in rank.metadata)


def find_orders(recorded: Trace) -> dict[int, Order]:
    """Return what nodes waited for in the ranks of a recording whose dependencies do not hold what a replay needs, by graph."""
    return {index: find_order(recorded.graphs[index]) for index in sorted(_find_orderable(recorded))}


def order_by_times(
    trace: Trace, recorded: Trace | None = None, orders: Mapping[int, Order] | None = None
) -> Trace:
    """Return the job that a replay plays: ranks whose dependencies do not hold what it needs in the order of their recorded times.

    Nodes keep their rows; what they waited besides comes behind them.

    Args:
        trace: The job.
        recorded: The job as it was recorded, where durations of `trace` were changed: what took less time then is no longer waited for.
        orders: What `find_orders` returns of that; None to find it.

    Raises:
        TraceError: Nodes or dependencies were changed, too; nothing tells what would wait for what then.
    """
    recorded = trace if recorded is None else recorded
    orders = find_orders(recorded) if orders is None else orders
    if not orders:
        return trace
    graphs = list(trace.graphs)
    done: set[int] = set()
    for rank, before in zip(trace.ranks, recorded.ranks, strict=True):
        if before.graph not in orders or rank.graph in done:
            continue
        graph, original = trace.graphs[rank.graph], recorded.graphs[before.graph]
        if not _are_wired_alike(graph, original):
            raise TraceError(
                "the dependencies of the recording are those of a converter, which do not tell what another order would wait for",
                hint="Link the recordings that the files were made of (chakra-studio link).",
            )
        graphs[rank.graph] = build_ordered_graph(graph, orders[before.graph])
        done.add(rank.graph)
    return replace(trace, graphs=tuple(graphs))


def _are_wired_alike(graph: Graph, other: Graph) -> bool:
    """Whether two graphs have the same nodes and dependencies, whatever these take."""
    return len(graph) == len(other) and all(
        column is counterpart or np.array_equal(column, counterpart)
        for deps, others in ((graph.ctrl, other.ctrl), (graph.data, other.data))
        for column, counterpart in ((deps.offsets, others.offsets), (deps.rows, others.rows))
    )


def _are_untimed(graph: Graph) -> Bool:
    untimed: Bool = (graph.start_ns < 0) & (graph.duration_ns > 0)
    return untimed


def _find_lacking(trace: Trace) -> set[int]:
    """Return the graphs of recorded ranks whose dependencies do not hold what a replay needs.

    These are a converter's, by the schema of PyTorch that it passes on, or those of an exported timeline, or there are none in all the job,
    as in other timelines.
    """
    exported = any(finding.code == _EXPORTED for finding in trace.findings)
    bare = not any(
        len(graph.ctrl.rows) or len(graph.data.rows) or graph.has_attribute("is_cpu_op")
        for graph in trace.graphs
    )
    lacking = {rank.graph for rank in trace.ranks if bare or exported or _is_converted(rank)}
    return {index for index in lacking if (trace.graphs[index].start_ns >= 0).any()}


def _is_converted(rank: Rank) -> bool:
    schema = rank.metadata_value(_SCHEMA)
    is_of_pytorch = isinstance(schema, str) and _OF_PYTORCH.match(schema) is not None
    return is_of_pytorch and not is_linked_rank(rank)


def _find_orderable(trace: Trace) -> set[int]:
    """Return the graphs that a replay orders by times: all that took time says when."""
    return {
        index
        for index in _find_lacking(trace)
        if not is_ordered(trace.graphs[index]) and not _are_untimed(trace.graphs[index]).any()
    }
