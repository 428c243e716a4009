"""Read what Nsight Systems exported of its recordings as SQLite: a rank for each process that used a device.

nsys export --type sqlite report.nsys-rep
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.database import MAGIC, Database, open_database
from studio.et.device_order import build_order_finding
from studio.et.format import DevicePart, Part, Reading
from studio.et.profile_events import Event, Events
from studio.et.recording import DEVICE_KINDS, EventKind, Head
from studio.et.records import clean
from studio.et.rocprof import LibraryCalls, build_findings
from studio.trace import NONE, Finding
from studio.units import format_counted

RECORDER = "Nsight Systems export"

_KEYS = (b"CUPTI_", b"NVTX_", b"StringIds", b"TARGET_INFO_", b"META_DATA_EXPORT", b"ENUM_CUDA", b"ENUM_NSYS")
_KERNEL, _GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_COPY, _FILL = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_CALL, _RANGE = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_EVENTS = (_KERNEL, _GRAPH, _COPY, _FILL, _CALL, _RANGE)
_RANGE_TYPES = (59, 60)
"""NVTX events with a beginning and an end: those of a stack and those of a process."""
_KEPT_ASIDE = (
    "StringIds",
    "TARGET_INFO_",
    "META_DATA_",
    "ENUM_",
    "ANALYSIS_",
    "sqlite_",
    "EXPORT_",
    "PROCESSES",
    "ThreadNames",
)
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_VERSION = re.compile(r"_(ptsz|ptds)?(_v\d+)?$|_v\d+$")
_COLLECTIVE = re.compile(r"nccl(?!Group|Comm|Get|Mem|RedOp)[A-Z]\w+")
_LIBRARY_KERNEL = re.compile(r"nccl\w*(Kernel|Func)", re.IGNORECASE)
_EXPORT = "Export the report again: nsys export --type sqlite REPORT.nsys-rep."


def sniff(head: bytes) -> bool:
    """Whether `head` starts a database with tables of Nsight Systems."""
    return head.startswith(MAGIC) and any(key in head for key in _KEYS)


def read(reading: Reading) -> list[Part]:
    """Read an export: a rank for each process that ran something on a device.

    Raises:
        TraceFormatError: The database is damaged, or holds nothing that ran on a device.
    """
    with pause_collector(), open_database(reading, _EXPORT) as database:
        return _Export(database, reading).parts()


class _Export:
    """One database being read."""

    def __init__(self, database: Database, reading: Reading) -> None:
        self.database, self.reading, self.name = database, reading, reading.name
        self.tables = database.tables
        if not self.tables & set(_EVENTS):
            raise TraceFormatError(
                f"{self.name}: none of the tables {', '.join(_EVENTS)}; its tables are "
                f"{', '.join(sorted(self.tables)[:6]) or 'none'}.",
                hint="Record with nsys profile --trace=cuda,nvtx, and export the report as sqlite.",
            )
        self.words = self._index_words()

    def parts(self) -> list[Part]:
        """Return a rank for each process with work on a device, the others' host events counted."""
        events: dict[int, Events] = {}
        untimed = 0
        for process, event in self._iterate_events():
            if event is None:
                untimed += 1
            else:
                events.setdefault(process, Events()).add(event)
        working = {
            process: process_events for process, process_events in events.items() if process_events.devices
        }
        if not working and self.database.damage:
            reasons = "; ".join(self.database.damage.values())
            raise TraceFormatError(
                f"{self.name}: nothing that ran on a device can be read: {reasons}.", hint=_EXPORT
            )
        if not working:
            raise TraceFormatError(
                f"{self.name}: nothing ran on a device.",
                hint="Record with nsys profile --trace=cuda,nvtx while the job runs.",
            )
        order = sorted(working, key=lambda process: (min(working[process].devices), process))
        idle = sum(
            len(process_events.rows) for process, process_events in events.items() if process not in working
        )
        heads = [
            self._build_head(working[process], place if len(order) > 1 else None)
            for place, process in enumerate(order)
        ]
        noticed = [*self.reading.findings, *self._build_findings(order, idle, untimed)]
        self.reading.tick(len(self.reading.data))
        return [
            DevicePart(
                working[process].trace(
                    self.name,
                    heads[place],
                    process,
                    damaged=bool(self.database.damage),
                ),
                (*(noticed if not place else ()), *build_findings(self.name, working[process].damaged, {})),
            )
            for place, process in enumerate(order)
        ]

    def _build_findings(self, order: list[int], idle: int, untimed: int) -> Iterator[Finding]:
        if len(order) > 1:
            what = f"{self.name}: {format_counted(len(order), 'process', 'processes')} in one report"
            yield build_order_finding(what, "Record each rank into a report of its own.", self.name)
        if idle:
            message = f"{self.name}: events of processes that used no device, left out: {idle:,}."
            yield Finding("info", "left-out", message, file=self.name)
        if untimed:
            message = f"{self.name}: events without a usable time, left out: {untimed:,}."
            yield Finding("warning", "damaged-event", message, file=self.name)
        left = {
            table: count
            for table in sorted(self.tables)
            if table not in _EVENTS
            and not table.startswith(_KEPT_ASIDE)
            and (count := self.database.count_rows(table))
        }
        yield from self.database.build_findings()
        if left:
            kinds = ", ".join(f"{table} ({count:,})" for table, count in left.items())
            message = f"{self.name}: records that are no work of a stream and launch none, left out: {clean(kinds)}."
            yield Finding("info", "left-out", message, file=self.name)

    def _build_head(self, events: Events, place: int | None) -> Head:
        names = {
            number: name
            for number, name in self._list_pairs("TARGET_INFO_GPU", "id", "name")
            if isinstance(number, int)
        }
        host = next(
            (
                str(value)
                for key, value in self._list_pairs("TARGET_INFO_SYSTEM_ENV", "name", "value")
                if key == "Hostname"
            ),
            "",
        )
        base = next(
            (
                value
                for value, _ in self._list_pairs("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", "utcEpochNs")
            ),
            None,
        )
        return Head(
            rank=place,
            backend="nccl",
            host=clean(host),
            base_ns=base if isinstance(base, int) and 0 <= base < 2**62 else None,
            devices=tuple(clean(str(names[device])) for device in sorted(events.devices) if device in names),
            recorder=RECORDER,
        )

    # Tables

    def _list_pairs(self, table: str, key: str, value: str) -> list[tuple[Any, Any]]:
        return [(row[0], row[1]) for row in self.database.iterate_rows(table, key, value)]

    def _index_words(self) -> Mapping[int, str]:
        return {
            number: clean(text)
            for number, text in self.database.iterate_rows("StringIds", "id", "value")
            if isinstance(number, int) and isinstance(text, str)
        }

    def _find_word(self, *numbers: Any) -> str:
        """Return the first text that there is under one of these numbers."""
        return next(
            (self.words[number] for number in numbers if isinstance(number, int) and number in self.words), ""
        )

    # Events

    def _iterate_events(self) -> Iterator[tuple[int, Event | None]]:
        """Yield process and event of every row, None in place of an event without times."""
        launches: dict[int, dict[int, tuple[int, int]]] = {}
        calls: dict[int, list[tuple[str, int, int, int]]] = {}
        yield from self._iterate_ranges(calls)
        yield from self._iterate_calls(launches)
        known = {
            process: LibraryCalls(calls.get(process, []), launches.get(process, {}))
            for process in calls.keys() | launches.keys()
        }
        yield from self._iterate_kernels(known)
        yield from self._iterate_copies()

    def _iterate_ranges(
        self, calls: dict[int, list[tuple[str, int, int, int]]]
    ) -> Iterator[tuple[int, Event | None]]:
        """Yield the ranges of the program, those of the communication library as its calls."""
        columns = ("start", "end", "text", "textId", "globalTid", "eventType")
        for start, end, text, number, tid, kind in self.database.iterate_rows(_RANGE, *columns):
            if kind is not None and kind not in _RANGE_TYPES:
                continue
            name = clean(text) if isinstance(text, str) and text else self._find_word(number)
            process, thread = _split_thread(tid)
            library = _COLLECTIVE.fullmatch(name) is not None
            event = _build_event(
                EventKind.OPERATOR if library else EventKind.ANNOTATION, name, start, end, tid
            )
            if name.startswith("nccl") and event is not None:
                calls.setdefault(process, []).append((name, thread, start, end))
            yield process, event

    def _iterate_calls(
        self, launches: dict[int, dict[int, tuple[int, int]]]
    ) -> Iterator[tuple[int, Event | None]]:
        """Yield the calls of CUDA."""
        for start, end, number, correlation, tid in self.database.iterate_rows(
            _CALL, "start", "end", "nameId", "correlationId", "globalTid"
        ):
            process, thread = _split_thread(tid)
            event = _build_event(
                EventKind.RUNTIME, _VERSION.sub("", self._find_word(number)), start, end, tid
            )
            if event is not None and isinstance(correlation, int):
                launches.setdefault(process, {})[correlation] = thread, start
                event = event._replace(correlation=correlation)
            yield process, event

    def _iterate_kernels(self, known: Mapping[int, LibraryCalls]) -> Iterator[tuple[int, Event | None]]:
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
        for *row, long, short, mangled in self.database.iterate_rows(
            _KERNEL, *columns, "demangledName", "shortName", "mangledName"
        ):
            name = self._find_word(long, short, mangled) or "kernel"
            process = _get_process(row[5])
            calls = known.get(process)
            facts = calls.facts(row[4]) if calls is not None and _LIBRARY_KERNEL.search(name) else None
            yield process, _build_device_event(EventKind.KERNEL, name, row, comm=facts)
        for *row, graph in self.database.iterate_rows(_GRAPH, *columns, "graphId"):
            yield _get_process(row[5]), _build_device_event(EventKind.KERNEL, f"CUDA graph {graph}", row)

    def _iterate_copies(self) -> Iterator[tuple[int, Event | None]]:
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes")
        for *row, kind in self.database.iterate_rows(_COPY, *columns, "copyKind"):
            yield (
                _get_process(row[5]),
                _build_device_event(EventKind.COPY, f"Memcpy {_COPY_KINDS.get(kind, kind)}", row),
            )
        for filled in self.database.iterate_rows(_FILL, *columns):
            yield _get_process(filled[5]), _build_device_event(EventKind.FILL, "Memset", list(filled))


