"""When the processor waited for the device, and what operations took without that."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from studio.et.link.attribute import DeviceOperations, find_covering
from studio.et.link.launches import WAITING_COPY, LaunchedByStream, compute_replayed_ends
from studio.et.link.operations import Operations
from studio.et.link.spans import COMPUTING, REST_NS
from studio.et.recording import DeviceTrace, EventKind, mark_names
from studio.trace import NONE, Bool, Int64

_ASYNC_COPY = re.compile(r"(cudaMemcpy|hipMemcpy|cuMemcpy)\w*Async")
_BLOCKED = 0.9
"""The part of a copy's time that the call which waits for it lasts at least."""
_PAGEABLE = re.compile("Pageable")
_NEVER_WAITS = re.compile(r"Pinned|DtoD|Device -> Device|DeviceToDevice|PtoP|Peer")
"""Match names of copies: of memory for which a call has to wait, and between memories for which none does."""
_LONG_NS = 5 * REST_NS
"""A call whose copy does not say what memory it is of waited for it if it lasted as long."""


class Wait(NamedTuple):
    """The processor waited for device operations from `begin` to `end`, in `operation` or in none (-1).

    Where they had ended before, both are the begin of the call. A call that no operator stands for is a node of its own
    (`call`, the row of its event, else -1), from the end of the wait to its own end, `until`; elsewhere `until` is `end`.
    """

    thread: int
    operation: int
    begin: int
    end: int
    until: int
    call: int
    device: tuple[int, ...]


def find_waits(operations: Operations, device: DeviceTrace, launched: DeviceOperations) -> list[Wait]:
    """Return when the processor waited for which device operations (their positions).

    Calls after which their threads did nothing hold nothing up, such as that with which a profiler ends the recording: they
    are not among them, but where the mark of a step is around them.
    """
    runtime = np.flatnonzero(device.kind == EventKind.RUNTIME)
    calls = runtime[mark_names(device.names, device.name[runtime], _is_sync)].tolist()
    blocked = _find_blocking_copies(device, launched, runtime)
    calls = sorted({*calls, *blocked})
    if not calls or not len(launched):
        return []
    synced = {int(device.correlation[row]): int(row) for row in np.flatnonzero(device.kind == EventKind.SYNC)}
    finder = LaunchedByStream(device, launched)
    operation = find_covering(operations, device, np.array(calls, np.int64)).tolist()
    waits = []
    # Lanes that are no threads of the recording have higher numbers.
    on_thread = np.flatnonzero((operations.thread >= 0) & (operations.thread < len(device.threads)))
    last = np.full(len(device.threads), NONE, np.int64)
    np.maximum.at(last, operations.thread[on_thread], operations.end_ns[on_thread])
    for call, around in zip(calls, operation, strict=True):
        begin = int(device.start_ns[call])
        if around < 0 and begin >= last[device.thread[call]]:
            continue
        until = begin + int(device.duration_ns[call])
        if call in blocked:
            place, begin = blocked[call]
            places = [place]
        else:
            places = finder.find_awaited(call, synced.get(int(device.correlation[call]), NONE), around)
            # What ended well after the call was not waited for; clocks of processor and device differ a little.
            places = [place for place in places if finder.finish[place] < until + REST_NS]
        if places:
            end = min(max(begin, *(int(finder.finish[place]) for place in places)), until)
            own = around < 0 or not operations.name_of(around).startswith(COMPUTING)
            waits.append(
                Wait(
                    int(device.thread[call]), around, begin, end, until if own else end,
                    call if own else NONE, tuple(places),
                )
            )  # fmt: skip
    return waits


def measure_own_time(operations: Operations, waits: list[Wait], around: Int64) -> tuple[Int64, Int64]:
    """Return the time (N,) every operation took itself, and the time it waited for the device."""
    timed = operations.timed & ~operations.frame
    own = np.where(timed, operations.end_ns - operations.start_ns, np.where(operations.timed, 0, NONE))
    inner = np.flatnonzero(around >= 0)
    np.subtract.at(own, around[inner], (operations.end_ns - operations.start_ns)[inner])
    own[timed] = np.maximum(own[timed], 0)
    waited, apart = np.zeros(len(operations), np.int64), np.zeros(len(operations), np.int64)
    for wait in waits:
        if wait.operation >= 0 and not operations.frame[wait.operation]:
            waited[wait.operation] += wait.end - wait.begin
            apart[wait.operation] += wait.until - wait.end
    waited = np.minimum(waited, np.maximum(own, 0))
    return np.where(timed, np.maximum(own - waited - apart, 0), own), waited


