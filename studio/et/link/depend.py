"""Derive the dependencies of a rank with their reasons, and the time the processor spent itself.

All times and rows are of one process. Every dependency points back in one order of all nodes (by time, callers
before what they call), so there can be no cycle; what would point forward, because clocks of processor and device
disagree, is left out and counted.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from studio.et.link.attribute import DeviceOperations, covering
from studio.et.link.communication import Communication
from studio.et.link.idle import Idles, find_idles, idle_dependencies, no_idles, order_with_idles
from studio.et.link.lanes import (
    FIRST_LANE,
    carried_in_place,
    find_floating,
    find_inner,
    lost_calls,
    with_own_lanes,
    without_times,
)
from studio.et.link.operations import LIBRARY, Operations, find_parents
from studio.et.link.options import DepKind, LinkOptions
from studio.et.link.sequence import Place, chains, issue_order
from studio.et.link.stream_waits import unsaid_waits
from studio.et.link.tensors import tensor_dependencies
from studio.et.recording import DeviceTrace, EventKind, HostTrace
from studio.trace import NONE, Bool, Int32, Int64

_DEVICE_SYNC = re.compile(r"(cuda|hip|mtia|cu)(Device|Ctx|Context)Synchronize")
_WAITING_COPY = re.compile(r"(cudaMemcpy|hipMemcpy|hipMemcpyWithStream|cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?)$")
_ASYNC_COPY = re.compile(r"(cudaMemcpy|hipMemcpy|cuMemcpy)\w*Async")
_BLOCKING = re.compile(r"^c10d::|wait|barrier", re.IGNORECASE)
"""Matches operators in which a thread may wait for another."""
_COMPUTING = "aten::"
_REST_NS = 20_000
"""An operation that took as long itself after it had begun to call others did not take this time before; a call that lasted
as long beside its copy may have waited for it."""
_COMPUTING_REST_NS = 1_000_000
"""The same for operators that compute, which keep their time in one piece otherwise."""
_RISING = 0.9
"""The part of neighbouring correlation ids whose calls must stand in the same order by time for ids to tell an order."""
_NEVER = np.iinfo(np.int64).max
_BLOCKED = 0.9
"""The part of a copy's time that the call which waits for it lasts at least."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Time a thread spent between two operators, or in a call that waited for the device.

    Attributes:
        thread: The thread.
        start_ns, duration_ns: When, and how long without the time it only waited.
        why: `program` (Python, data loading), `call` (the rest of a call that set another thread going), `thread` or
            `device` (what came after waiting for one).
        call: The runtime call (row of its event) that waited, whose own time it is: what was left of it when the
            device was done. -1 for time between operators.
        wait_ns: How long that call had waited before.
    """

    thread: int
    start_ns: int
    duration_ns: int
    why: str
    call: int = NONE
    wait_ns: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Dependencies of one rank. Rows: N operations, G gaps, D device operations, I idle times; E dependencies.

    Attributes:
        own_ns: (N,) time each operation took itself, without callees, gaps and waiting; -1 without times.
        wait_ns: (N,) time it waited for the device.
        gaps: (G,) gaps.
        idles: (I,) idle times of streams.
        source, target: (E,) rows; the target waits for the source. By target, then source.
        kinds: (E,) reasons, see DepKind.
        order: (N+G+D+I,) place of every row in the order of all nodes.
        dropped: Dependencies left out because the times speak against them, by reason.
    """

    own_ns: Int64
    wait_ns: Int64
    gaps: tuple[Gap, ...]
    idles: Idles
    source: Int64
    target: Int64
    kinds: Int32
    order: Int64
    dropped: dict[str, int]


_Causes = dict[tuple[int, int], tuple[int, int]]
"""Thread, and time from which on it ran again → thread that had held it up, and until when."""


_Lanes = dict[int, tuple[Int64, Int64]]
"""Thread → its rows in order, and when they began."""


@dataclass(slots=True)
class _Draft:
    """Dependencies collected so far; rows of gaps are counted from N on, device rows from `device_row` on."""

    sources: list[Int64] = field(default_factory=list)
    targets: list[Int64] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)

    def add(self, source: Int64, target: Int64, kind: DepKind) -> None:
        self.sources.append(np.asarray(source, np.int64))
        self.targets.append(np.asarray(target, np.int64))
        self.kinds.append(int(kind))


@dataclass(frozen=True, slots=True)
class _Wait:
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


