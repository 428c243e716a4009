"""Parts of a run that are looked at by themselves: all of it, a stretch of time, a training step of each rank."""

from __future__ import annotations

import numpy as np

from studio.analysis.job.ledger import Ledger
from studio.analysis.job.steps import find_graph_steps
from studio.columns import join_columns
from studio.distinct import find_distinct
from studio.errors import ConfigError
from studio.timeline import NodeTimes
from studio.trace import NONE, Int64, Trace


def build_whole_windows(account: Ledger) -> Int64:
    """Return (K, 2) from the beginning of the run to the finish of the last rank."""
    return np.tile(np.array([0, account.makespan_ns], np.int64), (len(account), 1))


def build_windows_between(account: Ledger, start_ns: int, end_ns: int) -> Int64:
    """Return (K, 2) the same stretch of time for each rank."""
    return np.tile(np.array([start_ns, max(end_ns, start_ns)], np.int64), (len(account), 1))


def step_numbers(trace: Trace) -> list[int]:
    """Return the numbers of the training steps that names and annotations tell, rising."""
    used = sorted({rank.graph for rank in trace.ranks})
    steps = join_columns(find_graph_steps(trace.graphs[index]) for index in used)
    numbers: list[int] = find_distinct(steps[steps != NONE]).tolist()
    return numbers


def build_step_windows(trace: Trace, times: NodeTimes, account: Ledger, step: int) -> Int64:
    """Return (K, 2) when each rank was in a training step: from its first node to that of a later step, or its finish.

    Ranks that do not have the step have an empty stretch.

    Args:
        trace: The job.
        times: When its nodes ran.
        account: Where the time of its ranks went.
        step: Number of the step.

    Raises:
        ConfigError: No rank has such a step.
    """
    steps = {index: find_graph_steps(trace.graphs[index]) for index in {rank.graph for rank in trace.ranks}}
    window = np.zeros((len(account), 2), np.int64)
    known: dict[int, tuple[int, int]] = {}
    for line, place in enumerate(account.places.tolist()):
        first = int(times.first[place])
        if first not in known:
            of = steps[trace.ranks[place].graph]
            start = times.start_ns[first : first + len(of)]
            own, later = ((chosen & (start >= 0)) for chosen in (of == step, of > step))
            finish = int(account.finish_ns[line])
            known[first] = (0, 0)
            if own.any():
                begin = int(start[own].min()) - account.origin_ns
                end = int(start[later].min()) - account.origin_ns if later.any() else finish
                known[first] = (begin, max(end, begin))
        window[line] = known[first]
    if not window.any():
        known_steps = step_numbers(trace)
        listed = ", ".join(map(str, known_steps[:8])) + (", …" if len(known_steps) > 8 else "")
        raise ConfigError(
            f"no rank has a training step {step}; allowed: {listed or 'none, the job has no marked steps'}",
            hint="Without --step the whole run is told.",
        )
    return window
