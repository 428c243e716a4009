"""Give allocations of memory to the operators in which they happened, as attributes of the nodes.

Each node has lists of equal length, one item per allocation or free, in the order of time: `memory_ns` after the start of
the node, `memory_bytes` (negative for a free), `memory_device` (-1 is the processor's memory), `memory_address`,
`memory_total` and `memory_reserved` of the device after it, `memory_outside` 1 where no operator was running; processes,
threads and steps are no operators. An allocation stands with the innermost operator around it. Frees, and allocations outside,
stand with the operator that began last before on the thread, or with the first: as near in time as can be, so that they
move with it in a simulation.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from studio.et.allocations import Allocations
from studio.et.columns import AttributeColumns
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace
from studio.trace import NONE, Bool, Int64, ValueKind

KEYS = ("bytes", "device", "address", "total", "reserved")


def add_memory_attributes(columns: AttributeColumns, operations: Operations, device: DeviceTrace) -> None:
    """Write the allocations of a process to its operators; none where no operator has a time."""
    noted = device.allocations
    if not len(noted) or not operations.timed.any():
        return
    row, outside = _find_operators(noted, operations, device)
    order = np.lexsort((np.arange(len(row)), noted.time_ns, row))
    row = row[order]
    rows, lengths = np.unique(row, return_counts=True)
    lists = {
        "ns": noted.time_ns[order] - operations.start_ns[row],
        **{key: getattr(noted, key)[order] for key in KEYS},
        "outside": outside[order].astype(np.int64),
    }
    for key, items in lists.items():
        columns.add_ragged(f"memory_{key}", rows, lengths, items, ValueKind.INT64_LIST)


def _find_operators(noted: Allocations, operations: Operations, device: DeviceTrace) -> tuple[Int64, Bool]:
    """Return the operator (M,) of each event, and whether none (M,) ran then."""
    timed = np.flatnonzero(operations.timed & ~operations.frame)
    timed = timed if len(timed) else np.flatnonzero(operations.timed)
    timed = timed[np.lexsort((operations.depth[timed], operations.start_ns[timed]))]
    lane = np.where(operations.event >= 0, device.thread[operations.event], NONE)
    codes = {thread: code for code, thread in enumerate(device.threads)}
    thread = np.array([codes.get(pair, NONE) for pair in noted.threads], np.int64)
    around, before = np.full(len(noted), NONE, np.int64), np.zeros(len(noted), np.int64)
    order = np.lexsort((np.arange(len(noted)), noted.time_ns, thread))
    ends = [0, *(np.flatnonzero(np.diff(thread[order])) + 1).tolist(), len(order)]
    for low, high in pairwise(ends):
        here = order[low:high]
        own = timed[lane[timed] == thread[here[0]]]
        known = len(own) > 0 and int(thread[here[0]]) != NONE
        inner, before[here] = _sweep(own if known else timed, operations, noted.time_ns[here])
        around[here] = inner if known else NONE
    return np.where((around >= 0) & (noted.bytes > 0), around, before), around < 0


def _sweep(rows: Int64, operations: Operations, times: Int64) -> tuple[Int64, Int64]:
    """Return the innermost operation around each time, -1 where there is none, and the last one that had begun."""
    listed, starts, ends = rows.tolist(), operations.start_ns[rows].tolist(), operations.end_ns[rows].tolist()
    around, before = np.full(len(times), NONE, np.int64), np.full(len(times), listed[0], np.int64)
    stack: list[int] = []
    reached = 0
    for place, time in enumerate(times.tolist()):
        while reached < len(listed) and starts[reached] <= time:
            while stack and ends[stack[-1]] < starts[reached]:
                stack.pop()
            stack.append(reached)
            reached += 1
        while stack and ends[stack[-1]] < time:
            stack.pop()
        if stack:
            around[place] = listed[stack[-1]]
        if reached:
            before[place] = listed[reached - 1]
    return around, before
