"""The job of a simulation, with its own times or those that were found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studio.sim.result import SimResult
from studio.trace import Attributes, Graph, Trace, read_calls


def build_timed_trace(result: SimResult) -> Trace:
    """Return the job of a simulation with the times that it found in place of recorded ones."""
    times = result.node_times()
    places: dict[tuple[int, int], int] = {}
    graphs: list[Graph] = []
    ranks = []
    for rank, first in zip(result.trace.ranks, times.first.tolist(), strict=True):
        graph = result.trace.graph_of(rank)
        # Ranks that one was simulated for share its times.
        at = places.setdefault((rank.graph, first), len(graphs))
        if at == len(graphs):
            start, end = (column[first : first + len(graph)] for column in (times.start_ns, times.end_ns))
            simulated = replace(graph, start_ns=start, duration_ns=np.where(start >= 0, end - start, 0))
            graphs.append(_without_returns(simulated, graph))
        ranks.append(replace(rank, graph=at))
    return replace(build_simulated_trace(result), graphs=tuple(graphs), ranks=tuple(ranks))


def _without_returns(simulated: Graph, recorded: Graph) -> Graph:
    """Return the graph without when recorded calls returned: simulated ones take their own time in one piece, and what they call follows."""
    calls, _ = read_calls(recorded)
    rows, where = recorded.rows_with("inclusive_ns")
    gone = where[np.isin(rows, calls)]
    if not len(gone):
        return simulated
    attrs, stays = recorded.attrs, np.ones(len(recorded.attrs.key), np.bool_)
    stays[gone] = False
    offsets = np.append(0, np.cumsum(stays))[attrs.offsets]
    kept = Attributes(
        offsets,
        attrs.key[stays],
        attrs.doc[stays],
        attrs.kind[stays],
        attrs.value[stays],
        attrs.length[stays],
        attrs.slot[stays],
        attrs.items,
    )
    return replace(simulated, attrs=kept)


def build_simulated_trace(result: SimResult) -> Trace:
    """Return the job of a simulation as it was simulated, with the comm groups of its configuration."""
    groups = result.config.groups
    return result.trace if groups is None else replace(result.trace, groups=groups)
