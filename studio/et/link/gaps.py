"""Time that threads spent between operators, or in calls that waited, and what had held them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from studio.et.link.lanes import FIRST_LANE
from studio.et.link.operations import LIBRARY, Operations
from studio.et.link.options import LinkOptions
from studio.et.link.spans import Span
from studio.et.link.waits import Wait
from studio.trace import NONE, Bool, Int64


class Gap(NamedTuple):
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


WHYS = "program", "call", "thread", "device"
_NO_WAITS: list[Wait] = []


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps in columns, see `Gap`; `why` is an index into `WHYS`."""

    thread: Int64
    start_ns: Int64
    duration_ns: Int64
    why: Int64
    call: Int64
    wait_ns: Int64

    def __len__(self) -> int:
        return len(self.thread)


def gap_columns(gaps: Sequence[Gap]) -> Gaps:
    """Return gaps in columns."""
    code = {why: number for number, why in enumerate(WHYS)}
    columns = zip(*gaps, strict=True) if gaps else [()] * len(Gap._fields)
    named = dict(zip(Gap._fields, columns, strict=True))
    named["why"] = tuple(map(code.__getitem__, named["why"]))
    return Gaps(**{name: np.array(values, np.int64) for name, values in named.items()})


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
    inside: list[Span],
    own: Int64,
    own_times: OwnTimes,
    options: LinkOptions,
) -> tuple[list[Gap], Causes]:
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
    outside, inner = _sort_waits(waits, operations.frame.tolist())
    for lane, own_rows in lanes.items():
        if lane >= FIRST_LANE:
            continue
        device = outside.get(lane, [])
        device_begins = [one.begin for one in device]
        others = {other: ended for other, ended in ends.items() if other != lane}
        spans = [
            *_idle(operations, own_rows, lane, min([started, *(one.begin for one in device[:1])])),
            *_after_all(operations, own_rows, device),
            *(span for span in inside if span.thread == lane),
        ]
        looked = _look(
            spans, device_begins, others, _Causing(lane, by_call, own_times.floating_ends), options
        )
        for span, (is_plain, may_be_held, first, last) in zip(spans, looked, strict=True):
            if is_plain:
                gaps += _gap(lane, span.begin, span.end, "program", options)
                continue
            awaited = (
                [one for one in device[first:last] if one.end <= span.end] if first < last else _NO_WAITS
            )
            cause = None
            if may_be_held and span.may_wait and not any(one.end > one.begin for one in awaited):
                cause = (
                    by_call.get((lane, span.end))
                    or _own_cause(own_times.floating_ends.get(lane, {}), span, options)
                    or _cause(others, span, options)
                )
            if cause:
                start = max(span.begin, cause[-1])
                causes[lane, start] = cause[:2]
                after = [one for one in awaited if one.begin >= start]
                gaps += _around_waits(lane, start, span.end, after, options, "thread")
            elif span.operation < 0:
                gaps += _around_waits(lane, span.begin, span.end, awaited, options)
            elif span.issued or span.rest:
                awaited = [
                    one
                    for one in inner.get((lane, span.operation), _NO_WAITS)
                    if one.begin >= span.begin and one.end <= span.end
                ]
                gaps += _around_waits(lane, span.begin, span.end, awaited, options, "call")
            if span.operation >= 0 and (cause or ((span.issued or span.rest) and options.host_gaps)):
                waited = sum(one.until - one.begin for one in awaited) if not cause else 0
                own[span.operation] = max(own[span.operation] - (span.end - span.begin - waited), 0)
    gaps = gaps if options.host_gaps else []
    # Of what begins at one time the call comes first: the time after it follows.
    return [*(_returning(wait) for wait in waits if wait.call >= 0), *gaps], causes


def _sort_waits(
    waits: Sequence[Wait], frame: Sequence[bool]
) -> tuple[dict[int, list[Wait]], dict[tuple[int, int], list[Wait]]]:
    """Return waits by their begin: those between operations by thread, others by thread and operation."""
    outside: dict[int, list[Wait]] = {}
    inner: dict[tuple[int, int], list[Wait]] = {}
    for wait in sorted(waits, key=lambda wait: wait.begin):
        if wait.operation < 0 or frame[wait.operation]:
            outside.setdefault(wait.thread, []).append(wait)
        else:
            inner.setdefault((wait.thread, wait.operation), []).append(wait)
    return outside, inner


class _Causing(NamedTuple):
    """A lane, and what may have held up a thread."""

    lane: int
    by_call: dict[tuple[int, int], tuple[int, int, int]]
    floating_ends: dict[int, dict[int, int]]


