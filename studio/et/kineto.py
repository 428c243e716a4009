"""Read Kineto and Chrome traces (JSON): when operators, runtime calls, kernels and copies ran.

Times come as whole or fractional microseconds, with or without a base; categories have old and new names and
differ between CUDA, ROCm and MTIA; nearly every key may be missing. Events become columns; what is neither on a
processor nor on a device (counters, metadata, the profiler's own marks) is left out; allocations of memory are kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et import event_kernel as k
from studio.et.allocations import HOST_MEMORY, Allocations, build_empty_allocations
from studio.et.collector import pause_collector
from studio.et.columns import order_by_appearance
from studio.et.device_events import join_events, order_by_begin, reorder_events
from studio.et.direct import OPERATORS
from studio.et.event_columns import EventRows, is_worth_compiling, read_rows
from studio.et.event_pairs import pair_events
from studio.et.event_pieces import Pieces, split_events
from studio.et.format import DevicePart, Part, Reading
from studio.et.mend import decode_mended
from studio.et.pytorch import parse_integers
from studio.et.recording import DeviceTrace, EventKind, Group, Head, NotedCall, mark_names
from studio.et.records import clean
from studio.et.several_processes import count_callers, find_processes
from studio.trace import NONE, Bool, Finding, Float64, Int32, Int64, UInt8

CATEGORIES = {
    "cpu_op": EventKind.OPERATOR,
    "operator": EventKind.OPERATOR,
    "user_annotation": EventKind.ANNOTATION,
    "runtime": EventKind.RUNTIME,
    "kernel": EventKind.KERNEL,
    "mtia_ccp_events": EventKind.KERNEL,
    "memcpy": EventKind.COPY,
    "memset": EventKind.FILL,
    "cuda_sync": EventKind.SYNC,
    "python_function": EventKind.PYTHON,
}
"""Categories by lower-case name, old spellings included."""
_CATEGORY_ENDS = {
    "_runtime": EventKind.RUNTIME,
    "_driver": EventKind.RUNTIME,
    "_memcpy": EventKind.COPY,
    "_memset": EventKind.FILL,
}
"""Ends of categories that are called after a vendor's device: cuda, hip, xpu, mtia, mlu, gcu and whatever comes."""
_CATEGORIES_BESIDE = (
    *(
        "trace",
        "overhead",
        "gpu_user_annotation",
        "mlu_user_annotation",
        "cpu_instant_event",
        "cuda_profiler_range",
    ),
    *("cuda_event", "xpu_sync", "external_correlation", "gpu_pm_counter", "mtia_counters"),
)
"""Categories of what neither ran nor was called: spans, marks and measurements, and annotations once more where their kernels ran."""
_PROCESS_NAME = re.compile(rb'\{[^{}]*(?:\{[^{}]*\})?[^{}]*"process_name"[^{}]*(?:\{[^{}]*\})?[^{}]*\}')
_PLACES = {"CPU functions": EventKind.OPERATOR, "CUDA functions": EventKind.KERNEL}
"""Processes by which PyTorch's first profiler, which knows no categories, tells what its events are."""

_MEMORY = "[memory]"
_FLOWS = ("ac2g", "async_gpu", "async_cpu_to_gpu")
_LARGEST_RANK = 2**31 - 1
_MOST_RANKS = 1 << 20
_LONGEST_NS = 2**62
_LONGEST_YEARS = 146
"""So many whole years are `_LONGEST_NS`."""
_EMPTY_LIST = 2
_MOST_BLOCKS = 2**31 - 1


def sniff(head: bytes) -> bool:
    """Whether `head` starts a Kineto or Chrome trace."""
    start = head.lstrip()[:1]
    if start == b"{":
        keys = rb'"(traceEvents|deviceProperties|distributedInfo|baseTimeNanoseconds|displayTimeUnit|schemaVersion)"'
        # The first rocprof wrote such files too, without saying what an event is.
        of_rocprof = b'"BeginNs"' in head and b'"cat"' not in head
        return re.search(keys, head) is not None and not of_rocprof
    return start == b"[" and re.search(rb'"ph"\s*:\s*"', head) is not None


# ---------------------------------------------------------------------------------------------------
# Decoding


