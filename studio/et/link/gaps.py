"""Time that threads spent between operators, or in calls that waited, and what had held them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from studio.et.link.intervals import cut_out
from studio.et.link.lanes import FIRST_LANE
from studio.et.link.operations import LIBRARY, Operations
from studio.et.link.options import LinkOptions
from studio.et.link.spans import Spans, find_spans_between, join_columns
from studio.et.link.waits import Wait
from studio.trace import NONE, Bool, Int64

WHYS = "program", "call", "thread", "device"
"""Why there is a gap: the program (Python, data loading), the rest of a call that set another thread going, and what
came after waiting for a thread or for the device."""
_PROGRAM, _CALL, _THREAD, _DEVICE = range(len(WHYS))


@dataclass(frozen=True, slots=True)
class Gaps:
    """Time that threads spent between two operators, or in calls that waited for the device.

    G gaps.

    Attributes:
        thread: (G,) the thread.
        start_ns, duration_ns: (G,) when, and how long without the time it only waited.
        why: (G,) index into `WHYS`.
        call: (G,) the runtime call (row of its event) that waited, whose own time it is: what was left of it when the
            device was done. -1 for time between operators.
        wait_ns: (G,) how long that call had waited before.
    """

    thread: Int64
    start_ns: Int64
    duration_ns: Int64
    why: Int64
    call: Int64
    wait_ns: Int64

    def __len__(self) -> int:
        return len(self.thread)


def build_empty_gaps() -> Gaps:
    """Return none."""
    none = np.zeros(0, np.int64)
    return Gaps(none, none, none, none, none, none)


def _find_between(
    thread: Int64, start_ns: Int64, duration_ns: Int64, why: Int64, options: LinkOptions
) -> Gaps:
    """Return gaps between operators, without those that are too short."""
    rows = np.flatnonzero(duration_ns >= options.least_gap_ns)
    no_call, no_wait = np.full(len(rows), NONE, np.int64), np.zeros(len(rows), np.int64)
    return Gaps(thread[rows], start_ns[rows], duration_ns[rows], why[rows], no_call, no_wait)


Causes = dict[tuple[int, int], tuple[int, int]]
"""Thread, and time from which on it ran again → thread that had held it up, and until when."""


@dataclass(frozen=True, slots=True)
class OwnTimes:
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


def find_gaps(
    operations: Operations,
    waits: list[Wait],
    inside: Spans,
    own: Int64,
    own_times: OwnTimes,
    options: LinkOptions,
) -> tuple[Gaps, Causes]:
    """Return the gaps of all threads, and what held threads up; subtracts gaps from `own`."""
    rows = np.flatnonzero(operations.timed & ~operations.frame)
    ended = _Ended(operations, rows[own_times.telling[rows]])
    by_call = _index_by_end(operations, own_times, options)
    held_by = _HeldBy(ended, by_call, own_times.floating_ends, options)
    started = int(operations.start_ns[operations.timed].min()) if len(rows) else 0
    outside, inner = _sort_waits(waits, operations.frame)
    # Of what begins at one time the call comes first: the time after it follows.
    gaps = [_find_returning([wait for wait in waits if wait.call >= 0])]
    causes: Causes = {}
    for lane, own_rows in _group_by_lane(operations.thread, rows).items():
        if lane >= FIRST_LANE:
            continue
        device = outside.get(lane, _NO_WAITS)
        spans = join_columns(
            [
                _find_idle(operations, own_rows, lane, min([started, *device.begin[:1].tolist()])),
                _find_after_all(operations, own_rows, lane, device),
                inside.of_thread(lane),
            ]
        )
        begin = spans.begin.copy()
        why = np.where(spans.operation < 0, _PROGRAM, np.where(spans.issued | spans.rest, _CALL, NONE))
        for span, (thread, until, resumed) in held_by.find(lane, spans, device).items():
            begin[span], why[span] = max(int(begin[span]), resumed), _THREAD
            causes[lane, int(begin[span])] = thread, until
        cut, waited = _cut_waits(
            replace(spans, begin=begin), why, device, inner.get(lane, _NO_WAITS), options
        )
        if options.host_gaps:
            gaps.append(cut)
        is_part = (spans.operation >= 0) & ((why == _THREAD) | ((why == _CALL) & options.host_gaps))
        took = spans.end - spans.begin - np.where(why == _THREAD, 0, waited)
        for operation, part in zip(spans.operation[is_part].tolist(), took[is_part].tolist(), strict=True):
            own[operation] = max(own[operation] - part, 0)
    return join_columns(gaps), causes


def _group_by_lane(thread: Int64, rows: Int64) -> dict[int, Int64]:
    """Return the rows of each thread, by rising number."""
    rows = rows[np.argsort(thread[rows], kind="stable")]
    lanes, first = np.unique(thread[rows], return_index=True)
    return dict(zip(lanes.tolist(), np.split(rows, first[1:]), strict=True)) if len(rows) else {}


@dataclass(frozen=True, slots=True)
class _Waits:
    """Waits of a thread for the device, in columns, see `Wait`."""

    operation: Int64
    begin: Int64
    end: Int64
    until: Int64

    def __len__(self) -> int:
        return len(self.begin)


_NO_WAITS = _Waits(*(np.zeros(0, np.int64) for _ in fields(_Waits)))


def _sort_waits(waits: Sequence[Wait], frame: Bool) -> tuple[dict[int, _Waits], dict[int, _Waits]]:
    """Return waits by thread: those between operations by their begin, others by operation, then begin."""
    columns = [(wait.thread, wait.operation, wait.begin, wait.end, wait.until) for wait in waits]
    thread, *rest = np.array(columns, np.int64).reshape(-1, 5).T
    operation, begin = rest[:2]
    between = (operation < 0) | frame[operation] if len(frame) else operation < 0
    sorted_waits = []
    for chosen, order in ((between, np.lexsort((begin,))), (~between, np.lexsort((begin, operation)))):
        rows = order[chosen[order]]
        lanes = _group_by_lane(thread, rows)
        sorted_waits.append({lane: _Waits(*(column[own] for column in rest)) for lane, own in lanes.items()})
    return sorted_waits[0], sorted_waits[1]


def _cut_waits(
    spans: Spans, why: Int64, outside: _Waits, inner: _Waits, options: LinkOptions
) -> tuple[Gaps, Int64]:
    """Cut waits for the device out of spans of one thread; what comes after a wait is due to the device.

    Args:
        spans: S spans.
        why: (S,) why each is a gap, -1 where it is none.
        outside: Waits outside of operations: they are cut out of time between these, and of what another thread held up.
        inner: Waits within operations, which are cut out of the rest of the operation.
        options: The shortest gap.

    Returns:
        The gaps, and how long (S,) waits lasted in each span that is one.
    """
    gaps = np.flatnonzero(why >= 0)
    begin, end, operation, is_rest = (
        spans.begin[gaps],
        spans.end[gaps],
        spans.operation[gaps],
        why[gaps] == _CALL,
    )
    own_first = len(outside) + np.searchsorted(inner.operation, operation, "left")
    own_last = len(outside) + np.searchsorted(inner.operation, operation, "right")
    first = np.where(is_rest, own_first, np.searchsorted(outside.begin, begin, "left"))
    last = np.where(is_rest, own_last, np.searchsorted(outside.begin, end, "right"))
    waits = join_columns([outside, inner])
    # Room for a gap before each wait, and for one after the last.
    slots = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.maximum(last - first, 0) + 1)))
    start, took, is_after, lasted = cut_out(
        (begin, end, first, last, slots), (waits.begin, waits.end, waits.until)
    )
    span = np.repeat(gaps, np.diff(slots))
    reason = np.where(is_after > 0, _DEVICE, why[span])
    waited = np.zeros(len(spans), np.int64)
    waited[gaps] = lasted
    return _find_between(spans.thread[span], start, took, reason, options), waited


class _Ended:
    """When operations ended that may have set another thread going, of all threads by time."""

    def __init__(self, operations: Operations, rows: Int64) -> None:
        # Of those that ended at one time the thread of the lowest number counts.
        order = rows[np.lexsort((-operations.thread[rows], operations.end_ns[rows]))]
        self.end, self.thread = operations.end_ns[order], operations.thread[order]
        changed = np.append(True, self.thread[1:] != self.thread[:-1])[: len(order)]
        self._run = np.maximum.accumulate(np.where(changed, np.arange(len(order)), 0))

    def last_of_others(self, lane: int, times: Int64) -> Int64:
        """Return the place of the last that had ended by each time (M,) on another thread, -1 where there is none."""
        place = np.searchsorted(self.end, times, "right") - 1
        own = (place >= 0) & (self.thread[place] == lane) if len(self.end) else place >= 0
        place[own] = self._run[place[own]] - 1
        return place


@dataclass(frozen=True, slots=True)
class _HeldBy:
    """What may have held up a thread.

    Attributes:
        ended: Operations of all threads.
        by_call: See `_index_by_end`.
        floating_ends: See `OwnTimes`.
        options: What to derive.
    """

    ended: _Ended
    by_call: dict[tuple[int, int], tuple[int, int, int]]
    floating_ends: dict[int, dict[int, int]]
    options: LinkOptions

    def find(self, lane: int, spans: Spans, device: _Waits) -> dict[int, tuple[int, int, int]]:
        """Return what held a thread up in its spans, by place of the span.

        That is the thread, the time by which it had ended what the other waited for, and from when on the other went on.
        A span in which the thread waited for the device is not among them.
        """
        if not self.options.threads:
            return {}
        took = spans.end - spans.begin
        floating = self.floating_ends.get(lane, {})
        known = [until for thread, until in self.by_call if thread == lane]
        last = self.ended.last_of_others(lane, spans.end)
        near = self._is_near(spans, last)
        own_ends = np.array(sorted(floating), np.int64)
        own_last = np.searchsorted(own_ends, spans.end, "right") - 1
        own_near = own_last >= np.searchsorted(own_ends, spans.begin, "right")
        waited = np.flatnonzero(device.end > device.begin)
        low, high = (
            np.searchsorted(device.begin[waited], *bound)
            for bound in ((spans.begin, "left"), (spans.end, "right"))
        )
        may = near | own_near | np.isin(spans.end, known)
        may &= (took >= self.options.least_gap_ns) & spans.may_wait
        held: dict[int, tuple[int, int, int]] = {}
        rows = np.flatnonzero(may)
        low, high = low[rows], high[rows]
        for place in np.flatnonzero(low < high).tolist():
            may[rows[place]] &= not (
                device.end[waited[low[place] : high[place]]] <= spans.end[rows[place]]
            ).any()
        rows = np.flatnonzero(may)
        candidates = zip(
            rows.tolist(), spans.end[rows].tolist(), own_near[rows].tolist(), last[rows].tolist(), strict=True
        )
        for span, end, by_own, other in candidates:
            if (lane, end) in self.by_call:
                held[span] = self.by_call[lane, end]
            elif by_own:
                until = int(own_ends[own_last[span]])
                held[span] = floating[until], until, until
            else:
                until = int(self.ended.end[other])
                held[span] = int(self.ended.thread[other]), until, until
        return held

    def _is_near(self, spans: Spans, last: Int64) -> Bool:
        """Return in which spans (S,) the last operation of another thread ended nearer to the end than to the begin."""
        if not len(self.ended.end):
            return np.zeros(len(spans), np.bool_)
        until = self.ended.end[last]
        within = (last >= 0) & (until > spans.begin)
        long = spans.end - spans.begin >= self.options.thread_gap_ns
        return within & (spans.first | (long & (until - spans.begin >= spans.end - until)))


def replace_lost(operations: Operations, lost: Sequence[int], own: Int64, options: LinkOptions) -> Gaps:
    """Return a gap for the time that each lost call took its thread, as the call itself is no part of the thread.

    What a thread of the library called within another operation of it has none: its time is that of this operation.
    """
    if not options.host_gaps:
        return build_empty_gaps()
    own_thread = operations.timed & (operations.thread < FIRST_LANE)
    calls = np.array([call for call in lost if own_thread[call]], np.int64)
    why = np.full(len(calls), _CALL)
    return _find_between(operations.thread[calls], operations.begin[calls], own[calls], why, options)


def _find_returning(waits: Sequence[Wait]) -> Gaps:
    """Return the time that calls which waited took after the device was done."""
    rows = [
        (wait.thread, wait.end, wait.until - wait.end, _DEVICE, wait.call, wait.end - wait.begin)
        for wait in waits
    ]
    return Gaps(*np.array(rows, np.int64).reshape(-1, len(fields(Gaps))).T)


def _find_idle(operations: Operations, rows: Int64, lane: int, started: int) -> Spans:
    """Return the intervals in which a thread ran no operator, from the start of the recording on."""
    order = rows[np.argsort(operations.start_ns[rows], kind="stable")]
    start = operations.start_ns[order]
    busy = np.maximum.accumulate(operations.end_ns[order])
    before = np.append(started, busy[:-1])
    places = np.flatnonzero(start > before)
    return find_spans_between(lane, before[places], start[places], places == 0)


def _find_after_all(operations: Operations, rows: Int64, lane: int, waits: _Waits) -> Spans:
    """Return the time of a thread from its last operator to the end of the last call that waited for the device."""
    ended = operations.end_ns[rows].max(initial=NONE)
    last = waits.until[waits.begin >= ended].max(initial=NONE)
    begin, end = np.array([(ended, last)] if last > ended >= 0 else [], np.int64).reshape(-1, 2).T
    return find_spans_between(lane, begin, end, np.zeros(len(begin), np.bool_))


def begin_of_first_callee(operations: Operations, around: Int64) -> Int64:
    """Return when the first callee (N,) of each operation began, its end where it has none."""
    first = operations.end_ns.copy()
    inner = np.flatnonzero(around >= 0)
    np.minimum.at(first, around[inner], operations.start_ns[inner])
    return first


def _index_by_end(
    operations: Operations, own_times: OwnTimes, options: LinkOptions
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
        rows = rows[np.argsort(start[rows], kind="stable")]
        lanes[lane] = start[rows], end[rows]
    waited = {}
    for row, call in apart:
        lane, begin = int(thread[call]), int(start[row])
        if end[call] <= begin:
            until = int(end[call])
        else:
            starts, ends = lanes[lane]
            low, high = np.searchsorted(starts, (int(start[call]), begin))
            ended = ends[low:high]
            until = int(ended[ended <= begin].max(initial=start[call]))
        own_end = until if until > start[call] else int(min(own_times.first_callee_ns[call], begin))
        waited[int(thread[row]), begin] = lane, max(until, int(start[call]) + 1), own_end
    return waited


def find_floating_ends(operations: Operations, floating: Bool, threads: Int64) -> dict[int, dict[int, int]]:
    """Return by thread when it ended its floating operations → the lane of each."""
    ends: dict[int, dict[int, int]] = {}
    for row in np.flatnonzero(floating & operations.timed).tolist():
        if operations.name_of(row).startswith(LIBRARY):
            ends.setdefault(int(threads[row]), {})[int(operations.end_ns[row])] = int(operations.thread[row])
    return ends
