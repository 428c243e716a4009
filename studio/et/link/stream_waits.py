"""Find waits of one stream for another that the recording does not spell out.

Two cases: calls that make a stream wait without saying for what, and operations whose launch was not recorded.

CUPTI tells which event a stream waits for only where it was asked to, and newer versions not even then; with ROCm the trace
holds no more than the call: some stream waits for something. Around collectives there is little to choose from: within a call
for a collective PyTorch lets the stream of the library wait for that of the caller, which may be the same; elsewhere the caller's
stream waits for a collective whose result is needed. So the first operation that a thread launches after the call waits, on the
stream that waits where that is told: the collective that is being called for what the thread launched last on streams of its own,
anything else for the last collective launched before on another stream. Where that ended only later, several were called before
the first was waited for, as by DDP: it is then the one at whose end the operation, given to the device and with its stream done, could
begin. A wait that the recorded times contradict is none.

Of an operation whose launch was not recorded, nothing tells what it waited for but the times: it is taken to wait for what
its device ended last before it. So the idle time before it is that of the device, not that of its stream alone, during which
the device may have carried out a collective on another stream.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np

from studio.distinct import find_distinct
from studio.et.link.attribute import DeviceOperations, find_covering
from studio.et.link.launches import group_by_stream
from studio.et.link.operations import Operations
from studio.et.recording import DeviceTrace, EventKind, mark_names
from studio.trace import NONE, Bool, Int32, Int64

_CALLS = ("c10d::", "record_param_comms", "nccl:", "rccl:")
_WAIT = re.compile(r"(cuda|hip|cu)StreamWaitEvent")


def infer_stream_waits(
    operations: Operations, device: DeviceTrace, launched: DeviceOperations, communicating: Collection[int]
) -> tuple[Int64, Int64]:
    """Return which device operations wait for which: sources and targets, as places among them.

    Args:
        operations: What the processor did.
        device: The trace.
        launched: Its device operations.
        communicating: Places of those that communicate.
    """
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
    is_recorded = (device.kind == EventKind.SYNC) & (device.wait_stream >= 0)
    named = mark_names(device.names, device.name, lambda name: _WAIT.match(name) is not None)
    calls = np.flatnonzero((device.kind == EventKind.RUNTIME) & named)
    if is_recorded.any() or not len(calls) or not communicating:
        return nothing
    places = np.flatnonzero(launched.launch >= 0)
    places = places[np.argsort(device.start_ns[launched.launch[places]], kind="stable")]
    begun = device.start_ns[launched.launch[places]]
    events = launched.event[places]
    stream, start = device.stream[events], device.start_ns[events]
    finish, thread = start + device.duration_ns[events], device.thread[launched.launch[places]]
    talks = np.isin(places, list(communicating))
    within = _find_outermost_calls(operations, launched.operator[places])
    call_of_wait = _find_outermost_calls(operations, find_covering(operations, device, calls))
    waiting = _find_waiting_streams(device, calls)
    own = _find_caller_streams(thread, stream, within)
    waits = list(zip(device.thread[calls].tolist(), waiting.tolist(), strict=True))
    lanes = {
        (caller, on): np.flatnonzero((thread == caller) & ((stream == on) | (on < 0)))
        for caller, on in set(waits)
    }
    collectives = _Launched(np.flatnonzero(talks), stream)
    ended = _Ended(np.flatnonzero(talks), stream, device.device[events], finish)
    free = np.maximum(
        _find_ends_before(device, launched)[places], begun + device.duration_ns[launched.launch[places]]
    )
    asked = {
        caller: _Launched(np.flatnonzero((thread == caller) & (own | ~talks)), stream) for caller, _ in lanes
    }
    pairs: set[tuple[int, int]] = set()
    firsts = np.searchsorted(begun, device.start_ns[calls], side="left")
    for place, (caller, on) in enumerate(waits):
        first, lane = int(firsts[place]), lanes[caller, on]
        after = int(np.searchsorted(lane, first))
        if after == len(lane):
            continue
        target = int(lane[after])
        if not talks[target] or (own[target] and call_of_wait[place] != within[target]):
            last = collectives.last_elsewhere(first, int(stream[target]))
            if last >= 0 and finish[last] > start[target]:
                last = ended.last_elsewhere(first, target, int(free[target]), int(start[target]))
        elif own[target]:
            # The collective runs on the caller's own stream.
            continue
        else:
            last = asked[caller].last_elsewhere(first, int(stream[target]))
        if last >= 0 and finish[last] <= start[target]:
            pairs.add((int(places[last]), int(places[target])))
    if not pairs:
        return nothing
    sources, targets = zip(*sorted(pairs), strict=True)
    return np.array(sources, np.int64), np.array(targets, np.int64)


class _Launched:
    """Some operations in the order of their launches, to find the last one on another stream than a given one."""

    def __init__(self, at: Int64, stream: Int64) -> None:
        self.at, self.stream = at, stream[at]
        changes = np.append(True, self.stream[1:] != self.stream[:-1])[: len(at)]
        # Of each where those of its stream begin that follow each other without one of another stream between them.
        self.since = np.maximum.accumulate(np.where(changes, np.arange(len(at)), 0))

    def last_elsewhere(self, first: int, stream: int) -> int:
        """Return the last before a place that is on another stream, -1 where there is none."""
        place = int(np.searchsorted(self.at, first)) - 1
        if place >= 0 and self.stream[place] == stream:
            place = int(self.since[place]) - 1
        return int(self.at[place]) if place >= 0 else NONE


class _Ended:
    """Some operations in the order of their ends, to find the one that another operation waited for by the times."""

    def __init__(self, at: Int64, stream: Int64, device: Int64, finish: Int64) -> None:
        self.stream, self.device = stream, device
        order = np.argsort(finish[at], kind="stable")
        self.at, self.finish = at[order], finish[at][order]

    def last_elsewhere(self, first: int, target: int, after_ns: int, until_ns: int) -> int:
        """Return the last before a place to end after one time and by another, on another stream of the device of the target, or -1."""
        begin, end = np.searchsorted(self.finish, [after_ns, until_ns], side="right").tolist()
        for place in self.at[begin:end][::-1].tolist():
            same = self.device[place] == self.device[target]
            if place < first and same and self.stream[place] != self.stream[target]:
                return int(place)
        return NONE


def _find_ends_before(device: DeviceTrace, launched: DeviceOperations) -> Int64:
    """Return (D,) when all that began before on the stream of each operation had ended; the least time there is for the first."""
    finish = device.start_ns[launched.event] + device.duration_ns[launched.event]
    before = np.full(len(finish), np.iinfo(np.int64).min, np.int64)
    for rows in group_by_stream(device, launched):
        before[rows[1:]] = np.maximum.accumulate(finish[rows[:-1]])
    return before


def _find_waiting_streams(device: DeviceTrace, calls: Int64) -> Int64:
    """Return which stream each call (M,) makes wait, -1 where nothing tells."""
    rows = np.flatnonzero((device.kind == EventKind.SYNC) & (device.stream >= 0) & (device.correlation >= 0))
    stream_of = dict(zip(device.correlation[rows].tolist(), device.stream[rows].tolist(), strict=True))
    return np.array([stream_of.get(number, NONE) for number in device.correlation[calls].tolist()], np.int64)


def _find_outermost_calls(operations: Operations, rows: Int64) -> Int64:
    """Return the outermost call for communication around each row (M,), -1 where there is none."""
    call_of: dict[int, int] = {NONE: NONE}

    def find_outermost(row: int) -> int:
        above = []
        while row not in call_of:
            above.append(row)
            row = int(operations.parent[row])
        known = call_of[row]
        for each in reversed(above):
            if known < 0 and operations.name_of(each).startswith(_CALLS):
                known = each
            call_of[each] = known
        return known

    return np.array([find_outermost(row) for row in rows.tolist()], np.int64)


def _find_caller_streams(thread: Int32, stream: Int64, within: Int64) -> Bool:
    """Return (D,) whether an operation ran on a stream on which its thread launches work of its own, outside of calls."""
    lanes = thread.astype(np.int64) << 32 | stream & 0xFFFFFFFF
    return np.isin(lanes, lanes[within < 0])


def infer_unlaunched_waits(
    device: DeviceTrace, launched: DeviceOperations, place: Int64, idle_from_ns: Int64
) -> tuple[Int64, Int64]:
    """Return what operations without a recorded launch waited for on other streams: sources and targets, as places.

    It is the last operation of the same device that ended before they began, where that was after `idle_from_ns`.

    Args:
        device: The trace.
        launched: Its device operations.
        place: (I,) operations before which their stream stood idle, as places among them.
        idle_from_ns: (I,) from when on.
    """
    unknown = launched.launch[place] < 0
    place, idle_from_ns = place[unknown], idle_from_ns[unknown]
    start = device.start_ns[launched.event]
    finish = start + device.duration_ns[launched.event]
    on = device.device[launched.event]
    pairs = [np.zeros((2, 0), np.int64)]
    for number in find_distinct(on[place]).tolist():
        # What takes no time may have begun when the operation did, which waits for nothing that begins with it.
        candidates = np.flatnonzero((on == number) & (finish > start))
        candidates = candidates[np.argsort(finish[candidates], kind="stable")]
        targets = np.flatnonzero(on[place] == number)
        last = np.searchsorted(finish[candidates], start[place[targets]], side="right") - 1
        targets, last = targets[last >= 0], last[last >= 0]
        sources = candidates[last]
        later = finish[sources] > idle_from_ns[targets]
        pairs.append(np.stack([sources[later], place[targets[later]]]))
    sources, targets = np.concatenate(pairs, axis=1)
    return sources, targets
