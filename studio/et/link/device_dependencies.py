"""What device operations wait for: launches, their stream, events of other streams, and tensors."""

from __future__ import annotations

import numpy as np

from studio.et.link.attribute import DeviceOperations
from studio.et.link.dep_kinds import DepKind
from studio.et.link.dependencies import Dependencies
from studio.et.link.launches import LaunchedByStream, group_by_stream
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace, EventKind
from studio.trace import Int64


def add_device_dependencies(
    draft: Dependencies, device: DeviceTrace, launched: DeviceOperations, first_device: int
) -> None:
    """Add launches, stream order, and waits of streams for events of others."""
    attributed = np.flatnonzero(launched.operator >= 0)
    draft.add(launched.operator[attributed], attributed + first_device, DepKind.LAUNCH)
    draft.add(launched.operator[attributed], attributed + first_device, DepKind.CALL)
    for rows in group_by_stream(device, launched):
        draft.add(rows[:-1] + first_device, rows[1:] + first_device, DepKind.STREAM)
    waits = np.flatnonzero(
        (device.kind == EventKind.SYNC)
        & (device.wait_stream >= 0)
        & (device.wait_record >= 0)
        & (device.stream >= 0)
    )
    if not len(waits):
        return
    finder = LaunchedByStream(device, launched)
    started = {
        int(device.correlation[row]): int(device.start_ns[row])
        for row in np.flatnonzero((device.kind == EventKind.RUNTIME) & (device.correlation >= 0)).tolist()
    }
    for wait in waits.tolist():
        recorded = started.get(int(device.wait_record[wait]))
        called = started.get(int(device.correlation[wait]), int(device.start_ns[wait]))
        if recorded is None:
            continue
        source = finder.last_before(int(device.wait_stream[wait]), recorded)
        target = finder.first_from(int(device.stream[wait]), called)
        if source >= 0 and target >= 0:
            draft.add(np.array([source + first_device]), np.array([target + first_device]), DepKind.EVENT)


def add_between_streams(
    draft: Dependencies,
    device: DeviceTrace,
    launched: DeviceOperations,
    source: Int64,
    target: Int64,
    first_device: int,
) -> None:
    """Add data dependencies between kernels of writer and reader on different streams.

    Only where the recording agrees: the writer's kernel ended before the reader's began.
    """
    of_operator: dict[int, list[int]] = {}
    for place, row in enumerate(launched.operator.tolist()):
        if row >= 0:
            of_operator.setdefault(row, []).append(place)
    start = device.start_ns[launched.event]
    finish = start + device.duration_ns[launched.event]
    stream = device.stream[launched.event]
    sources, targets = [], []
    for writer, reader in zip(source.tolist(), target.tolist(), strict=True):
        if writer in of_operator and reader in of_operator:
            last, first = of_operator[writer][-1], of_operator[reader][0]
            if stream[last] != stream[first] and finish[last] <= start[first]:
                sources.append(last)
                targets.append(first)
    draft.add(
        np.array(sources, np.int64) + first_device, np.array(targets, np.int64) + first_device, DepKind.DATA
    )


def compute_device_begin(operations: Operations, device: DeviceTrace, launched: DeviceOperations) -> Int64:
    """Return times to order device operations by: their start, but not before their launch or their stream."""
    begin = device.start_ns[launched.event].copy()
    is_attributed = launched.operator >= 0
    begin[is_attributed] = np.maximum(
        begin[is_attributed], operations.begin[launched.operator[is_attributed]]
    )
    for rows in group_by_stream(device, launched):
        begin[rows] = np.maximum.accumulate(begin[rows])
    return begin
