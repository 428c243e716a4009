"""Find the operator that launched each device operation: by correlation to the launch, then by time; else by external id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studio.distinct import find_distinct
from studio.et.device_events import order_by_begin
from studio.et.link.intervals import find_innermost
from studio.et.link.names import KERNEL
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace, EventKind, mark_names
from studio.trace import NONE, Bool, Int64


@dataclass(frozen=True, slots=True)
class DeviceOperations:
    """The device operations of a process, by start.

    D operations.

    Attributes:
        event: (D,) rows of the Kineto events.
        launch: (D,) row of the runtime call that launched it, -1 where the trace has none.
        operator: (D,) row of the operator around that call; without a call the one of the same external id; -1 where there is none.
        own_ns: (D,) how long it ran until the next one of its stream began, where that came before its end and ended later: kernels of
            one stream overlap where a launch lets the next one begin early. Of those that communicate, the whole time.
        earlier: (D,) whether it was launched before the recording began: the step before that is not recorded had asked for it.
        why: Reasons for missing operators → how many.
    """

    event: Int64
    launch: Int64
    operator: Int64
    own_ns: Int64
    earlier: Bool
    why: dict[str, int]

    def __len__(self) -> int:
        return len(self.event)


def attribute_operations(operations: Operations, device: DeviceTrace) -> DeviceOperations:
    """Find the launch and the operator of every device operation; all of them are kept."""
    rows = np.flatnonzero(device.is_device)
    launch = find_launches(device, rows)
    is_launched = launch >= 0
    operator = np.full(len(rows), NONE, np.int64)
    distinct, back = np.unique(launch[is_launched], return_inverse=True)
    operator[is_launched] = find_covering(operations, device, distinct)[back]
    # Correlation ids rise from launch to launch.
    ids = device.correlation[(device.kind == EventKind.RUNTIME) & (device.correlation >= 0)]
    first = int(ids.min()) if len(ids) else 0
    earlier = ~is_launched & (device.correlation[rows] >= 0) & (device.correlation[rows] < first)
    # What was launched before the recording may carry the id of an operator that is not recorded either.
    unseen = np.flatnonzero(~is_launched & ~earlier)
    operator[unseen] = _find_by_external_id(operations, device, rows[unseen])
    lost = ~is_launched & ~earlier & (operator < 0)
    outside = "launched outside the recorded window" if is_launched.any() else "no launch is recorded"
    why = {
        "no correlation id": int((lost & (device.correlation[rows] < 0)).sum()),
        "launched before the recording began": int(earlier.sum()),
        outside: int((lost & (device.correlation[rows] >= 0)).sum()),
        "no operator around the launch": int((is_launched & (operator < 0)).sum()),
    }
    known = {reason: count for reason, count in why.items() if count}
    return DeviceOperations(rows, launch, operator, _compute_own_times(device, rows), earlier, known)


def _compute_own_times(device: DeviceTrace, rows: Int64) -> Int64:
    """Return `DeviceOperations.own_ns`."""
    start, took = device.start_ns[rows], device.duration_ns[rows]
    order = np.lexsort((start, device.stream[rows], device.device[rows]))
    first, then = order[:-1], order[1:]
    same = (device.stream[rows[first]] == device.stream[rows[then]]) & (device.stream[rows[first]] >= 0)
    same &= device.device[rows[first]] == device.device[rows[then]]
    end = start + took
    overlap = same & (start[first] < start[then]) & (start[then] < end[first]) & (end[first] <= end[then])
    own = took.copy()
    if overlap.any():
        talks = mark_names(device.names, device.name[rows], lambda name: KERNEL.search(name) is not None)
        overlap &= ~talks[first] & ~talks[then]
    own[first[overlap]] = (start[then] - start[first])[overlap]
    return own


def find_launches(device: DeviceTrace, rows: Int64) -> Int64:
    """Return the runtime call (M,) with the same correlation id as each event, -1 where there is none."""
    calls = np.flatnonzero((device.kind == EventKind.RUNTIME) & (device.correlation >= 0))
    calls = calls[np.argsort(device.correlation[calls], kind="stable")]
    known = device.correlation[calls]
    wanted = device.correlation[rows]
    if not len(calls):
        return np.full(len(rows), NONE, np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(calls) - 1)
    return np.where((wanted >= 0) & (known[place] == wanted), calls[place], NONE)


def _find_by_external_id(operations: Operations, device: DeviceTrace, rows: Int64) -> Int64:
    """Return the innermost operation (M,) with the same external id as each device operation, -1 where there is none.

    Annotations may carry the id of an operator within them. An operation that began only when the other had ended did not launch it.
    """
    named = np.flatnonzero(operations.timed & (operations.event >= 0))
    named = named[device.external[operations.event[named]] > 0]
    wanted = device.external[rows]
    if not len(named):
        return np.full(len(rows), NONE, np.int64)
    ids = device.external[operations.event[named]]
    order = np.lexsort((operations.start_ns[named], operations.depth[named], ids))
    named, ids = named[order], ids[order]
    place = np.maximum(np.searchsorted(ids, wanted, side="right") - 1, 0)
    is_found = (ids[place] == wanted) & (
        operations.start_ns[named[place]] <= device.start_ns[rows] + device.duration_ns[rows]
    )
    return np.where(is_found, named[place], NONE)


def find_covering(operations: Operations, device: DeviceTrace, calls: Int64) -> Int64:
    """Return the innermost operation (M,) around the start of each call on its thread, -1 where there is none.

    Where one of the operations around a call carries the call's external id, that one counts as the innermost.
    """
    operator = np.full(len(calls), NONE, np.int64)
    timed = np.flatnonzero(operations.timed & (operations.event >= 0))
    lanes = device.thread[operations.event[timed]]
    for lane in find_distinct(device.thread[calls]).tolist():
        here = np.flatnonzero(device.thread[calls] == lane)
        _sweep(operations, device, timed[lanes == lane], calls, here, operator)
    return operator


def _sweep(
    operations: Operations, device: DeviceTrace, rows: Int64, calls: Int64, here: Int64, operator: Int64
) -> None:
    """Find the operation around each call of one thread."""
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    # Callers first, where both take the same time.
    order = order_by_begin(start, end, operations.depth[rows])
    rows = rows[order]
    here = here[np.argsort(device.start_ns[calls[here]], kind="stable")]
    external = device.external[operations.event[rows]]
    times, wanted = device.start_ns[calls[here]], device.external[calls[here]]
    inner = find_innermost(start[order], end[order], external, times, wanted)
    operator[here] = np.append(rows, NONE)[inner]