def depend(
    operations: Operations,
    host: HostTrace | None,
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
    communication: Communication,
    options: LinkOptions,
) -> Plan:
    """Derive the dependencies of a rank.

    Args:
        operations: What the processor did.
        host: Its tensors.
        device: Events.
        launched: What ran on devices.
        communication: Its collectives and messages. Operations of a communication library read and write the tensors
            of the call they carry out.
        options: What to derive.
    """
    in_place = carried_in_place(operations, communication)
    operations = without_times(operations, in_place)
    library = communication.issued_by | {call: call for call in in_place.values()}
    threads, floating = operations.thread, find_floating(operations, communication)
    floating[list(in_place)] = False
    inner = find_inner(operations, communication, floating)
    operations = with_own_lanes(operations, floating, inner)
    around = _around(operations)
    waits = []
    if options.sync and device is not None and launched is not None:
        waits = _in_time(_waits(operations, device, launched), operations, around, device, launched)
    own, waited = _own_time(operations, waits, around)
    launching = set() if launched is None else set(launched.operator.tolist())
    launching = _with_callers(launching, around)
    if host is not None:
        # Operators that compute are compared with those of other tools, which keep them whole.
        launching = {row for row in launching if not operations.names[row].startswith(_COMPUTING)}
    inside = _inside(operations, around, library, launching, options)
    telling = ~_within(operations, around, library) & (inner < 0)
    lost = lost_calls(operations, communication, in_place)
    ends = _floating_ends(operations, floating, threads)
    own_times = _OwnTimes(telling, library, _first_callee(operations, around), ends)
    gaps, causes = _gaps(operations, waits, inside, own, own_times, options)
    gaps += _instead_of(operations, lost, own, options)
    first_device = len(operations) + len(gaps)
    follows = chains(issue_order(operations, device, launched, communication), communication)
    follows = follows if options.sequence else []
    order = _order(operations, gaps, device, launched, _issue_times(operations, follows, lost))
    draft = _Draft()
    places = np.array([[row + first_device * there for there, row in pair] for pair in follows], np.int64)
    earlier, later = places.reshape(-1, 2).T
    draft.add(earlier, later, DepKind.SEQUENCE)
    lanes = _lanes(operations, gaps, order, lost)
    _thread_order(draft, lanes)
    _lost_order(draft, lanes, operations, lost, order)
    _inner_order(draft, lanes, operations, inner, order, library)
    instants = np.flatnonzero(operations.timed & (operations.end_ns == operations.start_ns))
    calls = {gap.call: len(operations) + place for place, gap in enumerate(gaps) if gap.call >= 0}
    _synced(draft, lanes, first_device, waits, calls)
    _held_up(draft, lanes, causes, instants)
    rows, mistaken = _waiting_callees(operations, library, inner)
    draft.add(operations.parent[rows], rows, DepKind.CALL)
    apart = [
        (call, row) for row, call in library.items() if operations.thread[row] != operations.thread[call]
    ]
    if apart:
        calls, rows = np.array(apart, np.int64).T
        draft.add(calls, rows, DepKind.THREAD)
    if device is not None and launched is not None and len(launched):
        _device_dependencies(draft, device, launched, first_device)
        unsaid = unsaid_waits(device, launched, communication.devices.keys())
        draft.add(unsaid[0] + first_device, unsaid[1] + first_device, DepKind.EVENT)
    if host is not None:
        readers = tensor_dependencies(operations, host, communication.issued_by)
        draft.add(*readers, DepKind.DATA)
        if launched is not None and device is not None and len(launched):
            _between_streams(draft, device, launched, *readers, first_device)
    idles = no_idles()
    if (
        device is not None
        and launched is not None
        and len(launched)
        and options.idle
        and options.stream_order
    ):
        times = _recorded_times(operations, own, gaps, device, launched)
        idles, order = _add_idles(draft, times, _streams(device, launched), order, options.least_gap_ns)
    source, target, kinds, dropped = _select_dependencies(draft, order, options.kinds)
    if mistaken and DepKind.CALL in options.kinds:
        dropped["call"] = dropped.get("call", 0) + mistaken
    return Plan(own, waited, tuple(gaps), idles, source, target, kinds, order, dropped)


def _waiting_callees(operations: Operations, library: dict[int, int], inner: Int64) -> tuple[Int64, int]:
    """Return the operations that wait for their caller, and how many have a caller that cannot be one.

    What runs within an operation of a library does not wait for it.

    Recorders note the last call begun, on whatever thread, so an operator may be written down as called by a
    collective that only ran at the time.
    """
    rows = np.flatnonzero((operations.parent >= 0) & ((inner < 0) | (operations.parent != inner)))
    above = operations.parent[rows]
    both = operations.timed[rows] & operations.timed[above] & ~operations.frame[above]
    crossing = both & (operations.thread[rows] != operations.thread[above])
    running = operations.end_ns[above] > operations.start_ns[rows]
    issued = np.array([library.get(row, NONE) for row in rows.tolist()], np.int64) == above
    mistaken = crossing & running & ~issued
    return rows[~mistaken], int(mistaken.sum())


# ---------------------------------------------------------------------------------------------------
# Order


def _issue_times(
    operations: Operations, follows: Sequence[tuple[Place, Place]], lost: Sequence[int]
) -> Int64:
    """Return times (N,) to order operations by: their begin, but after the collective they follow in a group.

    Two threads may begin theirs the other way round. Where one had ended before the other began, they stay so. When a
    lost one ended is not known.
    """
    begin, finish = operations.begin.copy(), operations.finish.copy()
    finish[list(lost)] = np.iinfo(np.int64).max
    for (this_on_device, this), (on_device, other) in follows:
        if not (this_on_device or on_device) and begin[this] < finish[other]:
            begin[other] = max(begin[other], begin[this] + 1)
    return begin


def _order(
    operations: Operations,
    gaps: list[Gap],
    device: DeviceTrace | None,
    launched: DeviceOperations | None,
    begun: Int64,
) -> Int64:
    """Return the position (N+G+D,) of every node: by time, callers first, device operations after their launch."""
    begin = [begun, np.array([gap.start_ns for gap in gaps], np.int64)]
    if device is not None and launched is not None:
        begin.append(_device_begin(operations, device, launched))
    times = np.concatenate(begin)
    rank = np.repeat(np.arange(len(begin)), [len(part) for part in begin])
    depth = np.concatenate((operations.depth, np.zeros(len(times) - len(operations), np.int64)))
    order = np.empty(len(times), np.int64)
    order[np.lexsort((np.arange(len(times)), depth, rank, times))] = np.arange(len(times))
    return order