class _Args(msgspec.Struct, gc=False):
    external: Any = msgspec.field(default=NONE, name="External id")
    external_old: Any = msgspec.field(default=NONE, name="external id")
    record_function: Any = msgspec.field(default=NONE, name="Record function id")
    correlation: Any = NONE
    stream: Any = NONE
    device: Any = NONE
    bytes: Any = NONE
    grid: Any = None
    flops: Any = NONE
    memory_bytes: Any = msgspec.field(default=None, name="Bytes")
    device_type: Any = msgspec.field(default=NONE, name="Device Type")
    device_id: Any = msgspec.field(default=NONE, name="Device Id")
    address: Any = msgspec.field(default=NONE, name="Addr")
    total: Any = msgspec.field(default=NONE, name="Total Allocated")
    reserved: Any = msgspec.field(default=NONE, name="Total Reserved")
    wait_stream: Any = msgspec.field(default=NONE, name="wait_on_stream")
    wait_record: Any = msgspec.field(default=NONE, name="wait_on_cuda_event_record_corr_id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    in_split: Any = msgspec.field(default=None, name="In split size")
    out_split: Any = msgspec.field(default=None, name="Out split size")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    first_rank: Any = msgspec.field(default=None, name="Global rank start")
    rank_stride: Any = msgspec.field(default=None, name="Global rank stride")
    seq: Any = msgspec.field(default=None, name="Seq")
    source: Any = msgspec.field(default=None, name="Src Rank")
    target: Any = msgspec.field(default=None, name="Dst Rank")
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Concrete Inputs")


class _Event(msgspec.Struct, gc=False):
    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = ""
    tid: Any = ""
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: _Args | None = None


class _Mark(msgspec.Struct, gc=False):
    name: Any = ""
    pid: Any = ""
    args: dict[str, Any] = {}


class _Content(msgspec.Struct):
    events: Any = msgspec.field(default=None, name="traceEvents")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    base: Any = msgspec.field(default=None, name="baseTimeNanoseconds")
    host: Any = msgspec.field(default=None, name="host_name")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    calls: Any = msgspec.field(default=None, name="chakra_studio_calls")
    stacks: Any = msgspec.field(default=None, name="with_stack")


class _Object(_Content):
    events: list[_Event] | None = msgspec.field(default=None, name="traceEvents")


_NO_ARGS = _Args()
_object = build_decoder(_Object)
_list = build_decoder(list[_Event])
_anything = build_decoder(Any)
_arguments = build_decoder(_Args)
_mark = build_decoder(_Mark)


def _decode(raw: bytes | memoryview) -> _Content:
    bare = bytes(raw[:64]).lstrip()[:1] == b"["
    return _Content(events=_list(raw)) if bare else _object(raw)


def _decode_content(data: bytes | memoryview, name: str) -> tuple[_Content, tuple[Finding, ...]]:
    try:
        return decode_mended(data, _decode, name)
    except msgspec.ValidationError:
        return decode_mended(data, _decode_by_hand, name)


def _decode_by_hand(raw: bytes | memoryview) -> _Content:
    """Decode a file in which some events are malformed."""
    value = _anything(raw)
    head = value if isinstance(value, dict) else {}
    content = _Content(
        distributed=head.get("distributedInfo"),
        base=head.get("baseTimeNanoseconds"),
        host=head.get("host_name"),
        devices=head.get("deviceProperties"),
        calls=head.get("chakra_studio_calls"),
        stacks=head.get("with_stack"),
    )
    events = value if isinstance(value, list) else head.get("traceEvents")
    if isinstance(events, list):
        content.events = [_decode_event_by_hand(event) for event in events if isinstance(event, dict)]
    return content


_BESIDE = ("X", "B", "E", "M", "i", "I", "s", "t", "f")
"""Phases of operations, and of what traces hold beside them: names, marks, arrows."""
_PHASES_NAMED = 8
_CATEGORIES_NAMED = 8
_TOGETHER = 4
"""Pieces that the kernel reads at a time, of two megabytes each: to begin a piece takes as long as to read a third of it."""
_RAW = ("Input Dims", "Input type", "Concrete Inputs")
_ARG_NAMES = tuple(zip(_Args.__struct_fields__, _Args.__struct_encode_fields__, strict=True))


def _decode_event_by_hand(event: dict[str, Any]) -> _Event:
    given = event.get("args")
    args = None
    if isinstance(given, dict):
        args = _Args()
        for field, name in _ARG_NAMES:
            if name not in _RAW:
                setattr(args, field, given.get(name))
        args.dims, args.types, args.values = (
            msgspec.Raw(msgspec.json.encode(given.get(name, []))) for name in _RAW
        )
    keys = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id")
    return _Event(args=args, **{key: event.get(key) for key in keys})


# ---------------------------------------------------------------------------------------------------
# Columns


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
            f"{reading.name}: events whose duration is below zero, longer than {_LONGEST_YEARS} years or no number, "
            f"taken as 0: {piece.mistimed:,}."
        )
        hint = "Record anew where their times matter: the profiler wrote what cannot have been."
        noticed.append(Finding("warning", "damaged-duration", message, hint, file=reading.name))
    if piece.unknown:
        noticed.append(_build_unknown_finding(piece.unknown, reading.data, reading.name))
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
    unknown: Counter[_Left]
    process: Int64 | None = None


