"""Which training step a node belongs to, as far as the trace tells.

Two things tell: a name with a number after "step" or "iteration", such as `step0.mb1.layer3.fc1`; and PyTorch's
annotation `ProfilerStep#7`, which encloses in time what belongs to it, on every thread.
"""

from __future__ import annotations

import re

import numpy as np

from studio.trace import NONE, Graph, Int64, dense_column

_NAMED = re.compile(r"(?:^|[^A-Za-z])(?:step|iteration|iter)[ _#.\-]?(\d{1,9})(?![A-Za-z0-9])", re.IGNORECASE)
_ENCLOSING = re.compile(r"ProfilerStep ?#(\d{1,9})")


def graph_steps(graph: Graph) -> Int64:
    """Return (N,) the training step of each node, -1 where nothing tells.

    Example:
        >>> step_of_name("step3.mb0.layer1.qkv"), step_of_name("Optimizer.step#SGD.step"), step_of_name("iter 12/fwd")
        (3, -1, 12)
    """
    used = np.unique(graph.name)
    names = [graph.strings[code] for code in used.tolist()]
    by_name = np.array([step_of_name(name) for name in names], np.int64)
    steps = by_name[np.searchsorted(used, graph.name)] if len(used) else np.zeros(0, np.int64)
    for code, name in zip(used.tolist(), names, strict=True):
        found = _ENCLOSING.fullmatch(name)
        if found:
            _enclose(graph, steps, np.flatnonzero(graph.name == code), int(found[1]))
    return steps


def step_of_name(name: str) -> int:
    """Return the training step a node's name tells, -1 where it tells none."""
    found = _NAMED.search(name)
    return int(found[1]) if found else NONE


def _enclose(graph: Graph, steps: Int64, rows: Int64, number: int) -> None:
    """Give what begins while an annotation lasts its number."""
    # An annotation takes no time of its own; how long it lasts stands beside.
    lasts = np.maximum(dense_column(graph, "inclusive_ns", 0)[rows], graph.duration_ns[rows])
    for begin, length in zip(graph.start_ns[rows].tolist(), lasts.tolist(), strict=True):
        if begin >= 0 and length > 0:
            inside = (graph.start_ns >= begin) & (graph.start_ns < begin + length)
            steps[inside & (steps == NONE)] = number