def _device_begin(operations: Operations, device: DeviceTrace, launched: DeviceOperations) -> Int64:
    """Return times to order device operations by: their start, but not before their launch or their stream."""
    begin = device.start_ns[launched.event].copy()
    there = launched.operator >= 0
    begin[there] = np.maximum(begin[there], operations.begin[launched.operator[there]])
    for rows in _streams(device, launched):
        begin[rows] = np.maximum.accumulate(begin[rows])
    return begin


def _streams(device: DeviceTrace, launched: DeviceOperations) -> list[Int64]:
    """Return the places of device operations, stream by stream, in order of start."""
    events = launched.event
    if not len(events):
        return []
    known = device.stream[events] >= 0
    lane = np.where(known, device.stream[events], device.thread[events].astype(np.int64) + (1 << 40))
    keys = np.stack((device.device[events], lane))
    _, codes = np.unique(keys, axis=1, return_inverse=True)
    codes = codes.reshape(-1)
    order = np.argsort(codes, kind="stable")
    return [part for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(part)]


def _select_dependencies(
    draft: _Draft, order: Int64, wanted: DepKind
) -> tuple[Int64, Int64, Int32, dict[str, int]]:
    """Return the wanted dependencies, each pair once with all its reasons, none pointing forward."""
    empty = np.zeros(0, np.int64)
    source = np.concatenate([empty, *draft.sources])
    target = np.concatenate([empty, *draft.targets])
    kind = np.repeat(np.array(draft.kinds, np.int64), [len(part) for part in draft.sources])
    keep = (kind & int(wanted)) != 0
    forward = order[source] >= order[target]
    dropped = {
        reason.name.lower(): int((forward & keep & (kind == reason)).sum())
        for reason in DepKind
        if reason.name
    }
    keep &= ~forward
    source, target, kind = source[keep], target[keep], kind[keep]
    key = target * len(order) + source
    sort = np.argsort(key, kind="stable")
    key, kind = key[sort], kind[sort]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else empty
    kinds = np.bitwise_or.reduceat(kind, first) if len(first) else empty
    return (
        key[first] % len(order),
        key[first] // len(order),
        kinds.astype(np.int32),
        {name: number for name, number in dropped.items() if number},
    )


# ---------------------------------------------------------------------------------------------------
# Waiting for the device


def _waits(operations: Operations, device: DeviceTrace, launched: DeviceOperations) -> list[_Wait]:
    """Return when the processor waited for which device operations (their positions).

    Calls after which their threads did nothing hold nothing up, such as that with which a profiler ends the recording: they
    are not among them, but where the mark of a step is around them.
    """
    runtime = np.flatnonzero(device.kind == EventKind.RUNTIME)
    names = [device.names[code] for code in device.name[runtime].tolist()]
    calls = [call for call, name in zip(runtime.tolist(), names, strict=True) if _is_sync(name)]
    blocked = _blocking_copies(device, launched, runtime, names)
    calls = sorted({*calls, *blocked})
    if not calls or not len(launched):
        return []
    synced = {int(device.correlation[row]): int(row) for row in np.flatnonzero(device.kind == EventKind.SYNC)}
    finder = _Launched(device, launched)
    operation = covering(operations, device, np.array(calls, np.int64)).tolist()
    waits = []
    last: dict[int, int] = {}
    for thread, end in zip(operations.thread.tolist(), operations.end_ns.tolist(), strict=True):
        last[thread] = max(last.get(thread, NONE), end)
    for call, around in zip(calls, operation, strict=True):
        begin = int(device.start_ns[call])
        if around < 0 and begin >= last.get(int(device.thread[call]), NONE):
            continue
        until = begin + int(device.duration_ns[call])
        if call in blocked:
            places = [blocked[call]]
            begin = max(begin, int(device.start_ns[launched.event[blocked[call]]]))
        else:
            places = finder.awaited(call, synced.get(int(device.correlation[call]), NONE), around)
            # What ended well after the call was not waited for; clocks of processor and device differ a little.
            places = [place for place in places if finder.finish[place] < until + _REST_NS]
        if places:
            end = min(max(begin, *(int(finder.finish[place]) for place in places)), until)
            own = around < 0 or not operations.names[around].startswith(_COMPUTING)
            waits.append(
                _Wait(
                    int(device.thread[call]), around, begin, end, until if own else end,
                    call if own else NONE, tuple(places),
                )
            )  # fmt: skip
    return waits


def _in_time(
    waits: list[_Wait], operations: Operations, around: Int64, device: DeviceTrace, launched: DeviceOperations
) -> list[_Wait]:
    """Return waits without those that took no time and might take some in a replay.

    An operator that launches is one piece of time, so in a replay what it launches begins at its end at the earliest, and
    what follows on the stream after that. What was done before a call in the recording may not be then.
    """
    if all(wait.end > wait.begin for wait in waits):
        return waits
    own, _ = _own_time(operations, [wait for wait in waits if wait.end > wait.begin], around)
    ready, length = device.start_ns[launched.event].copy(), device.duration_ns[launched.event]
    there = launched.operator >= 0
    caller = launched.operator[there]
    ready[there] = np.maximum(ready[there], operations.begin[caller] + np.maximum(own[caller], 0))
    ended = np.zeros(len(ready), np.int64)
    for rows in _streams(device, launched):
        before = np.cumsum(length[rows]) - length[rows]
        ended[rows] = np.maximum.accumulate(ready[rows] - before) + before + length[rows]
    kept = []
    for wait in waits:
        until = wait.until if wait.call >= 0 else int(operations.end_ns[wait.operation])
        if wait.end > wait.begin or all(ended[place] < until + _REST_NS for place in wait.device):
            kept.append(wait)
    return kept


