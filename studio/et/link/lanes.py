"""Tell which operations do not hold up the thread that they are noted down on.

A message of gloo is noted down on the thread that called, from the call until that thread waits for it, whatever else
the thread does meanwhile. And where the recording ended before gloo noted a collective down, only the call is known,
which asked for it and went on.

Some calls gloo carries out in place, by messages of its own (the monitored barrier): the time of these is that of the call.

What gloo's own threads call while they carry out a collective is part of it: its time is that of the collective, in which
they may have waited for other ranks before, between and after those calls. Where they called for more communication, though, they
ran what the program had asked for at the end of the collective (`then` of its future, as PyTorch's hooks do): it ended before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from studio.distinct import find_distinct
from studio.et.link.carried import find_library_rows
from studio.et.link.facts import Communication
from studio.et.link.intervals import find_parents
from studio.et.link.names import RECEIVE, SEND, infer_operator_kind
from studio.et.link.operations import Operations
from studio.trace import NONE, Bool, CollectiveType, Int64

_IN_PLACE = (CollectiveType.ALL_REDUCE, CollectiveType.BROADCAST, CollectiveType.REDUCE)
"""Kinds for which gloo calls no operator itself."""


def find_floating(operations: Operations, communication: Communication) -> Bool:
    """Return which operations (N,) of a library are noted down on the thread that called, beyond the end of the call."""
    floating = np.zeros(len(operations), np.bool_)
    for row in find_library_rows(operations):
        call = communication.issued_by.get(row)
        if call is None:
            # The call was made before the recording began.
            floating[row] = infer_operator_kind(operations.name_of(row)) in (SEND, RECEIVE)
        elif operations.thread[row] == operations.thread[call]:
            floating[row] = operations.begin[row] < operations.finish[call] < operations.finish[row]
    return floating & operations.timed


def find_carried_in_place(operations: Operations, communication: Communication) -> dict[int, int]:
    """Return the call around each operation of a library that only helps to carry it out, on the thread that called."""
    parts = [row for row in find_library_rows(operations) if row not in communication.issued_by]
    calls = np.array([row for row in communication.operators if row not in communication.issued_by], np.int64)
    start, end, thread = operations.start_ns, operations.end_ns, operations.thread
    around = {}
    for row in parts if len(calls) else ():
        same = (thread[calls] == thread[row]) & (start[calls] >= 0)
        within = same & (start[calls] <= start[row]) & (end[row] <= end[calls]) & (calls != row)
        if within.any():
            around[row] = int(calls[np.argmax(within)])
    return around


def end_before_callbacks(operations: Operations, communication: Communication) -> Operations:
    """Return the operations; those in which gloo's thread ran what was to follow them end where that begins.

    gloo notes the end of an operation down when all that was to follow has run, too. Only the program calls for
    communication, so what holds such a call is its own: of the tensors that gloo itself puts together or apart on the way the
    last are done by then.
    """
    known = communication.issued_by
    carrying = [row for row, call in known.items() if operations.thread[row] != operations.thread[call]]
    start, end, thread = operations.start_ns, operations.end_ns, operations.thread
    asked = {*known.values(), *(row for row in communication.operators if row not in known)}
    calls = np.array(sorted(row for row in asked if start[row] >= 0), np.int64)
    # Most jobs call on threads of their own alone: then there is nothing to compare.
    calls = calls[np.isin(thread[calls], thread[carrying])]
    ends = {}
    for row in carrying if len(calls) else ():
        same = (thread[calls] == thread[row]) & (start[calls] > start[row]) & (end[calls] <= end[row])
        if start[row] >= 0 and same.any():
            ends[row] = _begin_of_callbacks(operations, communication, row, int(start[calls[same]].min()))
    if not ends:
        return operations
    finish, rows = operations.finish.copy(), list(ends)
    end = end.copy()
    end[rows] = finish[rows] = list(ends.values())
    return replace(operations, end_ns=end, finish=finish)


def _begin_of_callbacks(
    operations: Operations, communication: Communication, row: int, first_call: int
) -> int:
    """Return when a library's operation began what was to follow it, which holds a call made at `first_call`.

    Of kinds for which gloo copies tensors itself that is after the longest time without an operator: it exchanged data then.
    """
    start, end = operations.start_ns, operations.end_ns
    inside = np.flatnonzero(
        (operations.thread == operations.thread[row])
        & (start > start[row])
        & (end <= end[row])
        & (start <= first_call)
        & ~operations.frame
    )
    inside = inside[np.argsort(start[inside], kind="stable")]
    if communication.operators[row].kind in _IN_PLACE:
        return int(start[inside[0]])
    reached = np.maximum.accumulate(np.append(start[row], end[inside]))[:-1]
    return int(start[inside[int(np.argmax(start[inside] - reached))]])


def clear_times(operations: Operations, rows: Iterable[int]) -> Operations:
    """Return the operations; some of them take no time, as it is that of others."""
    chosen = list(rows)
    end, finish = operations.end_ns.copy(), operations.finish.copy()
    end[chosen], finish[chosen] = operations.start_ns[chosen], operations.begin[chosen]
    return replace(operations, end_ns=end, finish=finish)


def find_lost_calls(
    operations: Operations, communication: Communication, in_place: Mapping[int, int]
) -> list[int]:
    """Return the calls that stand for a collective which the library did not note down any more."""
    rows = find_library_rows(operations)
    if not rows:
        return []
    known = communication.issued_by.keys() | set(in_place.values())
    return [row for row in communication.operators if row not in known]


def find_inner(operations: Operations, communication: Communication, floating: Bool) -> Int64:
    """Return the operation of the library (N,) within which each operation ran on the library's own thread, else -1."""
    inner = np.full(len(operations), NONE, np.int64)
    if not communication.issued_by:
        return inner
    carrying = np.zeros(len(operations), np.bool_)
    carrying[[row for row in communication.issued_by if not floating[row]]] = True
    lanes = find_distinct(operations.thread[carrying])
    rows = np.flatnonzero(
        operations.timed & ~operations.frame & ~floating & np.isin(operations.thread, lanes)
    )
    # Callers first, where both take the same time.
    rows = rows[np.lexsort((operations.id[rows], ~carrying[rows]))]
    parent, depth = find_parents(operations.start_ns[rows], operations.end_ns[rows], operations.thread[rows])
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        caller = rows[parent[here]]
        inner[rows[here]] = np.where(carrying[caller], caller, inner[caller])
    # On the calling thread the caller waits, and what it calls is its own.
    return np.where(operations.thread == operations.thread[_find_calls(inner, communication)], NONE, inner)


def _find_calls(inner: Int64, communication: Communication) -> Int64:
    """Return the call (N,) behind the library's operation around each, the operation's own row where there is none."""
    known, calls = communication.issued_by, np.arange(len(inner))
    within = np.flatnonzero(inner >= 0)
    calls[within] = [
        known.get(row, place) for place, row in zip(within.tolist(), inner[within].tolist(), strict=True)
    ]
    return calls


def split_lanes(operations: Operations, floating: Bool, inner: Int64) -> Operations:
    """Return the operations with threads of their own: one for each floating one, and one for what runs within others.

    These are numbered from `FIRST_LANE` on.
    """
    if not floating.any() and not (inner >= 0).any():
        return operations
    thread = operations.thread.copy()
    thread[inner >= 0] += FIRST_LANE
    thread[floating] = 2 * FIRST_LANE + np.arange(int(floating.sum()))
    return replace(operations, thread=thread)


FIRST_LANE = 1 << 32
"""Number of the first lane that is no thread."""