_Events = Callable[[], Iterable[list[_Event]]]
"""Returns the events of a file, in pieces."""


def _read_in_pieces(reading: Reading) -> tuple[_Piece, tuple[Finding, ...]] | None:
    """Return the events of a long file, None where it is short, damaged or odd."""
    pieces = split_events(reading.data)
    if pieces is None:
        return None
    split = pieces
    try:
        content = _decode(split.rest())
        last = content.events
        if not isinstance(last, list):
            return None
        events = lambda: chain(map(_list, split.lists(lambda _done: None)), [last])  # noqa: E731
        all_pieces = chain(_iterate_pieces(split, reading), [_build_piece(last, reading.name)])
        piece = _join_pieces(content, events, all_pieces)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # Without a complete event there may be beginnings and ends, of which each can be in a piece of its own.
    return (piece, ()) if len(piece.trace) else None


def _read_whole(reading: Reading) -> tuple[_Piece, tuple[Finding, ...]]:
    content, findings = _decode_content(reading.data, reading.name)
    reading.tick(len(reading.data))
    events = content.events
    if not isinstance(events, list):
        raise TraceFormatError(
            f"{reading.name}: no list 'traceEvents'; a Kineto or Chrome trace has one.",
            hint="Write it with torch.profiler.profile(...).export_chrome_trace(path).",
        )
    piece = _build_piece(events, reading.name)
    if not len(piece.trace) and not piece.lost:
        pair_events(events, _parse_microseconds)
        piece = _build_piece(events, reading.name)
    if not len(piece.trace):
        findings = (*findings, *_build_unread_findings(events, reading.name))
    return _join_pieces(content, lambda: iter([events]), [piece]), findings


def _build_unread_findings(events: Sequence[_Event], name: str) -> Iterator[Finding]:
    """Yield what a file without operations holds instead, if that is anything that happened."""
    phases = Counter(str(event.ph)[:8] for event in events if event.ph not in _BESIDE)
    if phases:
        counts = ", ".join(f"{phase} ({count:,})" for phase, count in sorted(phases.items())[:_PHASES_NAMED])
        message = f"{name}: events of phases that are not read, left out: {counts}."
        hint = "Operations are complete events (X), or beginnings and ends (B, E) of a thread."
        yield Finding("warning", "left-out", message, hint, file=name)


def _join_pieces(content: _Content, events: _Events, pieces: Iterable[_Piece]) -> _Piece:
    """Return the events of all pieces as columns, by time."""
    all_pieces = list(pieces)
    trace = join_events([piece.trace for piece in all_pieces])
    base_ns = _parse_whole(content.base)
    latest = int(np.abs(trace.start_ns).max(initial=0))
    if base_ns is not None and len(trace) and abs(base_ns) + latest >= _LONGEST_NS:
        base_ns = None
    process = find_processes(trace)
    order = order_by_begin(trace.start_ns, trace.start_ns + trace.duration_ns)
    trace = reorder_events(trace, order)
    trace.start_ns[:] += base_ns or 0
    allocations = trace.allocations.later_by(base_ns or 0)
    trace = replace(trace, head=_build_head(content, base_ns), pid=_find_pid(trace), allocations=allocations)
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


def _build_piece(events: list[_Event], name: str) -> _Piece:
    """Return some events as columns, in the order of the file."""
    whole = [event for event in events if event.ph == "X"]
    kind = _infer_kinds(whole)
    kept = np.flatnonzero(kind)
    complete = [whole[index] for index in kept.tolist()]
    start_ns, good = convert_to_ns([event.ts for event in complete])
    if not good.all():
        kept, start_ns = kept[good], start_ns[good]
        complete = [whole[index] for index in kept.tolist()]
    duration_ns, none = _select_usable(*convert_to_ns([event.dur for event in complete]))
    mistimed = sum(complete[row].dur is not None for row in none.tolist())
    trace = _build_trace(name, complete)
    trace.kind[:], trace.start_ns[:], trace.duration_ns[:] = kind[kept], start_ns, duration_ns
    allocations, odd = _collect_allocations(events)
    left = (whole[row] for row in np.flatnonzero(kind == EventKind.OTHER).tolist())
    others = Counter(_build_left_key(event.cat, event.pid) for event in left)
    return _Piece(
        replace(trace, allocations=allocations),
        int(len(good) - good.sum()) + odd,
        mistimed,
        _select_unknown(others),
    )