def _look(
    spans: Sequence[Span],
    device_begins: Sequence[int],
    others: dict[int, Int64],
    causing: _Causing,
    options: LinkOptions,
) -> Iterable[tuple[bool, bool, int, int]]:
    """Return of spans what can be told of all at once.

    That is whether it is time between operations in which the thread waited for nothing, as most are; whether something may
    have held the thread up, which has to be found out; and which of the device's waits began in it.
    """
    if not spans:
        return []
    begin = np.array([span.begin for span in spans], np.int64)
    end = np.array([span.end for span in spans], np.int64)
    waits = np.array(device_begins, np.int64)
    first, last = np.searchsorted(waits, begin, "left"), np.searchsorted(waits, end, "right")
    may = np.full(len(spans), causing.lane in causing.floating_ends)
    may |= np.isin(end, [until for lane, until in causing.by_call if lane == causing.lane])
    if options.threads:
        is_first = np.array([span.first for span in spans], np.bool_)
        compared = is_first | (end - begin >= options.thread_gap_ns)
        for ends in others.values():
            may |= compared & (np.searchsorted(ends, end, "right") > np.searchsorted(ends, begin, "right"))
    may &= end - begin >= options.least_gap_ns
    between = np.array([span.operation < 0 and span.may_wait for span in spans], np.bool_)
    plain = between & (first >= last) & ~may
    return zip(plain.tolist(), may.tolist(), first.tolist(), last.tolist(), strict=True)


def replace_lost(operations: Operations, lost: Sequence[int], own: Int64, options: LinkOptions) -> list[Gap]:
    """Return a gap for the time that each lost call took its thread, as the call itself is no part of the thread."""
    gaps = []
    for call in lost:
        begin, lane = int(operations.begin[call]), int(operations.thread[call])
        if options.host_gaps and operations.timed[call]:
            gaps += _gap(lane, begin, begin + int(own[call]), "call", options)
    return gaps


def _returning(wait: Wait) -> Gap:
    """Return the time that a call which waited took after the device was done."""
    return Gap(wait.thread, wait.end, wait.until - wait.end, "device", wait.call, wait.end - wait.begin)


def _gap(lane: int, begin: int, end: int, why: str, options: LinkOptions) -> list[Gap]:
    return [Gap(lane, begin, end - begin, why)] if end - begin >= options.least_gap_ns else []


def _idle(operations: Operations, rows: Int64, lane: int, started: int) -> list[Span]:
    """Return the intervals in which a thread ran no operator, from the start of the recording on."""
    order = rows[np.argsort(operations.start_ns[rows], kind="stable")]
    start = operations.start_ns[order]
    busy = np.maximum.accumulate(operations.end_ns[order])
    before = np.append(started, busy[:-1])
    gap_places = np.flatnonzero(start > before)
    columns = before[gap_places], start[gap_places], gap_places == 0
    return [Span(lane, *values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def _after_all(operations: Operations, rows: Int64, waits: list[Wait]) -> list[Span]:
    """Return the time of a thread from its last operator to the end of the last call that waited for the device."""
    ended = int(operations.end_ns[rows].max(initial=NONE))
    last = max((wait.until for wait in waits if wait.begin >= ended), default=NONE)
    return [Span(waits[0].thread, ended, last)] if last > ended >= 0 else []


def _around_waits(
    lane: int, begin: int, end: int, waits: list[Wait], options: LinkOptions, why: str = "program"
) -> list[Gap]:
    """Cut the processor's waits for the device out of intervals between operators."""
    if not waits:
        return _gap(lane, begin, end, why, options)
    gaps: list[Gap] = []
    for low, high in [*((wait.begin, wait.until) for wait in waits), (end, end)]:
        gaps += _gap(lane, begin, low, why, options)
        begin, why = max(begin, high), "device"
    return gaps


def begin_of_first_callee(operations: Operations, around: Int64) -> Int64:
    """Return when the first callee (N,) of each operation began, its end where it has none."""
    first = operations.end_ns.copy()
    inner = np.flatnonzero(around >= 0)
    np.minimum.at(first, around[inner], operations.start_ns[inner])
    return first


def _by_call(
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


def ends_of_floating(operations: Operations, floating: Bool, threads: Int64) -> dict[int, dict[int, int]]:
    """Return by thread when it ended its floating operations → the lane of each."""
    ends: dict[int, dict[int, int]] = {}
    for row in np.flatnonzero(floating & operations.timed).tolist():
        if operations.names[row].startswith(LIBRARY):
            ends.setdefault(int(threads[row]), {})[int(operations.end_ns[row])] = int(operations.thread[row])
    return ends


def _own_cause(ends: dict[int, int], span: Span, options: LinkOptions) -> tuple[int, int] | None:
    """Return the lane of the last floating operation that the thread itself ended within the span, and when."""
    within = [end for end in ends if span.begin < end <= span.end]
    return (ends[max(within)], max(within)) if within and options.threads else None


def _cause(others: dict[int, Int64], span: Span, options: LinkOptions) -> tuple[int, int] | None:
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