def _blocking_copies(
    device: DeviceTrace, launched: DeviceOperations, runtime: Int64, names: list[str]
) -> dict[int, int]:
    """Return calls that lasted as long as the copy they started, as of pageable memory → the copy's place."""
    asynchronous = runtime[[_ASYNC_COPY.match(name) is not None for name in names]] if names else runtime
    places = np.flatnonzero(np.isin(launched.launch, asynchronous) & (launched.launch >= 0))
    copies, calls = launched.event[places], launched.launch[places]
    took = device.duration_ns[copies]
    low = np.maximum(device.start_ns[copies], device.start_ns[calls])
    high = np.minimum(device.start_ns[copies] + took, device.start_ns[calls] + device.duration_ns[calls])
    blocked = (high - low >= _REST_NS) & (high - low >= _BLOCKED * took)
    return dict(zip(calls[blocked].tolist(), places[blocked].tolist(), strict=True))


def _is_sync(name: str) -> bool:
    return "ynchronize" in name or _WAITING_COPY.match(name) is not None


class _Launched:
    """Device operations by stream, to find the last that was launched before a time."""

    def __init__(self, device: DeviceTrace, launched: DeviceOperations) -> None:
        self.device, self.launched = device, launched
        events = launched.event
        self.finish = device.start_ns[events] + device.duration_ns[events]
        self.launch_ns = launch_times(device, launched)
        self.streams = {
            (int(device.device[first]), int(device.stream[first])): rows
            for rows in _streams(device, launched)
            for first in [int(events[int(rows[0])])]
        }
        # Of all after an operation the earliest launch: it rises, and tells the last launched before a time.
        self._later = {
            key: np.minimum.accumulate(self.launch_ns[rows][::-1])[::-1] for key, rows in self.streams.items()
        }
        calls = np.flatnonzero((device.kind == EventKind.RUNTIME) & (device.correlation >= 0))
        numbers = device.correlation[calls].tolist()
        self._begun = dict(zip(numbers[::-1], device.start_ns[calls].tolist()[::-1], strict=True))

    def last_before(self, stream: int, time_ns: int) -> int:
        """Return the last operation on a stream launched before a time, -1 where there is none."""
        for key, rows in self.streams.items():
            if key[1] == stream:
                count = int(np.searchsorted(self._later[key], time_ns, side="right"))
                return int(rows[count - 1]) if count else NONE
        return NONE

    def awaited(self, call: int, sync: int, operation: int) -> list[int]:
        """Return the operations that a synchronising call waits for.

        Args:
            call: Its event.
            sync: The event of CUPTI that says what it waits for, -1 where there is none.
            operation: The operation around the call, -1 for none.
        """
        device = self.device
        name = device.names[device.name[call]]
        begin = int(device.start_ns[call])
        if _WAITING_COPY.match(name):
            return np.flatnonzero(self.launched.launch == call).tolist()
        if _DEVICE_SYNC.match(name):
            last = [self.last_before(stream, begin) for _, stream in self.streams]
            return sorted({place for place in last if place >= 0} | self._ended_within(call))
        if sync >= 0 and device.wait_record[sync] >= 0:
            begin = self._begun.get(int(device.wait_record[sync]), begin)
        stream = NONE
        if sync >= 0:
            stream = int(device.wait_stream[sync] if device.wait_stream[sync] >= 0 else device.stream[sync])
        if stream >= 0:
            place = self.last_before(stream, begin)
            return [place] if place >= 0 else []
        # The stream is not recorded: it is the one whose last operation ended while the call waited.
        end = begin + int(device.duration_ns[call])
        ended = np.flatnonzero((self.finish > begin) & (self.finish <= end) & (self.launch_ns <= begin))
        if not len(ended) and operation >= 0:
            # Nothing was left to wait for: it is what the same operator had launched, such as a copy that it reads.
            mine = (self.launched.operator == operation) & (self.launched.launch >= 0)
            ended = np.flatnonzero(mine & (self.finish <= end) & (self.launch_ns <= begin))
        return [int(ended[np.argmax(self.finish[ended])])] if len(ended) else []

    def _ended_within(self, call: int) -> set[int]:
        """Return the last operation to end while a call waited, of those that nothing tells the launch of."""
        begin = int(self.device.start_ns[call])
        end = begin + int(self.device.duration_ns[call])
        unknown = self.launched.launch < 0
        ended = np.flatnonzero(unknown & (self.finish > begin) & (self.finish <= end))
        return {int(ended[np.argmax(self.finish[ended])])} if len(ended) else set()