def leave_out_untimely(
    waits: list[Wait], operations: Operations, around: Int64, device: DeviceTrace, launched: DeviceOperations
) -> list[Wait]:
    """Return waits without those that took no time and might take some in a replay.

    An operator that launches is one piece of time, so in a replay what it launches begins at its end at the earliest, and
    what follows on the stream after that. What was done before a call in the recording may not be then.
    """
    if all(wait.end > wait.begin for wait in waits):
        return waits
    own, _ = measure_own_time(operations, [wait for wait in waits if wait.end > wait.begin], around)
    ready = device.start_ns[launched.event].copy()
    is_attributed = launched.operator >= 0
    caller = launched.operator[is_attributed]
    ready[is_attributed] = np.maximum(
        ready[is_attributed], operations.begin[caller] + np.maximum(own[caller], 0)
    )
    ended = compute_replayed_ends(ready, device, launched)
    kept = []
    for wait in waits:
        until = wait.until if wait.call >= 0 else int(operations.end_ns[wait.operation])
        if wait.end > wait.begin or all(ended[place] < until + REST_NS for place in wait.device):
            kept.append(wait)
    return kept


def _find_blocking_copies(
    device: DeviceTrace, launched: DeviceOperations, runtime: Int64
) -> dict[int, tuple[int, int]]:
    """Return calls that waited for the copy they started, as of pageable memory → the copy's place, and since when.

    They lasted as long as the copy, or until it had ended where the device was busy with other work up to the copy: such a call
    waits from its begin, however short the copy is.
    """
    is_copy = mark_names(device.names, device.name[runtime], lambda name: _ASYNC_COPY.match(name) is not None)
    asynchronous = runtime[is_copy]
    places = np.flatnonzero(np.isin(launched.launch, asynchronous) & (launched.launch >= 0))
    if not len(places):
        return {}
    copies, calls = launched.event[places], launched.launch[places]
    start, took = device.start_ns[copies], device.duration_ns[copies]
    begun, until = device.start_ns[calls], device.start_ns[calls] + device.duration_ns[calls]
    shared = np.minimum(start + took, until) - np.maximum(start, begun)
    lasted = (shared >= REST_NS) & (shared >= _BLOCKED * took)
    queued = _find_queued(device, launched, copies, begun)
    since_end = until - (start + took)
    names = device.name[copies]
    least = np.where(
        mark_names(device.names, names, lambda name: bool(_PAGEABLE.search(name))), REST_NS, _LONG_NS
    )
    never = mark_names(device.names, names, lambda name: bool(_NEVER_WAITS.search(name)))
    # A call that does not wait may end after its copy too, but hardly so long after its begin and so soon after that end.
    outlasted = (since_end >= 0) & (since_end < REST_NS) & (until - begun >= least) & ~never
    blocked = lasted | (queued & outlasted)
    since = np.where(queued, begun, np.maximum(begun, start))
    copies_since = zip(places[blocked].tolist(), since[blocked].tolist(), strict=True)
    return dict(zip(calls[blocked].tolist(), copies_since, strict=True))


def _find_queued(device: DeviceTrace, launched: DeviceOperations, copies: Int64, begun: Int64) -> Bool:
    """Return which copies began as other work of the device ended that had not when their calls began (at `begun`)."""
    ended = np.sort(device.start_ns[launched.event] + device.duration_ns[launched.event])
    start = device.start_ns[copies]
    # A copy that took no time is itself among what had ended.
    place = np.searchsorted(ended, start, side="right") - 1 - (device.duration_ns[copies] == 0)
    before = np.where(place >= 0, ended[place], np.iinfo(np.int64).min)
    return (before > begun) & (start < before + REST_NS)


def _is_sync(name: str) -> bool:
    return "ynchronize" in name or WAITING_COPY.match(name) is not None