_Left = tuple[str, str]
"""The category of an event that is not read, and where it has none its process as the file writes it."""


def _build_left_key(category: Any, process: Any) -> _Left:
    """Return what an event that is not read is counted as."""
    return (category, "") if isinstance(category, str) and category else ("", str(process))


def _select_unknown(others: Counter[_Left]) -> Counter[_Left]:
    """Return the events that were not read, without those of categories that are known to be no operations."""
    return Counter(
        {key: count for key, count in others.items() if count and key[0].lower() not in _CATEGORIES_BESIDE}
    )


def _build_unknown_finding(unknown: Counter[_Left], data: bytes | memoryview, name: str) -> Finding:
    """Return the finding about events of kinds that are not read, those without a category by the names of their processes."""
    called = _list_process_names(bytes(data)) if any(not category for category, _ in unknown) else {}
    counts: Counter[str] = Counter()
    for (category, process), count in unknown.items():
        counts[category or called.get(process) or "without a category"] += count
    listed = ", ".join(f"{clean(what)} ({count:,})" for what, count in counts.most_common(_CATEGORIES_NAMED))
    message = f"{name}: events of categories or processes that are not read, left out: {listed}."
    hint = "If they are what a device did, times and figures of the job lack it: the processor's part alone was read."
    return Finding("warning", "left-out", message, hint, file=name)


def _list_process_names(data: bytes) -> dict[str, str]:
    """Return the names that a file gives its processes."""
    names = {}
    for match in _PROCESS_NAME.finditer(data):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            event = _mark(match[0])
            if event.name == "process_name":
                names[str(event.pid)] = str(event.args.get("name", ""))
    return names


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
        yield _build_piece(_list(b"[" + reading.data[start:end] + b"]"), reading.name)
    else:
        yield _build_piece_from_rows(rows, reading.name)
    reading.tick(end)


def _build_piece_from_rows(rows: EventRows, name: str) -> _Piece:
    """Return the events that the kernel has put down as columns, as `_build_piece` does those that are decoded."""
    whole = rows.take(rows.phase("X"))
    words, category = whole.texts(k.CATEGORY)
    categories = [_decode_value(word) for word in words]
    kind = np.array([_infer_category_kind(value) for value in categories], np.uint8)[category]
    others = _infer_row_places(whole, kind) if not all(categories) else Counter()
    counts = np.bincount(category[kind == EventKind.OTHER], minlength=len(words)).tolist()
    for value, count in zip(categories, counts, strict=True):
        if value:
            others[_build_left_key(value, "")] += count
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
    noted = noted[[_decode_value(raw) == _MEMORY for raw in rows.content(k.NAME, noted)]]
    allocations, odd = _collect_allocations(_list(b"[" + b",".join(rows.content(k.EVENT, noted)) + b"]"))
    trace = _build_trace_from_rows(whole, name)
    trace.kind[:], trace.start_ns[:], trace.duration_ns[:] = kind, start_ns, duration_ns
    return _Piece(replace(trace, allocations=allocations), lost + odd, mistimed, _select_unknown(others))


def _infer_row_places(rows: EventRows, kind: UInt8) -> Counter[_Left]:
    """Give events without a category the kind (M,) that their process tells; return how many of which process it tells nothing of."""
    processes, process = rows.texts(k.PROCESS)
    names = [_decode_text(raw) for raw in processes]
    of_process = np.array([_PLACES.get(name, EventKind.OTHER) for name in names], np.uint8)
    silent = np.flatnonzero(kind == EventKind.OTHER)
    silent = silent[[not _decode_value(raw) for raw in rows.content(k.CATEGORY, silent)]]
    kind[silent] = of_process[process[silent]]
    left = process[silent[kind[silent] == EventKind.OTHER]]
    return Counter(_build_left_key("", names[code]) for code in left.tolist())


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