def launch_times(device: DeviceTrace, launched: DeviceOperations) -> Int64:
    """Return when each device operation (D,) was launched, at the latest.

    Launches before the recording began are not in it. Correlation ids rise with the calls of a process, so an operation
    was launched before the recorded call with the next higher id; without an id it was launched before it started.
    """
    events = launched.event
    there = launched.launch >= 0
    times = np.where(there, device.start_ns[launched.launch], device.start_ns[events])
    unknown = np.flatnonzero(~there & (device.correlation[events] >= 0))
    calls = np.flatnonzero((device.kind == EventKind.RUNTIME) & (device.correlation >= 0))
    calls = calls[np.argsort(device.correlation[calls], kind="stable")]
    begun = device.start_ns[calls]
    falling = int((np.diff(begun) < 0).sum())
    if not len(unknown) or not len(calls) or falling > (1 - _RISING) * len(calls):
        return times
    # The next call alone tells: others may have numbers from another range.
    place = np.searchsorted(device.correlation[calls], device.correlation[events[unknown]], side="right")
    times[unknown] = np.minimum(times[unknown], np.append(begun, np.iinfo(np.int64).max)[place])
    return times


# ---------------------------------------------------------------------------------------------------
# Time of the processor


def _own_time(operations: Operations, waits: list[_Wait], around: Int64) -> tuple[Int64, Int64]:
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


def _around(operations: Operations) -> Int64:
    """Return the innermost operation (N,) around each by time on its thread, ignoring steps; -1 where there is none."""
    rows = np.flatnonzero(operations.timed & ~operations.frame)
    # Callers first, where both take the same time.
    rows = rows[np.lexsort((operations.id[rows], operations.depth[rows]))]
    parent, _ = find_parents(operations.start_ns[rows], operations.end_ns[rows], operations.thread[rows])
    around = np.full(len(operations), NONE, np.int64)
    around[rows] = np.where(parent >= 0, rows[parent], NONE)
    return around


@dataclass(frozen=True, slots=True)
class _Span:
    """An interval in which a thread may have waited for another.

    Attributes:
        thread: The thread.
        begin, end: Begin and end.
        first: Whether it is what precedes the first operation of the thread.
        operation: The operation it is part of, -1 for time between operations.
        issued: Whether that operation, or one it called, had set another thread going before.
        rest: Whether that operation spent long itself after it had begun to call others, or one of these had waited.
        may_wait: Whether the thread may have waited for another in it.
    """

    thread: int
    begin: int
    end: int
    first: bool = False
    operation: int = NONE
    issued: bool = False
    rest: bool = False
    may_wait: bool = True


def _inside(
    operations: Operations, around: Int64, library: dict[int, int], launching: set[int], options: LinkOptions
) -> list[_Span]:
    """Return the intervals operations spent themselves after their first callee, or after starting a thread.

    A thread may have waited in it. Operations that compute did not, and those of communication libraries are what
    others wait for; of operations without callees only those count that are known to wait. What sets a thread going is
    a call with all it was called by: what these do afterwards must not hold up the thread. Nor must a long rest of any
    operation, such as a range that a program names, hold up what it called to launch on the device. What any of the others
    did after one it called had waited comes after that wait, too, instead of before, where the wait would swallow it.
    """
    # Lists: most operations have few callees, for which an array takes longer to make than to use.
    start, end = operations.start_ns.tolist(), operations.end_ns.tolist()
    callees: dict[int, list[int]] = {}
    inner = np.flatnonzero(around >= 0)
    inner = inner[np.argsort(operations.start_ns[inner], kind="stable")]
    for row, call in zip(inner.tolist(), around[inner].tolist(), strict=True):
        callees.setdefault(call, []).append(row)
    begins = {call: start[rows[0]] for call, rows in callees.items()}
    issuing = _issuing(operations, library)
    for call, begin in issuing.items():
        begins[call] = min(begins.get(call, begin), begin)
    issued = issuing.keys() | _with_callers((int(around[call]) for call in library.values()), around)
    blocking = {name for name in set(operations.names) if _BLOCKING.search(name)}
    waiting = [row for row, name in enumerate(operations.names) if name in blocking and start[row] >= 0]
    for row in waiting:
        begins.setdefault(row, start[row])
    waited = _first_waits(waiting, operations.end_ns, around)
    spans = []
    for call, begin in begins.items():
        computing = operations.names[call].startswith(_COMPUTING)
        if call in library or (computing and call not in launching and call not in waited):
            continue
        within = callees.get(call, ())
        befores = list(accumulate((end[row] for row in within), max, initial=begin))
        untils = [*(start[row] for row in within), end[call]]
        held = computing and call in waited
        later = (
            sum(max(until - before, 0) for before, until in zip(befores, untils, strict=True))
            if within and (held or call in launching)
            else 0
        )
        rest = later >= (_COMPUTING_REST_NS if computing else _REST_NS)
        if computing and not rest:
            continue
        for before, until in zip(befores, untils, strict=True):
            after = rest or before >= waited.get(call, _NEVER)
            if until - before >= (options.least_gap_ns if call in issued or after else options.thread_gap_ns):
                waits = not computing and (call in issued or until - before >= options.thread_gap_ns)
                spans.append(
                    _Span(
                        int(operations.thread[call]), before, until, False, call, call in issued, after, waits
                    )
                )
    return spans


def _first_waits(waiting: Sequence[int], end: Int64, around: Int64) -> dict[int, int]:
    """Return the operations around those that may wait, and when the first of these had ended."""
    ended: dict[int, int] = {}
    # The first to end comes first, so what is known already is right, and so is all around it.
    for row in sorted(waiting, key=lambda row: int(end[row])):
        call = int(around[row])
        while call >= 0 and call not in ended:
            ended[call] = int(end[row])
            call = int(around[call])
    return ended


