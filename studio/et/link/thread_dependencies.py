"""Derive what host operations wait for: their thread, the device, and other threads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from studio.distinct import find_distinct
from studio.et.link.dep_kinds import DepKind
from studio.et.link.dependencies import Dependencies
from studio.et.link.gaps import Causes, Gaps
from studio.et.link.operations import Operations
from studio.et.link.waits import Wait
from studio.trace import NONE, Int64

Lanes = dict[int, tuple[Int64, Int64]]
"""Thread → its rows in order, and when they began."""


def order_lanes(operations: Operations, gaps: Gaps, order: Int64, lost: Sequence[int]) -> Lanes:
    """Return the rows of each thread in order, including gaps, and when they began; without lost calls.

    What stands for the process or a thread is no part of it: recorders write it down while another thread runs.
    """
    thread = np.concatenate((operations.thread, gaps.thread))
    thread[list(lost)] = NONE
    thread[np.flatnonzero(operations.frame & ~operations.timed)] = NONE
    times = np.concatenate((operations.begin, gaps.start_ns))
    by_lane = {}
    for lane in find_distinct(thread[thread != NONE]).tolist():
        rows = np.flatnonzero(thread == lane)
        rows = rows[np.argsort(order[rows], kind="stable")]
        by_lane[lane] = rows, times[rows]
    return by_lane


def add_thread_order(draft: Dependencies, lanes: Lanes) -> None:
    """Add the order of operations on each thread."""
    for rows, _ in lanes.values():
        draft.add(rows[:-1], rows[1:], DepKind.ORDER)


def add_lost_order(
    draft: Dependencies, lanes: Lanes, operations: Operations, lost: Sequence[int], order: Int64
) -> None:
    """Let lost calls wait for what was before them on their thread, where a gap takes their place."""
    for call in lost:
        rows, _ = lanes.get(int(operations.thread[call]), (order[:0], order[:0]))
        place = int(np.searchsorted(order[rows], order[call])) - 1
        if place >= 0:
            draft.add(rows[place : place + 1], np.array([call]), DepKind.ORDER)


def add_blocking(
    draft: Dependencies, lanes: Lanes, operations: Operations, awaited: Collection[tuple[int, int]]
) -> None:
    """Let what began on a thread after a library's operation wait for that, where the thread had waited for it.

    Where the operation had ended before the thread looked, nothing else shows that it waits.

    Args:
        draft: What is collected.
        lanes: The rows of threads.
        operations: What the processor did.
        awaited: Operations of a library, and what waits for each: the call that is not asynchronous, or one that waits.
    """
    pairs = []
    none = np.zeros(0, np.int64)
    for row, waiter in awaited:
        rows, times = lanes.get(int(operations.thread[waiter]), (none, none))
        ended = max(int(operations.finish[row]), int(operations.end_ns[waiter]))
        place = int(np.searchsorted(times, ended, side="left"))
        apart = operations.thread[waiter] != operations.thread[row]
        if apart and operations.timed[row] and operations.timed[waiter] and place < len(rows):
            pairs.append((row, rows[place]))
    ended_rows, following = np.array(pairs, np.int64).reshape(-1, 2).T
    draft.add(ended_rows, following, DepKind.THREAD)


def add_inner_order(
    draft: Dependencies,
    lanes: Lanes,
    operations: Operations,
    inner: Int64,
    order: Int64,
    library: dict[int, int],
) -> None:
    """Let operations inside a library call wait for what the call waits for, instead of for its end."""
    rows = np.flatnonzero(inner >= 0)
    rows = rows[np.argsort(order[rows], kind="stable")]
    for around, first in zip(*np.unique(inner[rows], return_index=True), strict=True):
        before, _ = lanes[int(operations.thread[around])]
        place = int(np.searchsorted(order[before], order[around])) - 1
        if place >= 0:
            draft.add(before[place : place + 1], rows[first : first + 1], DepKind.ORDER)
        if int(around) in library:
            draft.add(np.array([library[int(around)]]), rows[first : first + 1], DepKind.THREAD)


def add_syncs(
    draft: Dependencies, lanes: Lanes, first_device: int, waits: list[Wait], calls: dict[int, int]
) -> None:
    """Add what threads waited for on the device: to the call that waited, or to what began after it on its thread.

    Args:
        draft: What is collected.
        lanes: The rows of threads.
        first_device: Row of the first operation of the device.
        waits: When they waited.
        calls: The node of each call that is one, by the row of its event.
    """
    none = np.zeros(0, np.int64)
    for wait in waits:
        rows, times = lanes.get(wait.thread, (none, none))
        place = int(np.searchsorted(times, wait.end, side="left"))
        target = calls.get(wait.call) if wait.call >= 0 else rows[place] if place < len(rows) else None
        if target is not None:
            places = np.array(wait.device, np.int64) + first_device
            draft.add(places, np.full(len(places), target), DepKind.SYNC)


def add_holds(draft: Dependencies, lanes: Lanes, causes: Causes, instants: Int64) -> None:
    """Add what threads waited for on others, to the first node of the thread that began after the wait.

    Operations that took no time end as they begin (`instants`).
    """
    if not causes:
        return
    lane, time, other, until = np.array([(*held, *cause) for held, cause in causes.items()], np.int64).T
    held_row, cause_row = np.full(len(lane), NONE, np.int64), np.full(len(lane), NONE, np.int64)
    for each in find_distinct(lane).tolist():
        here = np.flatnonzero(lane == each)
        rows, times = lanes[each]
        held_row[here] = np.append(rows, NONE)[np.searchsorted(times, time[here], side="left")]
    for each in find_distinct(other).tolist():
        here = np.flatnonzero(other == each)
        rows, begun = lanes[each]
        # The last that the other thread began before: by its end all before it have ended, too.
        low, high = (np.searchsorted(begun, until[here], side=side) for side in ("left", "right"))
        lasting = np.flatnonzero(np.append(~np.isin(rows, instants), True))
        place = np.minimum(lasting[np.searchsorted(lasting, low)], high) - 1
        cause_row[here] = np.where(place >= 0, rows[place], NONE)
    both = (held_row >= 0) & (cause_row >= 0)
    draft.add(cause_row[both], held_row[both], DepKind.THREAD)