def _build_trace_from_rows(rows: EventRows, name: str) -> DeviceTrace:
    """Return the trace of events as `_build_trace` does."""
    numbers = {
        key: rows.column(column) for key, column in zip(_NUMERIC, range(k.FIRST_NUMBER, k.GRID), strict=True)
    }
    raw_names, coded = rows.texts(k.NAME)
    names, worded = _merge_words([_decode_text(raw) for raw in raw_names], coded)
    threads, thread = _merge_words(*_list_pairs(rows))
    communicating = np.flatnonzero(_mark_communication(names, worded) | (rows.column(k.COMMUNICATES) >= 0))
    arguments = (_arguments(raw) if raw else _NO_ARGS for raw in rows.content(k.ARGUMENTS, communicating))
    inputs, input_texts = _number_row_inputs(rows)
    return _make_trace(
        numbers,
        file=name,
        name=worded,
        names=names,
        thread=thread,
        threads=tuple(threads),
        grid=np.clip(
            np.stack([rows.column(k.GRID + place) for place in range(3)], axis=1), NONE, _MOST_BLOCKS
        ),
        comm={row: _collect_comm(args) for row, args in zip(communicating.tolist(), arguments, strict=True)},
        inputs=inputs,
        input_texts=input_texts,
    )


def _list_pairs(rows: EventRows) -> tuple[list[tuple[str, str]], Int32]:
    """Return the distinct processes and threads of events as they are written, and (M,) which each is of."""
    processes, process = rows.texts(k.PROCESS)
    threads, thread = rows.texts(k.THREAD)
    both = process.astype(np.int64) * len(threads) + thread
    first, codes = _number_codes(both, len(processes) * len(threads))
    words = [
        (_decode_text(processes[process[row]]), _decode_text(threads[thread[row]])) for row in first.tolist()
    ]
    return words, codes


_Word = TypeVar("_Word", str, tuple[str, str])


def _merge_words(words: Sequence[_Word], codes: Int32) -> tuple[list[_Word], Int32]:
    """Return the distinct words that are used, by first appearance, and (M,) codes for them."""
    used, _, _ = order_by_appearance(codes, len(words))
    known: dict[_Word, int] = {}
    table = np.zeros(len(words), np.int32)
    for code in used.tolist():
        table[code] = known.setdefault(words[code], len(known))
    return list(known), table[codes]


def _number_row_inputs(rows: EventRows) -> tuple[Int32, list[tuple[str, str, str]]]:
    """Return which inputs events have as `_number_inputs` does."""
    parts = [rows.texts(column) for column in (k.VALUES, k.DIMS, k.TYPES)]
    first, both = np.zeros(min(len(rows), 1), np.int64), np.zeros(len(rows), np.int32)
    for words, codes in parts:
        first, both = _number_codes(both.astype(np.int64) * len(words) + codes, len(first) * len(words))
    table = np.full(len(first), NONE, np.int32)
    texts: list[tuple[str, str, str]] = []
    for code, row in enumerate(first.tolist()):
        values, dims, types = (words[codes[row]] for words, codes in parts)
        if len(types) > _EMPTY_LIST:
            table[code] = len(texts)
            texts.append((_format_in_one_line(values), _format_in_one_line(dims), _format_in_one_line(types)))
    return table[both], texts


_TABLE = 1 << 20
"""Codes up to this many are numbered by a table of all that there may be, more of them by sorting."""


def _number_codes(codes: Int64, count: int) -> tuple[Int64, Int32]:
    """Number some codes (M,) below `count` by first use; returns where each is used first, and (M,) their numbers."""
    if count > _TABLE:
        distinct, codes = np.unique(codes, return_inverse=True)
        codes, count = codes.reshape(-1), len(distinct)
    _, first, number = order_by_appearance(codes, count)
    return first, number[codes]


@lru_cache(maxsize=1 << 14)
def _decode_text(raw: bytes) -> str:
    """Return the text that a value is shown as; "" for one that is missing."""
    value = _decode_value(raw)
    return value if isinstance(value, str) else str(value)


def _decode_value(raw: bytes) -> Any:
    """Return a value of the file; "" for one that is missing."""
    return _anything(raw) if raw else ""


_NUMERIC = (
    *("external", "external_old", "record_function", "correlation", "stream", "device", "bytes"),
    *("wait_stream", "wait_record", "flops"),
)
"""Fields of whole numbers, in the order of the kernel's `NUMBERS`."""


