"""Doubts about communication that no network can change: of which only the recorded time is known, or not the size."""

from __future__ import annotations

import re

import numpy as np

from studio.analysis.job.inferred_facts import explain_unknown_sizes, lack_size
from studio.analysis.job.kinds import is_library_kernel
from studio.analysis.job.ledger import EXPOSED, PART_CODES
from studio.distinct import find_distinct
from studio.kernel_names import LIBRARIES, join_expressions
from studio.sim.compute import Source, compute_sources
from studio.sim.config import SystemConfig
from studio.sim.doubt_facts import TRIFLE, Facts, Found
from studio.trace import Bool, Graph, Int64, communicates, is_flagged
from studio.units import format_count, format_counted, format_ns

_LIBRARY = re.compile(join_expressions(LIBRARIES), re.IGNORECASE)
_EXPOSED = [PART_CODES[part] for part in EXPOSED]


def find_unknown_kernels(facts: Facts) -> Found:
    """Find communication kernels without type and size, which take their recorded time on every network."""
    if not facts.simulated:
        return
    trace = facts.result.trace
    kept = [_are_kept_kernels(graph, facts.config) for graph in trace.graphs]
    if not any(rows.any() for rows in kept):
        return
    of_rank = [rank.graph for rank in trace.ranks]
    count = sum(int(kept[graph].sum()) for graph in of_rank)
    total_ns = sum(int(trace.graphs[graph].duration_ns[kept[graph]].sum()) for graph in of_rank)
    mean_ns = total_ns / len(of_rank)
    share = _compute_exposed_share(facts, kept)
    if max(share, mean_ns / max(facts.result.makespan_ns, 1)) < TRIFLE:
        return
    earlier = sum(
        int((kept[graph] & is_flagged(trace.graphs[graph], "launched_before")).sum()) for graph in of_rank
    )
    of_library = any(_have_calls(graph, rows) for graph, rows in zip(trace.graphs, kept, strict=True))
    yield (
        (
            f"{format_count(count)} communication {'kernel' if count == 1 else 'kernels'} of unknown kind and size "
            f"({format_ns(mean_ns)}{' a rank' if len(of_rank) > 1 else ''}, {100 * share:.0f} % of the exposed communication) "
            f"keep their recorded time, so that no network changes them: {_explain_remedy(earlier, count, of_library=of_library)}."
        ),
        None,
    )


def find_unsized(facts: Facts) -> Found:
    """Find communication of which the recording does not tell how much it moves: the simulator takes it to move nothing."""
    if not facts.simulated:
        return
    trace = facts.result.trace
    lacking = [_find_unsized_rows(graph) for graph in trace.graphs]
    if not any(len(rows) for rows in lacking):
        return
    of_rank = [rank.graph for rank in trace.ranks]
    count = sum(len(lacking[graph]) for graph in of_rank)
    recorded_ns = sum(int(trace.graphs[graph].duration_ns[lacking[graph]].sum()) for graph in of_rank)
    mean_ns = recorded_ns / len(of_rank)
    if mean_ns / max(facts.result.makespan_ns, 1) < TRIFLE:
        return
    yield (
        (
            f"{format_counted(count, 'communication node')} of unknown size {'moves' if count == 1 else 'move'} nothing here and "
            f"{'takes' if count == 1 else 'take'} only latency; recorded {'it' if count == 1 else 'they'} took {format_ns(mean_ns)}"
            f"{' a rank' if len(of_rank) > 1 else ''}: {explain_unknown_sizes(trace)}."
        ),
        None,
    )


def _find_unsized_rows(graph: Graph) -> Int64:
    """Return the rows (M,) of communication without a known size."""
    rows = np.flatnonzero(communicates(graph))
    return rows[lack_size(graph, rows)]


def _are_kept_kernels(graph: Graph, config: SystemConfig) -> Bool:
    """Return (N,) which nodes are kernels of a communication library that take their recorded time."""
    kernels = is_library_kernel(graph)
    return kernels & (compute_sources(graph, config) == Source.RECORDED) if kernels.any() else kernels


def _have_calls(graph: Graph, rows: Bool) -> bool:
    """Whether any of some kernels is of a library, whose calls can be recorded; none are that reach other GPUs by themselves."""
    names = find_distinct(graph.name[rows]).tolist()
    return any(_LIBRARY.search(graph.strings[int(code)]) for code in names)


def _explain_remedy(earlier: int, count: int, *, of_library: bool) -> str:
    """Say why nothing is known of the kernels, and how to record so that it is."""
    wait = "record again and wait for the device before the first step, as studio.collect does"
    calls = "no recorder writes what they carry out"
    if of_library:
        calls = "record the calls of the library too, as PyTorch's profiler does"
    if earlier == count:
        return f"they were launched before the recording began; {wait}"
    if not earlier:
        return calls
    return f"{format_count(earlier)} were launched before the recording began; {wait}, and {calls}"


def _compute_exposed_share(facts: Facts, kept: list[Bool]) -> float:
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
    of_kept = (account.owner >= 0) & is_kept[account.owner]
    return float(length[of_kept].sum() / max(length.sum(), 1))
