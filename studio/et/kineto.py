"""Read Kineto and Chrome traces (JSON): when operators, runtime calls, kernels and copies ran.

Times come as whole or fractional microseconds, with or without a base; categories have old and new names and
differ between CUDA, ROCm and MTIA; nearly every key may be missing. Events become columns; what is neither on a
processor nor on a device (counters, metadata, the profiler's own marks) is left out; allocations of memory are kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import msgspec
import numpy as np

from studio.errors import TraceFormatError
from studio.et import event_kernel as k
from studio.et.collector import pause_collector
from studio.et.device_events import join_events, order_by_begin, reorder_events
from studio.et.event_columns import EventRows, is_worth_compiling, read_rows
from studio.et.event_pairs import pair_events
from studio.et.event_pieces import Pieces, split_events
from studio.et.format import DevicePart, Part, Reading
from studio.et.kineto_categories import (
    UnreadKey,
    build_unknown_finding,
    build_unread_key,
    infer_category_kind,
    infer_kinds,
    infer_row_places,
    select_unknown,
)
from studio.et.kineto_columns import MEMORY, build_trace, build_trace_from_rows, collect_allocations
from studio.et.kineto_events import Content, Event, decode_content, decode_list, decode_trace, decode_value
from studio.et.kineto_head import build_head, parse_whole
from studio.et.kineto_times import LONGEST_NS, LONGEST_YEARS, convert_to_ns, parse_microseconds
from studio.et.pytorch import parse_integers
from studio.et.recording import DeviceTrace, EventKind
from studio.et.several_processes import count_callers, find_processes
from studio.trace import NONE, Bool, Finding, Int64

_FLOWS = ("ac2g", "async_gpu", "async_cpu_to_gpu")


def sniff(head: bytes) -> bool:
    """Whether `head` starts a Kineto or Chrome trace."""
    start = head.lstrip()[:1]
    if start == b"{":
        keys = rb'"(traceEvents|deviceProperties|distributedInfo|baseTimeNanoseconds|displayTimeUnit|schemaVersion)"'
        # The first rocprof wrote such files too, without saying what an event is.
        of_rocprof = b'"BeginNs"' in head and b'"cat"' not in head
        return re.search(keys, head) is not None and not of_rocprof
    return start == b"[" and re.search(rb'"ph"\s*:\s*"', head) is not None


_BESIDE = ("X", "B", "E", "M", "i", "I", "s", "t", "f")
"""Phases of operations, and of what traces hold beside them: names, marks, arrows."""
_PHASES_NAMED = 8
_TOGETHER = 4
"""Pieces that the kernel reads at a time, of two megabytes each: to begin a piece takes as long as to read a third of it."""


def read(reading: Reading) -> list[Part]:
    """Read one trace.

    Raises:
        TraceFormatError: It is no JSON, or has no list of events.
    """
    with pause_collector():
        piece, findings = _read_in_pieces(reading) or _read_whole(reading)
    noticed = [*reading.findings, *findings]
    if piece.lost:
        message = f"{reading.name}: events without a usable time, left out: {piece.lost:,}."
        noticed.append(Finding("warning", "damaged-event", message, file=reading.name))
    if piece.mistimed:
        message = (
            f"{reading.name}: events whose duration is below zero, longer than {LONGEST_YEARS} years or no number, "
            f"taken as 0: {piece.mistimed:,}."
        )
        hint = "Record anew where their times matter: the profiler wrote what cannot have been."
        noticed.append(Finding("warning", "damaged-duration", message, hint, file=reading.name))
    if piece.unknown:
        noticed.append(build_unknown_finding(piece.unknown, reading.data, reading.name))
    damaged = any(finding.level == "error" for finding in noticed)
    has_others = any(finding.code == "left-out" for finding in noticed)
    trace = replace(piece.trace, damaged=damaged, has_others=has_others)
    if piece.process is not None:
        return _divide_processes(trace, piece.process, noticed)
    callers = count_callers(trace)
    if callers > 1:
        message = (
            f"{reading.name}: events of {callers:,} processes among each other, which count as one rank: "
            "which of them launched a kernel is told by numbers that may be those of several."
        )
        hint = "Open the files that it was made of, one of each process."
        noticed.append(Finding("warning", "several-processes", message, hint, file=reading.name))
    return [DevicePart(trace, tuple(noticed))]


def _divide_processes(trace: DeviceTrace, process: Int64, noticed: Sequence[Finding]) -> list[Part]:
    """Return a rank for each of the processes (E,) whose events a file holds."""
    count = int(process.max()) + 1
    hint = "Open the files that it was made of, which tell their ranks."
    what = f"{trace.file}: traces of {count:,} processes in one file"
    message = f"{what}; they are taken as the ranks 0 and on, in the order of the file or of their labels."
    findings = [*noticed, Finding("info", "rank-assumed", message, hint, file=trace.file)]
    parts: list[Part] = []
    for number in range(count):
        own = reorder_events(trace, np.flatnonzero(process == number))
        callers = {caller for caller, _ in own.threads}
        threads = own.allocations.threads
        kept = np.array([row for row, (caller, _) in enumerate(threads) if caller in callers], np.int64)
        head = replace(own.head, rank=number, world_size=max(own.head.world_size or 0, count))
        own = replace(own, head=head, pid=_find_pid(own), allocations=own.allocations.take(kept))
        parts.append(DevicePart(own, tuple(findings) if not number else ()))
    return parts


@dataclass(frozen=True, slots=True)
class _Piece:
    """Events as columns.

    Attributes:
        trace: The events.
        lost: How many had to be left out.
        mistimed: Of how many the duration is written but can be none, and counts as 0.
        unknown: How many there are of each category that is not known, and were left out.
        process: (E,) which process each event is of, where a file holds several.
    """

    trace: DeviceTrace
    lost: int
    mistimed: int
    unknown: Counter[UnreadKey]
    process: Int64 | None = None


_Events = Callable[[], Iterable[list[Event]]]
"""Returns the events of a file, in pieces."""


def _read_in_pieces(reading: Reading) -> tuple[_Piece, tuple[Finding, ...]] | None:
    """Return the events of a long file, None where it is short, damaged or odd."""
    pieces = split_events(reading.data)
    if pieces is None:
        return None
    split = pieces
    try:
        content = decode_trace(split.rest())
        last = content.events
        if not isinstance(last, list):
            return None
        events = lambda: chain(map(decode_list, split.lists(lambda _done: None)), [last])  # noqa: E731
        all_pieces = chain(_iterate_pieces(split, reading), [_build_piece(last, reading.name)])
        piece = _join_pieces(content, events, all_pieces)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # Without a complete event there may be beginnings and ends, of which each can be in a piece of its own.
    return (piece, ()) if len(piece.trace) else None


def _read_whole(reading: Reading) -> tuple[_Piece, tuple[Finding, ...]]:
    content, findings = decode_content(reading.data, reading.name)
    reading.tick(len(reading.data))
    events = content.events
    if not isinstance(events, list):
        raise TraceFormatError(
            f"{reading.name}: no list 'traceEvents'; a Kineto or Chrome trace has one.",
            hint="Write it with torch.profiler.profile(...).export_chrome_trace(path).",
        )
    piece = _build_piece(events, reading.name)
    if not len(piece.trace) and not piece.lost:
        pair_events(events, parse_microseconds)
        piece = _build_piece(events, reading.name)
    if not len(piece.trace):
        findings = (*findings, *_build_unread_findings(events, reading.name))
    return _join_pieces(content, lambda: iter([events]), [piece]), findings


def _build_unread_findings(events: Sequence[Event], name: str) -> Iterator[Finding]:
    """Yield what a file without operations holds instead, if that is anything that happened."""
    phases = Counter(str(event.ph)[:8] for event in events if event.ph not in _BESIDE)
    if phases:
        counts = ", ".join(f"{phase} ({count:,})" for phase, count in sorted(phases.items())[:_PHASES_NAMED])
        message = f"{name}: events of phases that are not read, left out: {counts}."
        hint = "Operations are complete events (X), or beginnings and ends (B, E) of a thread."
        yield Finding("warning", "left-out", message, hint, file=name)


def _join_pieces(content: Content, events: _Events, pieces: Iterable[_Piece]) -> _Piece:
    """Return the events of all pieces as columns, by time."""
    all_pieces = list(pieces)
    trace = join_events([piece.trace for piece in all_pieces])
    base_ns = parse_whole(content.base)
    latest = int(np.abs(trace.start_ns).max(initial=0))
    if base_ns is not None and len(trace) and abs(base_ns) + latest >= LONGEST_NS:
        base_ns = None
    process = find_processes(trace)
    order = order_by_begin(trace.start_ns, trace.start_ns + trace.duration_ns)
    trace = reorder_events(trace, order)
    trace.start_ns[:] += base_ns or 0
    allocations = trace.allocations.later_by(base_ns or 0)
    trace = replace(trace, head=build_head(content, base_ns), pid=_find_pid(trace), allocations=allocations)
    calls = trace.kind == EventKind.RUNTIME
    # Some calls are no launches and have none: only where all lack one is it missing.
    without = trace.is_device | (calls if (trace.correlation[calls] < 0).all() else False)
    if (trace.correlation[without] < 0).any():
        flows = [
            event for some in events() for event in some if event.ph in {"s", "f"} and event.cat in _FLOWS
        ]
        _correlate_by_flow(trace, without, flows, base_ns or 0)
        _correlate_by_operator(trace)
    return _Piece(
        trace,
        sum(piece.lost for piece in all_pieces),
        sum(piece.mistimed for piece in all_pieces),
        sum((piece.unknown for piece in all_pieces), Counter()),
        None if process is None else process[order],
    )


def _build_piece(events: list[Event], name: str) -> _Piece:
    """Return some events as columns, in the order of the file."""
    whole = [event for event in events if event.ph == "X"]
    kind = infer_kinds(whole)
    kept = np.flatnonzero(kind)
    complete = [whole[index] for index in kept.tolist()]
    start_ns, good = convert_to_ns([event.ts for event in complete])
    if not good.all():
        kept, start_ns = kept[good], start_ns[good]
        complete = [whole[index] for index in kept.tolist()]
    duration_ns, none = _select_usable(*convert_to_ns([event.dur for event in complete]))
    mistimed = sum(complete[row].dur is not None for row in none.tolist())
    trace = build_trace(name, complete)
    trace.kind[:], trace.start_ns[:], trace.duration_ns[:] = kind[kept], start_ns, duration_ns
    allocations, odd = collect_allocations(events)
    left = (whole[row] for row in np.flatnonzero(kind == EventKind.OTHER).tolist())
    others = Counter(build_unread_key(event.cat, event.pid) for event in left)
    return _Piece(
        replace(trace, allocations=allocations),
        int(len(good) - good.sum()) + odd,
        mistimed,
        select_unknown(others),
    )


def _select_usable(duration_ns: Int64, timed: Bool) -> tuple[Int64, Int64]:
    """Return durations (M,), 0 where there is none that can be, and the rows of these."""
    none = np.flatnonzero(~timed | (duration_ns < 0))
    duration_ns[none] = 0
    return duration_ns, none


def _iterate_pieces(split: Pieces, reading: Reading) -> Iterator[_Piece]:
    """Yield the pieces of a file but the last, by the kernel where they are written as usual, a few together."""
    compiled = is_worth_compiling(len(reading.data))
    places = list(split.places())
    for first in range(0, len(places), _TOGETHER):
        yield from _read_together(places[first : first + _TOGETHER], reading, compiled=compiled)


def _read_together(
    places: Sequence[tuple[int, int]], reading: Reading, *, compiled: bool
) -> Iterator[_Piece]:
    """Yield neighbouring pieces as one; where one of them is not written as usual each alone, and only that one decoded."""
    start, end = places[0][0], places[-1][1]
    rows = read_rows(reading.data, start, end) if compiled else None
    if rows is None and len(places) > 1:
        for place in places:
            yield from _read_together([place], reading, compiled=compiled)
        return
    if rows is None:
        yield _build_piece(decode_list(b"[" + reading.data[start:end] + b"]"), reading.name)
    else:
        yield _build_piece_from_rows(rows, reading.name)
    reading.tick(end)


def _build_piece_from_rows(rows: EventRows, name: str) -> _Piece:
    """Return the events that the kernel has put down as columns, as `_build_piece` does those that are decoded."""
    whole = rows.take(rows.phase("X"))
    words, category = whole.texts(k.CATEGORY)
    categories = [decode_value(word) for word in words]
    kind = np.array([infer_category_kind(value) for value in categories], np.uint8)[category]
    others = infer_row_places(whole, kind) if not all(categories) else Counter()
    counts = np.bincount(category[kind == EventKind.OTHER], minlength=len(words)).tolist()
    for value, count in zip(categories, counts, strict=True):
        if value:
            others[build_unread_key(value, "")] += count
    kept = np.flatnonzero(kind)
    whole, kind = whole.take(kept), kind[kept]
    start_ns, good = _read_row_times(whole, k.START)
    good_rows = np.flatnonzero(good)
    lost = len(good) - len(good_rows)
    if lost:
        whole, kind, start_ns = whole.take(good_rows), kind[good_rows], start_ns[good_rows]
    duration_ns, none = _select_usable(*_read_row_times(whole, k.DURATION))
    mistimed = int((whole.take(none).column(k.DURATION + 1) >= 0).sum())
    noted = rows.phase("i")
    noted = noted[[decode_value(raw) == MEMORY for raw in rows.content(k.NAME, noted)]]
    allocations, odd = collect_allocations(decode_list(b"[" + b",".join(rows.content(k.EVENT, noted)) + b"]"))
    trace = build_trace_from_rows(whole, name)
    trace.kind[:], trace.start_ns[:], trace.duration_ns[:] = kind, start_ns, duration_ns
    return _Piece(replace(trace, allocations=allocations), lost + odd, mistimed, select_unknown(others))


def _read_row_times(rows: EventRows, column: int) -> tuple[Int64, Bool]:
    """Return times (M,) in nanoseconds, and which of them (M,) there are, as `convert_to_ns` does.

    Those of as many digits as a number of floating point tells apart to half a nanosecond are whole numbers throughout.
    """
    digits, behind = rows.column(column), rows.column(column + 1)
    is_present = behind >= 0
    times = np.where(is_present, digits * _LAST_DIGIT_NS[np.clip(behind, 0, len(_LAST_DIGIT_NS) - 1)], 0)
    odd = np.flatnonzero((behind >= len(_LAST_DIGIT_NS)) | (np.abs(times) >= _FINE_NS))
    if len(odd):
        times[odd], is_present[odd] = convert_to_ns(*rows.take(odd).microseconds(column))
    return times, is_present


_LAST_DIGIT_NS = np.array([1000, 100, 10, 1], np.int64)
"""Nanoseconds of the last digit of microseconds with so many digits behind the point."""
_FINE_NS = 2**43 * 1000
"""Shorter times are less than half a nanosecond off as microseconds in floating point."""


def _find_pid(trace: DeviceTrace) -> int:
    """Return the process id of the first operator."""
    operators = np.flatnonzero(trace.kind == EventKind.OPERATOR)
    pid = parse_whole(trace.threads[int(trace.thread[operators[0]])][0]) if len(operators) else None
    return NONE if pid is None else pid


def _correlate_by_flow(trace: DeviceTrace, without: Bool, flows: Sequence[Event], base_ns: int) -> None:
    """Give events without a correlation the number of the arrow that begins or ends on them.

    Args:
        trace: The events; their correlation is changed.
        without: (E,) which events to look at: device operations, and calls where none of them has a correlation.
        flows: The ends of the arrows from calls to device operations.
        base_ns: What the times of the file count from.
    """
    codes = {thread: code for code, thread in enumerate(trace.threads)}
    starts, good = convert_to_ns([flow.ts for flow in flows])
    ids, known = parse_integers([flow.id for flow in flows])
    ends = {
        (codes.get((str(flow.pid), str(flow.tid)), NONE), start): number
        for flow, start, number, usable in zip(
            flows, (starts + base_ns).tolist(), ids.tolist(), (good & known).tolist(), strict=True
        )
        if usable
    }
    for row in np.flatnonzero(without & (trace.correlation < 0)).tolist():
        trace.correlation[row] = ends.get((int(trace.thread[row]), int(trace.start_ns[row])), NONE)


def _correlate_by_operator(trace: DeviceTrace) -> None:
    """Correlate calls and device operations by the operator that both name, where no call has a correlation.

    Tools that write traces themselves leave correlations out, and give a call and its kernel one external id.
    """
    calls = trace.kind == EventKind.RUNTIME
    if (trace.correlation[calls] >= 0).any():
        return
    shared = np.intersect1d(trace.external[calls], trace.external[trace.is_device])
    meets = (calls | trace.is_device) & np.isin(trace.external, shared[shared > 0])
    trace.correlation[meets] = trace.external[meets]
