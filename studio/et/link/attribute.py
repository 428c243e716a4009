"""Find the operator that launched each device operation, by correlation to the launch, then by time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace, EventKind
from studio.trace import NONE, Int64


@dataclass(frozen=True, slots=True)
class DeviceOperations:
    """The device operations of a process, by start.

    D operations.

    Attributes:
        event: (D,) rows of the Kineto events.
        launch: (D,) row of the runtime call that launched it, -1 where the trace has none.
        operator: (D,) row of the operator around that call, -1 where there is none.
        why: Reasons for missing operators → how many.
    """

    event: Int64
    launch: Int64
    operator: Int64
    why: dict[str, int]

    def __len__(self) -> int:
        return len(self.event)


def attribute(operations: Operations, device: DeviceTrace) -> DeviceOperations:
    """Find the launch and the operator of every device operation; all of them are kept."""
    rows = np.flatnonzero(device.is_device)
    launch = launches(device, rows)
    there = launch >= 0
    operator = np.full(len(rows), NONE, np.int64)
    distinct, back = np.unique(launch[there], return_inverse=True)
    operator[there] = covering(operations, device, distinct)[back]
    called = bool((device.kind == EventKind.RUNTIME).any())
    outside = "launched outside the recorded window" if called else "no launch is recorded"
    why = {
        "no correlation id": int((device.correlation[rows] < 0).sum()),
        outside: int(((device.correlation[rows] >= 0) & ~there).sum()),
        "no operator around the launch": int((there & (operator < 0)).sum()),
    }
    return DeviceOperations(rows, launch, operator, {reason: count for reason, count in why.items() if count})


def launches(device: DeviceTrace, rows: Int64) -> Int64:
    """Return the runtime call (M,) with the same correlation id as each event, -1 where there is none."""
    calls = np.flatnonzero((device.kind == EventKind.RUNTIME) & (device.correlation >= 0))
    calls = calls[np.argsort(device.correlation[calls], kind="stable")]
    known = device.correlation[calls]
    wanted = device.correlation[rows]
    if not len(calls):
        return np.full(len(rows), NONE, np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(calls) - 1)
    return np.where((wanted >= 0) & (known[place] == wanted), calls[place], NONE)


def covering(operations: Operations, device: DeviceTrace, calls: Int64) -> Int64:
    """Return the innermost operation (M,) around the start of each call on its thread, -1 where there is none.

    Where one of the operations around a call carries the call's external id, that one counts as the innermost.
    """
    operator = np.full(len(calls), NONE, np.int64)
    timed = np.flatnonzero(operations.timed & (operations.event >= 0))
    lanes = device.thread[operations.event[timed]]
    for lane in np.unique(device.thread[calls]).tolist():
        here = np.flatnonzero(device.thread[calls] == lane)
        _sweep(operations, device, timed[lanes == lane], calls, here, operator)
    return operator


def _sweep(
    operations: Operations, device: DeviceTrace, rows: Int64, calls: Int64, here: Int64, operator: Int64
) -> None:
    """Go through one thread by time with a stack of running operations."""
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    order = np.lexsort((operations.depth[rows], -end, start))
    rows, starts, ends = rows[order].tolist(), start[order].tolist(), end[order].tolist()
    external = device.external[operations.event[np.array(rows, np.int64)]].tolist() if rows else []
    times, externals = device.start_ns[calls[here]], device.external[calls[here]].tolist()
    found = operator[here].tolist()
    stack: list[int] = []
    reached = 0
    by_time = np.argsort(times, kind="stable")
    for place, time in zip(by_time.tolist(), times[by_time].tolist(), strict=True):
        wanted = externals[place]
        while reached < len(rows) and starts[reached] <= time:
            while stack and ends[stack[-1]] < starts[reached]:
                stack.pop()
            stack.append(reached)
            reached += 1
        while stack and ends[stack[-1]] < time:
            stack.pop()
        around = [row for row in stack if ends[row] >= time]
        if around:
            named = [row for row in around if wanted >= 0 and external[row] == wanted]
            found[place] = rows[(named or around)[-1]]
    operator[here] = found