def _collect_allocations(events: list[_Event]) -> tuple[Allocations, int]:
    """Return the allocations among some events, in the order of the file, and how many had to be left out."""
    noted = [event for event in events if event.ph == "i" and event.name == _MEMORY]
    if not noted:
        return build_empty_allocations(), 0
    time_ns, timed = convert_to_ns([event.ts for event in noted])
    args = [event.args or _NO_ARGS for event in noted]
    size, sized = parse_integers([arg.memory_bytes for arg in args])
    on_host = _parse_numbers([arg.device_type for arg in args]) == 0
    columns = {
        "time_ns": time_ns,
        "bytes": size,
        "device": np.where(on_host, HOST_MEMORY, _parse_numbers([arg.device_id for arg in args])),
        "address": _parse_numbers([arg.address for arg in args]),
        "total": _parse_numbers([arg.total for arg in args]),
        "reserved": _parse_numbers([arg.reserved for arg in args]),
    }
    kept = np.flatnonzero(timed & sized)
    threads = tuple((str(noted[place].pid), str(noted[place].tid)) for place in kept.tolist())
    return Allocations(threads=threads, **{key: column[kept] for key, column in columns.items()}), len(
        noted
    ) - len(kept)


def _infer_kinds(events: Sequence[_Event]) -> UInt8:
    """Return (M,) the kinds of events."""
    categories = [event.cat for event in events]
    try:
        distinct = set(categories)
    except TypeError:
        categories = [category if isinstance(category, str) else None for category in categories]
        distinct = set(categories)
    known = {category: _infer_category_kind(category) for category in distinct}
    kind = np.array(list(map(known.__getitem__, categories)), np.uint8)
    if not all(distinct):
        for row in np.flatnonzero(kind == EventKind.OTHER).tolist():
            if not categories[row]:
                kind[row] = _PLACES.get(str(events[row].pid), EventKind.OTHER)
    return kind


def _infer_category_kind(category: Any) -> EventKind:
    """Return the kind of the events of a category."""
    if not isinstance(category, str):
        return EventKind.OTHER
    name = category.lower()
    return CATEGORIES.get(name) or next(
        (kind for end, kind in _CATEGORY_ENDS.items() if name.endswith(end)), EventKind.OTHER
    )


def _number_texts(texts: Sequence[Any]) -> tuple[list[str], Int32]:
    """Return the distinct texts by first appearance, and (M,) which each is."""
    if set(map(type, texts)) - {str}:
        texts = [text if isinstance(text, str) else str(text) for text in texts]
    codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    return list(codes), np.array(list(map(codes.__getitem__, texts)), np.int32)


def _number_threads(events: Sequence[_Event]) -> tuple[tuple[tuple[str, str], ...], Int32]:
    """Return the distinct threads by first appearance, and (M,) which each event is of."""
    pairs = [(event.pid, event.tid) for event in events]
    try:
        distinct = dict.fromkeys(pairs)
    except TypeError:
        pairs = [(str(pid), str(tid)) for pid, tid in pairs]
        distinct = dict.fromkeys(pairs)
    threads: dict[tuple[str, str], int] = {}
    codes = {(pid, tid): threads.setdefault((str(pid), str(tid)), len(threads)) for pid, tid in distinct}
    return tuple(threads), np.array(list(map(codes.__getitem__, pairs)), np.int32)


def _build_trace(name: str, events: Sequence[_Event]) -> DeviceTrace:
    """Return the trace of events, times, kinds and what the file says as a whole still to be filled in."""
    args = [event.args or _NO_ARGS for event in events]
    numbers = {key: _parse_numbers(list(map(attrgetter(key), args))) for key in _NUMERIC}
    threads, thread = _number_threads(events)
    names, worded = _number_texts([event.name for event in events])
    describes_collective = [arg.collective is not None or arg.group is not None for arg in args]
    communicating = _mark_communication(names, worded) | np.array(describes_collective, np.bool_)
    inputs, input_texts = _number_inputs(args)
    return _make_trace(
        numbers,
        file=name,
        name=worded,
        names=names,
        thread=thread,
        threads=threads,
        grid=_collect_grids(args),
        comm={row: _collect_comm(args[row]) for row in np.flatnonzero(communicating).tolist()},
        inputs=inputs,
        input_texts=input_texts,
    )


def _make_trace(numbers: dict[str, Any], **rest: Any) -> DeviceTrace:
    """Return a trace of numeric fields by name, and of what else it is made of, with times and kinds still to be filled in."""
    external, older = numbers.pop("external"), numbers.pop("external_old")
    count = len(external)
    return DeviceTrace(
        head=Head(),
        kind=np.zeros(count, np.uint8),
        start_ns=np.zeros(count, np.int64),
        duration_ns=np.zeros(count, np.int64),
        external=np.where(external < 0, older, external),
        pid=NONE,
        **numbers,
        **rest,
    )


def _mark_communication(names: Sequence[str], codes: Int32) -> Bool:
    """Return which events (M,) have the name of a call for communication."""
    return mark_names(names, codes, lambda name: name.startswith(_COMM_NAMES))


