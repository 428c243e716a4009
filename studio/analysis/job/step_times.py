"""Duration of each training step of a rank, recorded and replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from studio.analysis.job.inferred_facts import is_inferred
from studio.analysis.job.steps import find_enclosing_steps
from studio.timeline import NodeTimes
from studio.trace import NONE, STEP, Bool, Graph, Int64, NodeType, Trace, read_dense_column


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of one rank.

    Attributes:
        rank: The rank's number.
        name: What the recording calls the step, "" for a rank without steps, which is one as a whole.
        recorded_ns: From its first node to that of the next step; of the last step, to the end of the rank. Where a device works, the
            last of several steps ends with what the host did in it: the device may be several steps behind.
        replayed_ns: The same in the other times.
        left_ns: How long the rank went on after it, recorded and replayed; only after the last of several steps, where a device works.
    """

    rank: int
    name: str
    recorded_ns: int
    replayed_ns: int
    left_ns: tuple[int, int] = (0, 0)

    @property
    def difference(self) -> float:
        """How much longer the replay took, as a share of the recording; NaN where nothing was recorded."""
        return self.replayed_ns / self.recorded_ns - 1 if self.recorded_ns else float("nan")


def step_times(trace: Trace, times: NodeTimes, finish_ns: Int64 | None = None) -> list[StepTime]:
    """Return the steps of every rank that has recorded times.

    To a step belongs what began, in the recording, after its beginning and before that of the next.

    Args:
        trace: The recording.
        times: Other times of the same nodes, as a simulation gives them.
        finish_ns: (R,) when ranks had finished in those times: a call may go on after the last node of a recording that was not linked.
            None where that was when their last node had ended.
    """
    steps: list[StepTime] = []
    rests = np.zeros(len(trace.ranks), np.int64) if finish_ns is None else finish_ns - times.finishes(trace)
    for index, rank in enumerate(trace.ranks):
        graph = trace.graph_of(rank)
        rows = np.flatnonzero(graph.start_ns >= 0)
        if not len(rows) or times.first[index] == NONE:
            continue
        names, begins = _find_steps(graph, rows)
        step = np.searchsorted(begins, graph.start_ns[rows], side="right") - 1
        whole = read_dense_column(graph, "inclusive_ns", NONE)[rows]
        length = np.where(whole < 0, graph.duration_ns[rows], whole)
        counted = np.isin(rows, _find_marks(graph, rows), invert=True)
        last = _select_last(graph, rows, len(names), counted)
        place = times.first[index] + rows
        began, ended = times.start_ns[place], times.end_ns[place]
        # What was still under way when the recording ended went on at once; how long it took is not known.
        late = _find_unfinished(graph, rows, ended - began > length)
        # What a call went on for after the last node is part of the time until the rank had finished.
        ended = ended + np.where(ended == ended.max(), rests[index], 0)
        both = (
            (graph.start_ns[rows], graph.start_ns[rows] + length),
            (began, np.where(late, began + length, ended)),
        )
        lengths = [_compute_lengths(step, start, end, len(names), counted, last) for start, end in both]
        left = [int(end[counted].max(initial=0) - end[last].max(initial=0)) for _, end in both]
        steps += [StepTime(rank.number, name, *ns) for name, *ns in zip(names, *lengths, strict=True)]
        steps[-1] = replace(steps[-1], left_ns=(left[0], left[1]))
    return steps


def _find_unfinished(graph: Graph, rows: Int64, longer: Bool) -> Bool:
    """Return which rows (S,), of those that took longer, communicate and have no recorded end."""
    late = np.zeros(len(rows), np.bool_)
    talks = np.isin(graph.type[rows], (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV))
    for at in np.flatnonzero(longer & talks).tolist():
        late[at] = is_inferred(graph, int(rows[at]), "end")
    return late


def _find_marks(graph: Graph, rows: Int64) -> Int64:
    """Return the rows that mark steps, by start."""
    named = np.array([name.startswith(STEP) for name in graph.strings], np.bool_)
    marks = rows[named[graph.name[rows]]]
    return marks[np.argsort(graph.start_ns[marks], kind="stable")]


def _find_steps(graph: Graph, rows: Int64) -> tuple[list[str], Int64]:
    """Return names and starts of steps; what comes before the first belongs to it."""
    marks = _find_marks(graph, rows)
    if not len(marks):
        return [""], np.array([graph.start_ns[rows].min()], np.int64)
    begins = graph.start_ns[marks].copy()
    begins[0] = min(begins[0], graph.start_ns[rows].min())
    return [graph.strings[int(code)] for code in graph.name[marks]], begins


def _select_last(graph: Graph, rows: Int64, count: int, counted: Bool) -> Bool:
    """Return which rows (S,) tell when the last of several steps ends: all that counts, or what its mark encloses of the host.

    A device may run several steps behind: what it still has to do then is not the last step's alone.
    """
    on_host = read_dense_column(graph, "stream", NONE)[rows] < 0
    steps = find_enclosing_steps(graph, rows)
    inside = counted & on_host & (steps == steps.max()) & (steps != NONE)
    return inside if count > 1 and inside.any() and not on_host.all() else counted


def _compute_lengths(
    step: Int64, start: Int64, end: Int64, count: int, counted: Bool, last: Bool
) -> list[int]:
    """Return the duration of each step: to the first node of the next, of the last to the end of the nodes `last`."""
    first = np.full(count + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, step[counted], start[counted])
    first[count] = int(end[last].max(initial=0))
    first = np.minimum.accumulate(first[::-1])[::-1]
    return [int(length) for length in np.diff(first)]
