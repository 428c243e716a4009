"""Find the training step of a node, from annotations and names.

Two things tell: a name with a number after "step" or "iteration", such as `step0.mb1.layer3.fc1`; and PyTorch's
annotation `ProfilerStep#7`, which encloses in time what belongs to it, on every thread.
"""

from __future__ import annotations

import re

import numpy as np

from studio.distinct import find_distinct
from studio.trace import NONE, STEP, Graph, Int64, read_dense_column, step_of_name

_ENCLOSING = re.compile((STEP + r" ?#(\d{1,9})").encode())


def find_graph_steps(graph: Graph) -> Int64:
    """Return (N,) the training step of each node, -1 where unknown.

    Example:
        >>> step_of_name("step3.mb0.layer1.qkv"), step_of_name("Optimizer.step#SGD.step"), step_of_name("Iteration #12: fwd")
        (3, -1, 12)
    """
    used, inverse = np.unique(graph.name, return_inverse=True)
    by_name = np.array([step_of_name(graph.strings[code]) for code in used.tolist()], np.int64)
    named = by_name[inverse] if len(used) else np.zeros(0, np.int64)
    return np.where(named != NONE, named, find_enclosing_steps(graph, np.arange(len(graph))))


def find_enclosing_steps(graph: Graph, rows: Int64) -> Int64:
    """Return (M,) the step whose annotation encloses a node's start, -1 where none does."""
    steps = np.full(len(rows), NONE, np.int64)
    start = graph.start_ns[rows]
    for number, begin, end in _list_annotations(graph):
        steps[(start >= begin) & (start < end) & (steps == NONE)] = number
    return steps


def _list_annotations(graph: Graph) -> list[tuple[int, int, int]]:
    """Return number, start and end of steps annotated by PyTorch."""
    if _ENCLOSING.search(graph.strings.data.tobytes()) is None:
        return []
    names = find_distinct(graph.name)
    numbers = {
        code: match for code in names.tolist() if (match := _ENCLOSING.fullmatch(graph.strings.raw(code)))
    }
    rows = np.flatnonzero(np.isin(graph.name, list(numbers)))
    # An annotation takes no time of its own; how long it lasts stands beside.
    lasts = np.maximum(read_dense_column(graph, "inclusive_ns", 0)[rows], graph.duration_ns[rows])
    return [
        (int(numbers[code][1]), begin, begin + length)
        for code, begin, length in zip(
            graph.name[rows].tolist(), graph.start_ns[rows].tolist(), lasts.tolist(), strict=True
        )
        if begin >= 0 and length > 0
    ]