def _collect_grids(args: Sequence[_Args]) -> Int64:
    """Return (M, 3) the blocks that each kernel was launched with along each dimension, -1 where nothing says it."""
    grids = np.full((len(args), 3), NONE, np.int64)
    known = [row for row, arg in enumerate(args) if isinstance(arg.grid, list) and len(arg.grid) == 3]
    if known:
        numbers = [_parse_numbers([args[row].grid[place] for row in known]) for place in range(3)]
        grids[known] = np.clip(np.stack(numbers, axis=1), NONE, _MOST_BLOCKS)
    return grids


def _number_inputs(args: Sequence[_Args]) -> tuple[Int32, list[tuple[str, str, str]]]:
    """Return which inputs (M,) each event has, -1 where it says nothing, and the texts of distinct ones."""
    # One text for all three, apart by what no JSON holds: what is done for every event is done by no loop of Python.
    joined = list(map(b"\0".join, map(_INPUTS, args)))
    parts = {text: text.split(b"\0") for text in dict.fromkeys(joined)}
    # Where shapes were not recorded, `types` is missing or an empty list.
    known = [text for text, (_, _, types) in parts.items() if len(types) > _EMPTY_LIST]
    codes = dict.fromkeys(parts, NONE) | {text: code for code, text in enumerate(known)}
    texts = [tuple(map(_format_in_one_line, parts[text])) for text in known]
    column = np.array(list(map(codes.__getitem__, joined)), np.int32)
    return column, cast("list[tuple[str, str, str]]", texts)


_INPUTS = attrgetter("values", "dims", "types")


@lru_cache(maxsize=1 << 12)
def _format_in_one_line(raw: bytes) -> str:
    """Return the text of a JSON value without line breaks, which recorders write into lists."""
    return str(msgspec.json.format(raw, indent=0) if b"\n" in raw else raw, "utf-8", "replace")


def _parse_numbers(values: list[Any]) -> Int64:
    """Return (M,) whole numbers, -1 for anything else."""
    if values.count(NONE) == len(values):
        return np.full(len(values), NONE, np.int64)
    numbers, good = parse_integers(
        [NONE if value is None else value for value in values] if None in values else values
    )
    return np.where(good, numbers, NONE)


_COMM_NAMES = ("c10d::", "_c10d_functional::", "c10d_functional::", "gloo:", "nccl:", *OPERATORS)
_COMM_FIELDS = _Args.__struct_fields__[
    _Args.__struct_fields__.index("collective") : _Args.__struct_fields__.index("dims")
]


_COMM_VALUES = attrgetter(*_COMM_FIELDS)


def _collect_comm(args: _Args) -> dict[str, Any]:
    values = zip(_COMM_FIELDS, _COMM_VALUES(args), strict=True)
    facts = {field: value for field, value in values if value is not None}
    for field, raw in (("dims", args.dims), ("types", args.types), ("values", args.values)):
        if len(raw) > _EMPTY_LIST or bytes(raw) not in (b"", b"[]"):
            facts[field] = _decode_repeated(bytes(raw))
    return facts


@lru_cache(maxsize=1 << 12)
def _decode_repeated(raw: bytes) -> Any:
    """Return a value that every step may repeat: the same object then, so that what is worked out of it need be but once."""
    return _anything(raw)


def _find_pid(trace: DeviceTrace) -> int:
    """Return the process id of the first operator."""
    operators = np.flatnonzero(trace.kind == EventKind.OPERATOR)
    pid = _parse_whole(trace.threads[int(trace.thread[operators[0]])][0]) if len(operators) else None
    return NONE if pid is None else pid


def convert_to_ns(
    values: Sequence[Any] | Int64 | Float64, is_present: Bool | None = None
) -> tuple[Int64, Bool]:
    """Return microseconds as (M,) nanoseconds, and which of them (M,) are valid times; only those that are there.

    The fraction is taken apart first: multiplied whole, a time of 2023 would lose its last digit.

    Example:
        >>> convert_to_ns([4348927393528.336, 7, "x"])[0].tolist()
        [4348927393528336, 7000, 0]
    """
    is_present = np.array([True]) if is_present is None else is_present
    try:
        column = np.asarray(values)
        usual = column.dtype in (np.int64, np.float64) and column.ndim == 1
    except (ValueError, OverflowError):
        usual = False
    if not usual:
        column = np.array([_parse_microseconds(value) for value in values], np.float64)
    longest = _LONGEST_NS // 1000
    good = is_present & np.isfinite(column) & (column > -longest) & (column < longest)
    column = np.where(good, column, 0)
    if column.dtype == np.int64:
        return column * 1000, good
    whole = np.floor(column)
    return whole.astype(np.int64) * 1000 + np.rint((column - whole) * 1000).astype(np.int64), good


