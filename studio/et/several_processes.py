"""Tell apart the processes whose traces a tool has put into one file, each of which is a rank.

Numbers that join calls and kernels (correlation, external id) are those of one process, so kernels of one would be taken for what
another launched. Some tools write the rank before the number of the process (`[TP00-DP00] 812`, SGLang); others put one trace behind
the other, so that the operators of the processes lie apart in the file and kernels behind the operators that launched them.
"""

from __future__ import annotations

import re

import numpy as np

from studio.distinct import find_distinct
from studio.et.recording import DeviceTrace, EventKind
from studio.trace import Int64

_LABEL = re.compile(r"\[([A-Z]{2,5}\d+(?:-[A-Z]{2,5}\d+)*)\] ")
_NUMBER = re.compile(r"\d+")
_ON_HOST = (EventKind.OPERATOR, EventKind.RUNTIME, EventKind.ANNOTATION, EventKind.PYTHON)


def find_processes(trace: DeviceTrace) -> Int64 | None:
    """Return which process (E,) each event is of, counted from 0; None where there is but one, or nothing tells them apart.

    Args:
        trace: The events in the order of the file.
    """
    labels = [_LABEL.match(process) for process, _ in trace.threads]
    if any(labels):
        return _find_by_label(trace, [label[1] if label else "" for label in labels])
    return _find_by_place(trace)


def count_callers(trace: DeviceTrace) -> int:
    """Return how many processes called operators; calls of a runtime may stand with the device."""
    calling = trace.kind == EventKind.OPERATOR
    return len({trace.threads[code][0] for code in find_distinct(trace.thread[calling]).tolist()})


def _find_by_label(trace: DeviceTrace, labels: list[str]) -> Int64 | None:
    """Return the process of each event by the labels (T) of its threads; those without one are of none, and there may be none such."""
    used = {labels[code] for code in find_distinct(trace.thread).tolist()}
    ordered = sorted(used, key=lambda label: [int(number) for number in _NUMBER.findall(label)])
    if "" in used or len(ordered) < 2:
        return None
    place = {label: number for number, label in enumerate(ordered)}
    return np.array([place.get(label, 0) for label in labels], np.int64)[trace.thread]


def _find_by_place(trace: DeviceTrace) -> Int64 | None:
    """Return the process of each event by its place in the file, where the operators of no process lie among those of another."""
    names: dict[str, int] = {}
    codes = np.array([names.setdefault(process, len(names)) for process, _ in trace.threads], np.int64)
    if len(names) < 2:
        return None
    process = codes[trace.thread]
    rows = np.flatnonzero(trace.kind == EventKind.OPERATOR)
    callers, first = np.unique(process[rows], return_index=True)
    last = len(rows) - 1 - np.unique(process[rows][::-1], return_index=True)[1]
    order = np.argsort(first)
    callers, first, last = callers[order], rows[first[order]], rows[last[order]]
    if len(callers) < 2 or (last[:-1] > first[1:]).any():
        return None
    number = np.full(len(names), -1, np.int64)
    number[callers] = np.arange(len(callers))
    by_place = np.maximum(np.searchsorted(first, np.arange(len(trace)), side="right") - 1, 0)
    own = number[process]
    numbers = np.where(np.isin(trace.kind, _ON_HOST) & (own >= 0), own, by_place)
    working = find_distinct(numbers[trace.is_device])
    return numbers if len(working) in (0, len(callers)) else None