def _issuing(operations: Operations, library: dict[int, int]) -> dict[int, int]:
    """Return the calls that started another thread's work while they ran, and when that began."""
    start, end, thread = operations.start_ns, operations.end_ns, operations.thread
    began: dict[int, int] = {}
    for row, call in library.items():
        if start[call] >= 0 and start[call] <= start[row] < end[call] and thread[row] != thread[call]:
            began[call] = min(began.get(call, int(start[row])), int(start[row]))
    return began


def _with_callers(rows: Iterable[int], around: Int64) -> set[int]:
    """Return operations and all operations around them."""
    rows_within: set[int] = set()
    for row in rows:
        while row >= 0 and row not in rows_within:
            rows_within.add(row)
            row = int(around[row])  # noqa: PLW2901 (walks outwards)
    return rows_within


def _within(operations: Operations, around: Int64, library: dict[int, int]) -> Bool:
    """Return which operations (N,) lie within one of a communication library."""
    within = np.zeros(len(operations), np.bool_)
    rows = np.flatnonzero(around >= 0)
    for row in rows[np.argsort(operations.start_ns[rows], kind="stable")].tolist():
        within[row] = within[around[row]] or int(around[row]) in library
    return within


@dataclass(frozen=True, slots=True)
class _OwnTimes:
    """Tells when a thread was busy with its own work, and when libraries worked for it.

    Attributes:
        telling: (N,) whether the end of each operation may have set another thread going.
        calls: Operation of a communication library → the call it carries out.
        first_callee_ns: (N,) when the first callee of each operation began, the operation's end where it has none.
        floating_ends: By thread, when it ended the operations that do not occupy it → the lane of each.
    """

    telling: Bool
    calls: dict[int, int]
    first_callee_ns: Int64
    floating_ends: dict[int, dict[int, int]]


def _gaps(
    operations: Operations,
    waits: list[_Wait],
    inside: list[_Span],
    own: Int64,
    own_times: _OwnTimes,
    options: LinkOptions,
) -> tuple[list[Gap], _Causes]:
    """Return the gaps of all threads, and what held threads up; subtracts gaps from `own`."""
    rows = np.flatnonzero(operations.timed & ~operations.frame)
    lanes = {
        int(lane): rows[operations.thread[rows] == lane]
        for lane in np.unique(operations.thread[rows]).tolist()
    }
    ends = {
        lane: np.sort(operations.end_ns[own_rows[own_times.telling[own_rows]]])
        for lane, own_rows in lanes.items()
    }
    by_call = _by_call(operations, own_times, options)
    started = int(operations.start_ns[operations.timed].min()) if len(rows) else 0
    gaps: list[Gap] = []
    causes: dict[tuple[int, int], tuple[int, int]] = {}
    for lane, own_rows in lanes.items():
        if lane >= FIRST_LANE:
            continue
        mine = sorted((wait for wait in waits if wait.thread == lane), key=lambda wait: wait.begin)
        device = [wait for wait in mine if _outside(operations, wait)]
        device_begins = [wait.begin for wait in device]
        within: dict[int, list[_Wait]] = {}
        for one in mine:
            if not _outside(operations, one):
                within.setdefault(one.operation, []).append(one)
        others = {other: ended for other, ended in ends.items() if other != lane}
        spans = [
            *_idle(operations, own_rows, lane, min([started, *(one.begin for one in device[:1])])),
            *_after_all(operations, own_rows, device),
            *(span for span in inside if span.thread == lane),
        ]
        for span in spans:
            first, last = bisect_left(device_begins, span.begin), bisect_right(device_begins, span.end)
            wait = [one for one in device[first:last] if one.end <= span.end]
            cause = (
                None
                if any(one.end > one.begin for one in wait)
                or span.end - span.begin < options.least_gap_ns
                or not span.may_wait
                else by_call.get((lane, span.end))
                or _own_cause(own_times.floating_ends.get(lane, {}), span, options)
                or _cause(others, span, options)
            )
            if cause:
                start = max(span.begin, cause[-1])
                causes[lane, start] = cause[:2]
                after = [one for one in wait if one.begin >= start]
                gaps += _around_waits(lane, start, span.end, after, options, "thread")
            elif span.operation < 0:
                gaps += _around_waits(lane, span.begin, span.end, wait, options)
            elif span.issued or span.rest:
                wait = [
                    one
                    for one in within.get(span.operation, ())
                    if one.begin >= span.begin and one.end <= span.end
                ]
                gaps += _around_waits(lane, span.begin, span.end, wait, options, "call")
            if span.operation >= 0 and (cause or ((span.issued or span.rest) and options.host_gaps)):
                waited = sum(one.until - one.begin for one in wait) if not cause else 0
                own[span.operation] = max(own[span.operation] - (span.end - span.begin - waited), 0)
    gaps = gaps if options.host_gaps else []
    # Of what begins at one time the call comes first: the time after it follows.
    return [*(_returning(wait) for wait in waits if wait.call >= 0), *gaps], causes


def _returning(wait: _Wait) -> Gap:
    """Return the time that a call which waited took after the device was done."""
    return Gap(wait.thread, wait.end, wait.until - wait.end, "device", wait.call, wait.end - wait.begin)


def _instead_of(operations: Operations, lost: Sequence[int], own: Int64, options: LinkOptions) -> list[Gap]:
    """Return a gap for the time that each lost call took its thread, as the call itself is no part of the thread."""
    gaps = []
    for call in lost:
        begin, lane = int(operations.begin[call]), int(operations.thread[call])
        if options.host_gaps and operations.timed[call]:
            gaps += _gap(lane, begin, begin + int(own[call]), "call", options)
    return gaps