def _split_thread(number: Any) -> tuple[int, int]:
    """Return process and thread that Nsight's number of a thread stands for."""
    number = number if isinstance(number, int) else 0
    return number >> 24 & 0xFFFFFF, number & 0xFFFFFF


def _get_process(number: Any) -> int:
    return _split_thread(number)[0]


def _build_event(kind: EventKind, name: str, start: Any, end: Any, tid: Any) -> Event | None:
    """Return an event of the host, None where it has no times."""
    if not isinstance(start, int) or not isinstance(end, int) or end < start:
        return None
    process, thread = _split_thread(tid)
    return Event(kind, name, start, end - start, (str(process), str(thread)))


def _build_device_event(
    kind: EventKind, name: str, row: list[Any], comm: dict[str, Any] | None = None
) -> Event | None:
    """Return an event of a device, None where it has no times.

    Args:
        kind: What it is.
        name: Its name.
        row: Start, end, device, stream, correlation, process, and bytes where it has any.
        comm: What is known about the communication it is.
    """
    start, end, *numbers = row
    if not isinstance(start, int) or not isinstance(end, int) or end < start:
        return None
    assert kind in DEVICE_KINDS
    device, stream, correlation, _, *size = (
        number if isinstance(number, int) else NONE for number in numbers
    )
    place = (f"device {device}", f"stream {stream}")
    moved = size[0] if size else NONE
    return Event(kind, name, start, end - start, place, correlation, stream, device, moved, comm)