def _parse_microseconds(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float | str) else np.nan
    except (ValueError, OverflowError):
        return np.nan


def _correlate_by_flow(trace: DeviceTrace, without: Bool, flows: Sequence[_Event], base_ns: int) -> None:
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


# ---------------------------------------------------------------------------------------------------
# Head


def _build_head(content: _Content, base_ns: int | None) -> Head:
    info = content.distributed if isinstance(content.distributed, dict) else {}
    listed = info.get("pg_config")
    groups = (
        [_parse_group(entry) for entry in listed if isinstance(entry, dict)]
        if isinstance(listed, list)
        else []
    )
    devices = content.devices if isinstance(content.devices, list) else []
    rank = _parse_whole(info.get("rank"))
    return Head(
        rank=rank if rank is not None and 0 <= rank <= _LARGEST_RANK else None,
        world_size=_parse_whole(info.get("world_size")),
        backend=str(info.get("backend") or ""),
        host=content.host if isinstance(content.host, str) else "",
        base_ns=base_ns,
        groups=tuple(groups),
        devices=tuple(str(entry.get("name", "")) for entry in devices if isinstance(entry, dict)),
        calls=_parse_noted_calls(content.calls) if base_ns is not None else (),
        has_stacks=content.stacks in (1, True),
    )


def _parse_noted_calls(value: Any) -> tuple[NotedCall, ...]:
    """Return what `studio.collect` wrote of each call; without what is no such entry."""
    calls = []
    for entry in value if isinstance(value, list) else ():
        if (
            isinstance(entry, list)
            and len(entry) in (4, 5)
            and isinstance(entry[1], str)
            and isinstance(entry[3], str)
        ):
            time_ns, number = _parse_whole(entry[0]), _parse_whole(entry[2])
            if time_ns is not None and number is not None and 0 <= time_ns <= _LONGEST_NS:
                size = _parse_whole(entry[4]) if len(entry) > 4 else None
                calls.append(NotedCall(time_ns, entry[1], number, entry[3], NONE if size is None else size))
    return tuple(sorted(calls, key=lambda call: call.time_ns))


def _parse_group(entry: dict[str, Any]) -> Group:
    size = _parse_whole(entry.get("pg_size"))
    ranks = parse_ranks(entry.get("ranks"), size or 0)
    return Group(str(entry.get("pg_name", "")), str(entry.get("pg_desc", "")), ranks, size or len(ranks))


def parse_ranks(value: Any, size: int = 0) -> tuple[int, ...]:
    """Return rank numbers given as a list or as text; of an abbreviated text those that are told, with the size, by an even distance.

    Args:
        value: The list, or its text.
        size: How many ranks there are, 0 where that is not known.

    Example:
        >>> parse_ranks("[0, 2]"), parse_ranks("[0, 1, ..., 7]"), parse_ranks("[0, 2, ..., 6]", 4)
        ((0, 2), (), (0, 2, 4, 6))
    """
    if isinstance(value, str):
        if len(value) >= 1 << 20:
            return ()
        return _complete_ranks(value, size) if "..." in value else _parse_rank_text(value)
    if not isinstance(value, list):
        return ()
    numbers = [_parse_whole(item) for item in value]
    return tuple(number for number in numbers if number is not None and 0 <= number <= _LARGEST_RANK)


@lru_cache(maxsize=1 << 10)
def _complete_ranks(text: str, size: int) -> tuple[int, ...]:
    """Return the ranks of a text that leaves out those in its middle; none where those that are there lie at other distances."""
    begin, _, end = text.partition("...")
    first, last = _parse_rank_text(begin), _parse_rank_text(end)
    if not first or not last or not len(first) + len(last) <= size <= _MOST_RANKS:
        return ()
    distance = first[1] - first[0] if len(first) > 1 else 1
    ranks = tuple(range(first[0], first[0] + distance * size, distance)) if distance > 0 else ()
    return ranks if ranks[: len(first)] == first and ranks[-len(last) :] == last else ()


@lru_cache(maxsize=1 << 10)
def _parse_rank_text(text: str) -> tuple[int, ...]:
    """Return the rank numbers in a text, which every call for communication may repeat."""
    return parse_ranks(re.findall(r"-?[0-9]+", text))


def _parse_whole(value: Any) -> int | None:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    numbers, good = parse_integers([value])
    return int(numbers[0]) if good[0] and not isinstance(value, bool) else None
