"""Doubts about communication that no network can change: kernels of which nothing is known but their recorded time."""

from __future__ import annotations

import numpy as np

from studio.analysis.job.kinds import is_library_kernel
from studio.analysis.job.ledger import EXPOSED, PARTS
from studio.sim.compute import Source, compute_sources
from studio.sim.config import SystemConfig
from studio.sim.doubt_facts import TRIFLE, Facts, Found
from studio.trace import Bool, Graph, is_flagged
from studio.units import format_count, format_ns

_EXPOSED = [PARTS.index(part) for part in EXPOSED]


def find_unknown_kernels(facts: Facts) -> Found:
    """Find communication kernels without type and size, which take their recorded time on every network."""
    if not facts.simulated:
        return
    trace = facts.result.trace
    kept = [_kept_kernels(graph, facts.config) for graph in trace.graphs]
    if not any(rows.any() for rows in kept):
        return
    of_rank = [rank.graph for rank in trace.ranks]
    count = sum(int(kept[graph].sum()) for graph in of_rank)
    total_ns = sum(int(trace.graphs[graph].duration_ns[kept[graph]].sum()) for graph in of_rank)
    mean_ns = total_ns / len(of_rank)
    share = _exposed_share(facts, kept)
    if max(share, mean_ns / max(facts.result.makespan_ns, 1)) < TRIFLE:
        return
    earlier = sum(
        int((kept[graph] & is_flagged(trace.graphs[graph], "launched_before")).sum()) for graph in of_rank
    )
    yield (
        (
            f"{format_count(count)} communication {'kernel' if count == 1 else 'kernels'} of unknown kind and size "
            f"({format_ns(mean_ns)}{' a rank' if len(of_rank) > 1 else ''}, {100 * share:.0f} % of the exposed communication) "
            f"keep their recorded time, so that no network changes them: {_remedy(earlier, count)}."
        ),
        None,
    )


def _kept_kernels(graph: Graph, config: SystemConfig) -> Bool:
    """Return (N,) which nodes are kernels of a communication library that take their recorded time."""
    kernels = is_library_kernel(graph)
    return kernels & (compute_sources(graph, config) == Source.RECORDED) if kernels.any() else kernels


def _remedy(earlier: int, count: int) -> str:
    """Say why nothing is known of the kernels, and how to record so that it is."""
    wait = "record again and wait for the device before the first step, as studio.collect does"
    calls = "record the calls of the library too, as PyTorch's profiler does"
    if earlier == count:
        return f"they were launched before the recording began; {wait}"
    if not earlier:
        return calls
    return f"{format_count(earlier)} were launched before the recording began; {wait}, and {calls}"


def _exposed_share(facts: Facts, kept: list[Bool]) -> float:
    """Return the share of the exposed communication of all ranks that is the time of some nodes, (N,) for each graph."""
    account, trace = facts.ledger, facts.result.trace
    courses = account.stretches
    ranks = np.bincount(account.course, minlength=len(courses))
    exposed = np.isin(courses.kind, _EXPOSED)
    length = np.where(exposed, courses.end - courses.start, 0) * np.repeat(ranks, np.diff(courses.bounds))
    is_kept = np.zeros(len(account.begun_ns), np.bool_)
    for place in account.places.tolist():
        rows = kept[trace.ranks[place].graph]
        first = int(account.first[place])
        is_kept[first : first + len(rows)] = rows
    mine = (account.owner >= 0) & is_kept[account.owner]
    return float(length[mine].sum() / max(length.sum(), 1))