def _gap(lane: int, begin: int, end: int, why: str, options: LinkOptions) -> list[Gap]:
    return [Gap(lane, begin, end - begin, why)] if end - begin >= options.least_gap_ns else []


def _outside(operations: Operations, wait: _Wait) -> bool:
    return wait.operation < 0 or bool(operations.frame[wait.operation])


def _idle(operations: Operations, rows: Int64, lane: int, started: int) -> list[_Span]:
    """Return the intervals in which a thread ran no operator, from the start of the recording on."""
    order = rows[np.argsort(operations.start_ns[rows], kind="stable")]
    start = operations.start_ns[order]
    busy = np.maximum.accumulate(operations.end_ns[order])
    before = np.append(started, busy[:-1])
    gap_places = np.flatnonzero(start > before)
    return [_Span(lane, int(before[place]), int(start[place]), place == 0) for place in gap_places.tolist()]


def _after_all(operations: Operations, rows: Int64, waits: list[_Wait]) -> list[_Span]:
    """Return the time of a thread from its last operator to the end of the last call that waited for the device."""
    ended = int(operations.end_ns[rows].max(initial=NONE))
    last = max((wait.until for wait in waits if wait.begin >= ended), default=NONE)
    return [_Span(waits[0].thread, ended, last)] if last > ended >= 0 else []


def _around_waits(
    lane: int, begin: int, end: int, waits: list[_Wait], options: LinkOptions, why: str = "program"
) -> list[Gap]:
    """Cut the processor's waits for the device out of intervals between operators."""
    gaps: list[Gap] = []
    for low, high in [*((wait.begin, wait.until) for wait in waits), (end, end)]:
        gaps += _gap(lane, begin, low, why, options)
        begin, why = max(begin, high), "device"
    return gaps


def _first_callee(operations: Operations, around: Int64) -> Int64:
    """Return when the first callee (N,) of each operation began, its end where it has none."""
    first = operations.end_ns.copy()
    inner = np.flatnonzero(around >= 0)
    np.minimum.at(first, around[inner], operations.start_ns[inner])
    return first


