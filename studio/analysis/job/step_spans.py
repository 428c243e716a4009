"""How long each training step took on each rank, in a recording or a simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.analysis.job.steps import find_graph_steps
from studio.notebook import format_record
from studio.timeline import NodeTimes
from studio.trace import NONE, STEP, Bool, Graph, Int64, Trace, are_idle, read_dense_column


@dataclass(frozen=True, slots=True)
class StepSpans:
    """Durations of training steps.

    K ranks with times and steps, S steps.

    Attributes:
        steps: (S,) numbers of the steps, ascending.
        ranks: (K,) numbers of the ranks.
        ns: (K, S) from the first node of a step (on a device, the first that it launched) to that of the next one of the rank, of its last step to the rank's end; -1
            where the rank has no node of the step. The only step of a rank begins with what the host did in it, or when the
            device had done what came before.
    """

    steps: Int64
    ranks: Int64
    ns: Int64

    __repr__ = format_record

    @property
    def typical_ns(self) -> int:
        """The median over steps and ranks."""
        return int(np.median(self.ns[self.ns >= 0]))

    @property
    def spread_of_steps(self) -> float:
        """Longest less shortest step, each the median of its ranks, as a share of the typical one."""
        return self._compute_spread(self.ns.T)

    @property
    def spread_of_ranks(self) -> float:
        """Longest less shortest step of a rank, each rank the median of its steps, as a share of the typical one."""
        return self._compute_spread(self.ns)

    def _compute_spread(self, lines: Int64) -> float:
        medians = [float(np.median(line[line >= 0])) for line in lines if (line >= 0).any()]
        return (max(medians) - min(medians)) / max(self.typical_ns, 1)


def step_spans(trace: Trace, times: NodeTimes) -> StepSpans | None:
    """Return how long each step of each rank took, None where no node tells its step.

    Steps are those that `find_graph_steps` finds: by names such as `step0.layer3.fc1`, or PyTorch's annotation `ProfilerStep#7`.

    Args:
        trace: The job.
        times: When its nodes ran.
    """
    by_rank: dict[int, dict[int, int]] = {}
    steps_of: dict[int, _Steps] = {}
    lengths: dict[tuple[int, int], dict[int, int]] = {}
    for rank, first in zip(trace.ranks, times.first.tolist(), strict=True):
        if first == NONE:
            continue
        if rank.graph not in steps_of:
            steps_of[rank.graph] = _find_steps(trace.graphs[rank.graph])
        # Ranks that were simulated as one share their times.
        key = rank.graph, first
        if key not in lengths:
            lengths[key] = _compute_lengths(steps_of[rank.graph], times, first)
        if lengths[key]:
            by_rank[rank.number] = lengths[key]
    if not by_rank:
        return None
    steps = sorted({step for line in by_rank.values() for step in line})
    ns = [[line.get(step, NONE) for step in steps] for line in by_rank.values()]
    return StepSpans(np.array(steps), np.array(list(by_rank)), np.array(ns, np.int64))


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of the nodes of a graph; -1 for none, as of annotations, which only mark steps.

    N nodes.

    Attributes:
        measured: (N,) the step that a node makes part of the length of: where a device works, only its operations do.
        host: (N,) the step of the nodes of the host, where `measured` leaves them out.
        works: (N,) operations of a device, of whatever step.
    """

    measured: Int64
    host: Int64
    works: Bool


def _find_steps(graph: Graph) -> _Steps:
    """Return the steps of nodes. A device runs behind the host: its step is what the host launched in it, whenever that ran."""
    marks = np.array([name.startswith(STEP) for name in graph.strings], np.bool_)
    steps = np.where(marks[graph.name], NONE, find_graph_steps(graph))
    on_device = read_dense_column(graph, "stream", NONE) >= 0
    launch_steps = np.where(on_device, _find_launch_steps(graph, steps, on_device), NONE)
    if not (launch_steps != NONE).any():
        return _Steps(steps, steps, np.zeros(len(graph), np.bool_))
    return _Steps(launch_steps, np.where(on_device, NONE, steps), on_device & ~are_idle(graph))


def _find_launch_steps(graph: Graph, steps: Int64, on_device: Bool) -> Int64:
    """Return (N,) the step of the operator of the host that launched each device operation, -1 where that is not known."""
    waits = graph.ctrl
    node = waits.list_waiting()
    is_gap = np.zeros(len(graph), np.bool_)
    is_gap[graph.rows_with("gap")[0]] = True
    # Dangling dependencies are negative; the first operator of the host counts.
    host = (waits.rows >= 0) & on_device[node]
    host[host] &= ~on_device[waits.rows[host]] & ~is_gap[waits.rows[host]]
    launch_steps = np.full(len(graph), NONE, np.int64)
    launch_steps[node[host][::-1]] = steps[waits.rows[host]][::-1]
    return launch_steps


def _compute_lengths(steps: _Steps, times: NodeTimes, first: int) -> dict[int, int]:
    step = steps.measured
    start, end, over = (
        column[first : first + len(step)] for column in (times.start_ns, times.end_ns, times.over_ns)
    )
    rows = np.flatnonzero((step != NONE) & (start >= 0))
    if not len(rows):
        return {}
    numbers, inverse = np.unique(step[rows], return_inverse=True)
    begins = np.full(len(numbers) + 1, over.max())
    np.minimum.at(begins, inverse, start[rows])
    if len(numbers) == 1:
        # No other step tells how far apart steps begin: what the device waited for the host counts too.
        before = end[(start >= 0) & steps.works & (end <= begins[0])].max(initial=NONE)
        of_host = start[(start >= 0) & (steps.host == numbers[0])].min(initial=begins[0])
        begins[0] = min(begins[0], max(of_host, before))
    # A node of a step may run before the last of an earlier one; no step is shorter than nothing.
    begins = np.minimum.accumulate(begins[::-1])[::-1]
    return dict(zip(numbers.tolist(), np.diff(begins).tolist(), strict=True))
