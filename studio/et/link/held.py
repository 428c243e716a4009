"""Operators that, were they one piece of time, would hold up the device or do while they wait for it what they did afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.distinct import find_distinct
from studio.et.link.attribute import DeviceOperations
from studio.et.link.launches import compute_replayed_ends
from studio.et.link.operations import Operations
from studio.et.link.spans import COMPUTING, add_callers
from studio.et.link.waits import Wait
from studio.et.recording import DeviceTrace, mark_names
from studio.trace import Bool, Int64

_LATE_NS = 5_000
"""A wait that would end as much later than in the recording, or hide as much work, is one too many."""
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Rests:
    """What operations did after they had launched something on the device themselves, or had begun to wait for it.

    Attributes:
        begin_ns: (N,) when that began, late where it comes before in one piece with all else.
        held: (N,) which operators that compute must not be in one piece.
    """

    begin_ns: Int64
    held: Bool


def find_rests(
    operations: Operations,
    around: Int64,
    waits: list[Wait],
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
    *,
    sync: bool,
) -> Rests:
    """Return when the rests of operations began, and which operators that compute must not be in one piece.

    All own time of an operator that is one piece comes before what it launches and calls. That is of no consequence where the
    device is behind or nobody waits for it; so most operators stay whole, and all of them where waits are not derived (`sync`).
    """
    count = len(operations)
    begin = np.full(count, _NEVER, np.int64)
    if device is None or launched is None:
        return Rests(begin, np.zeros(count, np.bool_))
    rows = np.flatnonzero((launched.launch >= 0) & (launched.operator >= 0))
    calls, operators = launched.launch[rows], launched.operator[rows]
    returned = device.start_ns[calls] + device.duration_ns[calls]
    np.minimum.at(begin, operators, returned)
    computes = mark_names(operations.names, operations.name, lambda name: name.startswith(COMPUTING))
    computes &= ~operations.frame
    if not sync:
        begin[computes] = _NEVER
        return Rests(begin, np.zeros(count, np.bool_))
    after_launch = _find_first_within(operations, around, operators, returned)
    rest = np.where(computes, _measure_rests(operations, around, waits, after_launch), 0)
    ready = device.start_ns[launched.event].copy()
    ready[rows] = np.maximum(ready[rows], returned + _add_up(rest, around)[operators])
    late = _find_late(operations, waits, device, launched, ready)[rows]
    late &= ready[rows] - device.start_ns[launched.event[rows]] >= _LATE_NS
    held = add_callers(operators[late], around) & (rest > 0)
    begin[computes & ~held] = _NEVER
    lasting = [wait for wait in waits if wait.operation >= 0 and wait.end - wait.begin >= _LATE_NS]
    waiting, began = np.array([(wait.operation, wait.begin) for wait in lasting], np.int64).reshape(-1, 2).T
    after_wait = _find_first_within(operations, around, waiting, began)
    hides = computes & (_measure_rests(operations, around, waits, after_wait) >= _LATE_NS)
    inside = hides[waiting]
    np.minimum.at(begin, waiting[inside], began[inside])
    return Rests(begin, held | hides)


def _find_late(
    operations: Operations,
    waits: list[Wait],
    device: DeviceTrace,
    launched: DeviceOperations,
    ready: Int64,
) -> Bool:
    """Return which operations of the device (D,) would let a wait, or all the recording, end later by being late, if they were ready at some time."""
    begun = device.start_ns[launched.event]
    ended = begun + device.duration_ns[launched.event]
    replayed = compute_replayed_ends(ready, device, launched)
    late = replayed - ended >= _LATE_NS
    causes = np.zeros(len(late), np.bool_)
    if not late.any():
        return causes
    last = max(int(ended.max()), int(operations.end_ns[~operations.frame].max(initial=0)))
    ends = [(wait.begin, wait.end, np.array(wait.device, np.int64)) for wait in waits]
    limits = [
        wait.until if wait.call >= 0 or wait.operation < 0 else int(operations.end_ns[wait.operation])
        for wait in waits
    ]
    order = sorted(range(len(waits)), key=lambda place: ends[place][1])
    asked = [(*ends[place], limits[place]) for place in order]
    # The device worked for each wait since the one before.
    before, latest = 0, np.maximum.accumulate(ended)
    for begin, end, places, limit in (*asked, (last, last, np.arange(len(late)), last)):
        if (replayed[places] - limit >= _LATE_NS).any():
            since, until = np.searchsorted(latest, before, "right"), np.searchsorted(begun, end, "right")
            window = slice(since, until)
            causes[window] |= late[window] & (ended[window] > before)
        if end > begin:
            before = end
    return causes


def _find_first_within(operations: Operations, around: Int64, rows: Int64, times: Int64) -> Int64:
    """Return the first of some times (M,) of operations in each operation (N,), or when what it called began that has one; late for none."""
    first = np.full(len(operations), _NEVER, np.int64)
    while len(rows):
        np.minimum.at(first, rows, times)
        inside = around[rows] >= 0
        rows = find_distinct(rows[inside])
        rows, times = around[rows], operations.start_ns[rows]
    return first


def _measure_rests(operations: Operations, around: Int64, waits: list[Wait], since_ns: Int64) -> Int64:
    """Return how long operations (N,) worked themselves since some time."""
    start, end = operations.start_ns, operations.end_ns
    rest = np.maximum(end - np.minimum(since_ns, end), 0)
    inner = np.flatnonzero(around >= 0)
    above = around[inner]
    np.subtract.at(rest, above, np.maximum(end[inner] - np.maximum(start[inner], since_ns[above]), 0))
    for wait in waits:
        if wait.operation >= 0 and wait.begin >= since_ns[wait.operation]:
            rest[wait.operation] -= wait.end - wait.begin
    return np.maximum(rest, 0)


def _add_up(rest: Int64, around: Int64) -> Int64:
    """Return the rests of each operation (N,) and of all around it."""
    total, rows, above = rest.copy(), np.arange(len(rest)), around
    while len(rows):
        inside = above >= 0
        rows, above = rows[inside], above[inside]
        total[rows] += rest[above]
        above = around[above]
    return total