def _by_call(
    operations: Operations, own_times: _OwnTimes, options: LinkOptions
) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Return thread and begin of a library's operations → thread of the call that each carries out, and what it waited for.

    Whatever else ended meanwhile on that thread, it was the call that the operation had waited for: all of it, where it
    had ended before, else what it had called and ended until then. Of the two times, the last that began before the
    first was the last it waited for, and that ended at the second.
    """
    start, end, thread = operations.start_ns, operations.end_ns, operations.thread
    apart = [
        (row, call)
        for row, call in own_times.calls.items()
        if options.threads and thread[row] != thread[call] and 0 <= start[call] <= start[row]
    ]
    lanes = {}
    for lane in {int(thread[call]) for _, call in apart}:
        rows = np.flatnonzero(operations.timed & ~operations.frame & (thread == lane))
        lanes[lane] = rows[np.argsort(start[rows], kind="stable")]
    waited = {}
    for row, call in apart:
        lane, begin = int(thread[call]), int(start[row])
        if end[call] <= begin:
            until = int(end[call])
        else:
            rows = lanes[lane]
            low, high = np.searchsorted(start[rows], (int(start[call]), begin))
            ended = end[rows[low:high]]
            until = int(ended[ended <= begin].max(initial=start[call]))
        own_end = until if until > start[call] else int(min(own_times.first_callee_ns[call], begin))
        waited[int(thread[row]), begin] = lane, max(until, int(start[call]) + 1), own_end
    return waited


def _floating_ends(operations: Operations, floating: Bool, threads: Int64) -> dict[int, dict[int, int]]:
    """Return by thread when it ended its floating operations → the lane of each."""
    ends: dict[int, dict[int, int]] = {}
    for row in np.flatnonzero(floating & operations.timed).tolist():
        if operations.names[row].startswith(LIBRARY):
            ends.setdefault(int(threads[row]), {})[int(operations.end_ns[row])] = int(operations.thread[row])
    return ends


def _own_cause(ends: dict[int, int], span: _Span, options: LinkOptions) -> tuple[int, int] | None:
    """Return the lane of the last floating operation that the thread itself ended within the span, and when."""
    within = [end for end in ends if span.begin < end <= span.end]
    return (ends[max(within)], max(within)) if within and options.threads else None


def _cause(others: dict[int, Int64], span: _Span, options: LinkOptions) -> tuple[int, int] | None:
    """Return the thread that held another up and until when, None where none did.

    It is that of the last operation that ended within the span, if nearer to the span's end than to its begin.
    """
    if not options.threads or (span.end - span.begin < options.thread_gap_ns and not span.first):
        return None
    best: tuple[int, int] | None = None
    for thread, ends in others.items():
        place = int(np.searchsorted(ends, span.end, side="right")) - 1
        if place >= 0 and ends[place] > span.begin and (best is None or ends[place] > best[1]):
            best = thread, int(ends[place])
    if best and (span.first or best[1] - span.begin >= span.end - best[1]):
        return best
    return None


def _lanes(operations: Operations, gaps: list[Gap], order: Int64, lost: Sequence[int]) -> _Lanes:
    """Return the rows of each thread in order, including gaps, and when they began; without lost calls."""
    thread = np.concatenate((operations.thread, np.array([gap.thread for gap in gaps], np.int64)))
    thread[list(lost)] = NONE
    times = np.concatenate((operations.begin, np.array([gap.start_ns for gap in gaps], np.int64)))
    by_lane = {}
    for lane in np.unique(thread[thread != NONE]).tolist():
        rows = np.flatnonzero(thread == lane)
        rows = rows[np.argsort(order[rows], kind="stable")]
        by_lane[lane] = rows, times[rows]
    return by_lane


def _thread_order(draft: _Draft, lanes: _Lanes) -> None:
    """Add the order of operations on each thread."""
    for rows, _ in lanes.values():
        draft.add(rows[:-1], rows[1:], DepKind.ORDER)


def _lost_order(
    draft: _Draft, lanes: _Lanes, operations: Operations, lost: Sequence[int], order: Int64
) -> None:
    """Let lost calls wait for what was before them on their thread, where a gap takes their place."""
    for call in lost:
        rows, _ = lanes.get(int(operations.thread[call]), (order[:0], order[:0]))
        place = int(np.searchsorted(order[rows], order[call])) - 1
        if place >= 0:
            draft.add(rows[place : place + 1], np.array([call]), DepKind.ORDER)


def _inner_order(
    draft: _Draft,
    lanes: _Lanes,
    operations: Operations,
    inner: Int64,
    order: Int64,
    library: dict[int, int],
) -> None:
    """Let what runs within an operation of a library wait for what that waits for, its call among it, not for its end."""
    rows = np.flatnonzero(inner >= 0)
    rows = rows[np.argsort(order[rows], kind="stable")]
    for around, first in zip(*np.unique(inner[rows], return_index=True), strict=True):
        before, _ = lanes[int(operations.thread[around])]
        place = int(np.searchsorted(order[before], order[around])) - 1
        if place >= 0:
            draft.add(before[place : place + 1], rows[first : first + 1], DepKind.ORDER)
        if int(around) in library:
            draft.add(np.array([library[int(around)]]), rows[first : first + 1], DepKind.THREAD)


def _synced(
    draft: _Draft, lanes: _Lanes, first_device: int, waits: list[_Wait], calls: dict[int, int]
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


def _held_up(draft: _Draft, lanes: _Lanes, causes: _Causes, instants: Int64) -> None:
    """Add what threads waited for on others, to the first node of the thread that began after the wait.

    Operations that took no time end as they begin (`instants`).
    """
    at_once = set(instants.tolist())
    for (lane, time), (other, until) in causes.items():
        rows, times = lanes[lane]
        place = int(np.searchsorted(times, time, side="left"))
        # The last that the other thread began before: by its end all before it have ended, too.
        theirs, begun = lanes[other]
        cause = int(np.searchsorted(begun, until, side="left")) - 1
        while cause + 1 < len(theirs) and begun[cause + 1] == until and theirs[cause + 1] in at_once:
            cause += 1
        if place < len(rows) and cause >= 0:
            draft.add(lanes[other][0][cause : cause + 1], rows[place : place + 1], DepKind.THREAD)


# ---------------------------------------------------------------------------------------------------
# Devices


def _device_dependencies(
    draft: _Draft, device: DeviceTrace, launched: DeviceOperations, first_device: int
) -> None:
    """Add launches, stream order, and waits of streams for events of others."""
    there = np.flatnonzero(launched.operator >= 0)
    draft.add(launched.operator[there], there + first_device, DepKind.LAUNCH)
    draft.add(launched.operator[there], there + first_device, DepKind.CALL)
    for rows in _streams(device, launched):
        draft.add(rows[:-1] + first_device, rows[1:] + first_device, DepKind.STREAM)
    waits = np.flatnonzero(
        (device.kind == EventKind.SYNC)
        & (device.wait_stream >= 0)
        & (device.wait_record >= 0)
        & (device.stream >= 0)
    )
    if not len(waits):
        return
    finder = _Launched(device, launched)
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
        after = [
            rows[finder.launch_ns[rows] >= called]
            for (_, stream), rows in finder.streams.items()
            if stream == device.stream[wait]
        ]
        if source >= 0 and after and len(after[0]):
            draft.add(np.array([source + first_device]), after[0][:1] + first_device, DepKind.EVENT)


def _recorded_times(
    operations: Operations, own: Int64, gaps: list[Gap], device: DeviceTrace, launched: DeviceOperations
) -> tuple[Int64, Int64]:
    """Return when every node began, and when it had taken the time that is its own."""
    begin = np.array([gap.start_ns for gap in gaps], np.int64)
    took = np.array([gap.duration_ns for gap in gaps], np.int64)
    start = np.concatenate((operations.begin, begin, device.start_ns[launched.event]))
    return start, start + np.concatenate((np.maximum(own, 0), took, device.duration_ns[launched.event]))


def _add_idles(
    draft: _Draft, times: tuple[Int64, Int64], streams: list[Int64], order: Int64, least_ns: int
) -> tuple[Idles, Int64]:
    """Add the idle times of streams with their dependencies; returns them and the order of all nodes."""
    first_device = len(order) - sum(len(places) for places in streams)
    pairs = _select_dependencies(draft, order, DepKind(sum(DepKind)))[:3]
    idles = find_idles(*times, streams, pairs, least_ns)
    for source, target, kind in idle_dependencies(idles, first_device, len(order), pairs):
        draft.add(source, target, kind)
    return idles, order_with_idles(order, idles, first_device)


# ---------------------------------------------------------------------------------------------------
# Tensors


def _between_streams(
    draft: _Draft,
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
