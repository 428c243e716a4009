"""Tell which operations do not hold up the thread that they are noted down on.

A message of gloo is noted down on the thread that called, from the call until that thread waits for it, whatever else
the thread does meanwhile. And where the recording ended before gloo noted a collective down, only the call is known,
which asked for it and went on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studio.et.link.carried import library_rows
from studio.et.link.communication import Communication
from studio.et.link.operations import Operations
from studio.trace import Bool, Int64


def find_floating(operations: Operations) -> Bool:
    """Return which operations (N,) of a library are noted down on a thread that does other things meanwhile."""
    floating = np.zeros(len(operations), np.bool_)
    rows = np.array(library_rows(operations), np.int64)
    floating[rows[_overlapping(operations, rows)]] = True
    return floating


def lost_calls(operations: Operations, communication: Communication) -> list[int]:
    """Return the calls that stand for a collective which the library did not note down any more."""
    rows = library_rows(operations)
    if not rows:
        return []
    return [row for row in communication.operators if row not in communication.issued_by]


def _overlapping(operations: Operations, rows: Int64) -> Bool:
    """Return which of these operations are on a thread that begins others, or ends them, meanwhile."""
    others = operations.timed & ~operations.frame
    others[rows] = False
    found = np.zeros(len(rows), np.bool_)
    for lane in np.unique(operations.thread[rows]).tolist():
        mine = np.flatnonzero(operations.thread[rows] == lane)
        there = np.flatnonzero(others & (operations.thread == lane))
        starts, ends = np.sort(operations.start_ns[there]), np.sort(operations.end_ns[there])
        begin, end = operations.start_ns[rows[mine]], operations.end_ns[rows[mine]]
        begun = np.searchsorted(starts, end, "left") - np.searchsorted(starts, begin, "left")
        ended = np.searchsorted(ends, end, "left") - np.searchsorted(ends, begin, "right")
        found[mine] = (operations.start_ns[rows[mine]] >= 0) & ((begun > 0) | (ended > 0))
    return found


def with_own_lanes(operations: Operations, floating: Bool) -> Operations:
    """Return the operations with a thread of its own for each floating one, numbered from 2^32 on."""
    if not floating.any():
        return operations
    thread = operations.thread.copy()
    thread[floating] = FIRST_LANE + np.arange(int(floating.sum()))
    return replace(operations, thread=thread)


FIRST_LANE = 1 << 32
"""Number of the first lane that is no thread."""
