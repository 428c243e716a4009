"""Read what Nsight Systems exported of its recordings as SQLite: a rank for each process that used a device.

nsys export --type sqlite report.nsys-rep
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.database import MAGIC, Database, open_database
from studio.et.findings import build_order_finding
from studio.et.format import DevicePart, Part, Reading
from studio.et.nvtx_payloads import Payload, PayloadReader, build_facts
from studio.et.profile_events import Event, Events, RecordedEvents
from studio.et.rank_names import parse_rank_and_prefix, says_rank
from studio.et.recording import DEVICE_KINDS, EventKind, Group, Head
from studio.et.records import clean
from studio.et.rocprof import LibraryCalls, build_findings
from studio.trace import NONE, NSIGHT, Finding
from studio.units import format_counted

_KEYS = (b"CUPTI_", b"NVTX_", b"StringIds", b"TARGET_INFO_", b"META_DATA_EXPORT", b"ENUM_CUDA", b"ENUM_NSYS")
_KERNEL, _GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_COPY, _FILL = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_CALL, _RANGE = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_WAIT, _RECORD = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
_EVENTS = (_KERNEL, _GRAPH, _COPY, _FILL, _CALL, _RANGE, _WAIT, _RECORD)
_RANGE_TYPES = (59, 60)
"""NVTX events with a beginning and an end: those of a stack and those of a process."""
_NAMING_TYPES = (33, 39, 75, 76)
"""NVTX events that only name categories, threads and domains."""
_WAITS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_EVENT_WAITS = (1, 2)
_NO_STREAM = 2**32 - 1
_DIAGNOSTICS, _SEVERITIES = "DIAGNOSTIC_EVENT", "ENUM_DIAGNOSTIC_SEVERITY_LEVEL"
_SERIOUS = re.compile(r"warn|error|fatal", re.IGNORECASE)
_MOST_SHOWN = 8
"""Messages of the recorder that are shown."""
_KEPT_ASIDE = (
    "StringIds",
    "TARGET_INFO_",
    "NVTX_PAYLOAD_",
    "NVTX_SCOPES",
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


@dataclass(slots=True)
class _Library:
    """What a process called of the communication library.

    Attributes:
        calls: Name, thread, start and end of each call.
        payloads: What calls say, by thread and start.
        communicators: What it says of each communicator where that is made, by its number.
    """

    calls: list[tuple[str, int, int, int]] = field(default_factory=list)
    payloads: dict[tuple[int, int], Payload] = field(default_factory=dict)
    communicators: dict[int, Payload] = field(default_factory=dict)

    def add_communicator(self, payload: Payload) -> None:
        """Note a communicator that was made; one that nothing numbers counts as another than all others."""
        number = payload.group or -1 - len(self.communicators)
        known = self.communicators.setdefault(number, payload)
        if known.place != payload.place:
            # Each device of the process has a place of its own in it.
            self.communicators[number] = replace(known, place=NONE)

    def find_world(self) -> Payload | None:
        """Return the largest communicator that was made: it stands for the job."""
        return max(self.communicators.values(), key=lambda payload: payload.members, default=None)

    def index_facts(self, world: Payload | None) -> dict[tuple[int, int], dict[str, Any]]:
        """Return what calls say as facts of communication, by thread and start."""
        names = {(thread, start): name for name, thread, start, _ in self.calls}
        everyone = 0 if world is None else world.members
        facts = {}
        for key, payload in self.payloads.items():
            communicator = self.communicators.get(payload.group)
            if not payload.group and len(self.communicators) == 1:
                [communicator] = self.communicators.values()
            members = communicator.members if communicator is not None else 0
            is_world = 0 < members == everyone
            facts[key] = build_facts(names[key], payload, members, is_world=is_world)
        return facts

    def list_groups(self, world: Payload | None) -> tuple[Group, ...]:
        """Return the communicators; of those as large as the job the ranks are known."""
        return tuple(
            Group(
                f"{number:#x}",
                "",
                tuple(range(communicator.members))
                if world is not None
                and (communicator.members, communicator.place) == (world.members, world.place)
                else (),
                communicator.members,
            )
            for number, communicator in self.communicators.items()
            if number > 0
        )


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
        self.payloads = PayloadReader(database)
        self.libraries: dict[int, _Library] = {}
        self.marks = 0

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
        worlds = self._find_worlds(order)
        heads = [
            self._build_head(
                working[process],
                process,
                worlds.get(process),
                (place, len(order)) if len(order) > 1 else None,
            )
            for place, process in enumerate(order)
        ]
        noticed = [
            *self.reading.findings,
            *self._build_findings(order, idle, untimed, is_told=bool(worlds)),
        ]
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

    def _find_worlds(self, order: list[int]) -> dict[int, Payload]:
        """Return the communicator of all ranks for each process; none where they are of different ones, or a name says otherwise."""
        worlds = {
            process: world
            for process in order
            if process in self.libraries
            and (world := self.libraries[process].find_world()) is not None
            and 0 <= world.place < world.members
        }
        places = {world.place for world in worlds.values()}
        sizes = {world.members for world in worlds.values()}
        if len(worlds) < len(order) or len(places) < len(order) or len(sizes) > 1:
            return {}
        # A report that is named after another rank holds no more than a part of the job's communicators.
        named = parse_rank_and_prefix(self.name)[1] if says_rank(self.name) and len(order) == 1 else None
        return worlds if named is None or {named} == places else {}

    def _build_findings(
        self, order: list[int], idle: int, untimed: int, *, is_told: bool
    ) -> Iterator[Finding]:
        if len(order) > 1 and not is_told:
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
            and (table != _DIAGNOSTICS or _SEVERITIES not in self.tables)
            and (count := self.database.count_rows(table))
        }
        left |= {"marks and other events of NVTX": self.marks} if self.marks else {}
        yield from self._build_recorder_findings()
        libraries = self.libraries.values()
        if self.payloads.has_sizes and libraries and not any(library.payloads for library in libraries):
            message = f"{self.name}: the export lacks the payloads of NVTX ranges, in which NCCL writes sizes, comm groups and ranks."
            hint = (
                "Export it again with them: nsys export --type sqlite --include-blobs=true REPORT.nsys-rep."
            )
            yield Finding("info", "no-payloads", message, hint, file=self.name)
        yield from self.database.build_findings()
        if left:
            kinds = ", ".join(f"{table} ({count:,})" for table, count in left.items())
            message = f"{self.name}: records that are no work of a stream and launch none, left out: {clean(kinds)}."
            yield Finding("info", "left-out", message, file=self.name)

    def _build_recorder_findings(self) -> Iterator[Finding]:
        """Yield what the recorder says went wrong, each message once."""
        serious = {
            number
            for number, name in self._list_pairs(_SEVERITIES, "id", "name")
            if isinstance(name, str) and _SERIOUS.search(name)
        }
        messages = dict.fromkeys(
            clean(text)
            for text, severity in self._list_pairs(_DIAGNOSTICS, "text", "severity")
            if severity in serious and isinstance(text, str)
        )
        for message in list(messages)[:_MOST_SHOWN]:
            yield Finding(
                "warning", "recorder-error", f"{self.name}: the recorder says: {message}", file=self.name
            )
        if len(messages) > _MOST_SHOWN:
            message = f"{self.name}: {len(messages) - _MOST_SHOWN:,} more messages of the recorder."
            yield Finding("warning", "recorder-error", message, file=self.name)

    def _build_head(
        self, events: Events, process: int, world: Payload | None, place: tuple[int, int] | None
    ) -> Head:
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
            rank=None if world is None else world.place,
            world_size=None if world is None else world.members,
            backend="nccl",
            host=clean(host),
            base_ns=base if isinstance(base, int) and 0 <= base < 2**62 else None,
            devices=tuple(clean(str(names[device])) for device in sorted(events.devices) if device in names),
            groups=self.libraries[process].list_groups(world) if process in self.libraries else (),
            recorder=NSIGHT,
            place=place,
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
        yield from self._iterate_ranges()
        yield from self._iterate_calls(launches)
        kernels: dict[int, list[int]] = {}
        # Only sizes need to know which of them are of one group of calls.
        is_told = any(library.payloads for library in self.libraries.values())
        for name, row, _ in self._iterate_kernel_rows() if is_told else ():
            if isinstance(row[4], int) and _LIBRARY_KERNEL.search(name):
                kernels.setdefault(_get_process(row[5]), []).append(row[4])
        known = {}
        for process in self.libraries.keys() | launches.keys():
            library = self.libraries.get(process, _Library())
            known_facts = library.index_facts(library.find_world())
            known[process] = LibraryCalls(
                library.calls, launches.get(process, {}), known_facts, kernels.get(process, ())
            )
        yield from self._iterate_kernels(known)
        yield from self._iterate_copies()
        yield from self._iterate_waits()

    def _iterate_ranges(self) -> Iterator[tuple[int, Event | None]]:
        """Yield the ranges of the program, those of the communication library as its calls."""
        columns = ("start", "end", "text", "textId", "globalTid", "eventType", "binaryData")
        for start, end, text, number, tid, kind, raw in self.database.iterate_rows(_RANGE, *columns):
            if kind is not None and kind not in _RANGE_TYPES:
                self.marks += kind not in _NAMING_TYPES
                continue
            name = clean(text) if isinstance(text, str) and text else self._find_word(number)
            process, thread = _split_thread(tid)
            library = _COLLECTIVE.fullmatch(name) is not None
            event = _build_event(
                EventKind.OPERATOR if library else EventKind.ANNOTATION, name, start, end, tid
            )
            if name.startswith("nccl") and event is not None:
                self._add_library_call(process, (name, thread, start, end), self.payloads.read(raw))
            yield process, event

    def _add_library_call(
        self, process: int, call: tuple[str, int, int, int], payload: Payload | None
    ) -> None:
        library = self.libraries.setdefault(process, _Library())
        library.calls.append(call)
        if payload is not None:
            library.payloads[call[1], call[2]] = payload
            if payload.members > 0:
                library.add_communicator(payload)

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

    def _iterate_kernel_rows(self) -> Iterator[tuple[str, list[Any], tuple[Any, ...]]]:
        """Yield name, place and time, and grid of each kernel."""
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
        for *row, x, y, z, long, short, mangled in self.database.iterate_rows(
            _KERNEL, *columns, "gridX", "gridY", "gridZ", "demangledName", "shortName", "mangledName"
        ):
            yield self._find_word(long, short, mangled) or "kernel", row, (x, y, z)

    def _iterate_kernels(self, known: Mapping[int, LibraryCalls]) -> Iterator[tuple[int, Event | None]]:
        for name, row, blocks in self._iterate_kernel_rows():
            process = _get_process(row[5])
            calls = known.get(process)
            facts = calls.facts(row[4]) if calls is not None and _LIBRARY_KERNEL.search(name) else None
            yield process, _build_device_event(EventKind.KERNEL, name, row, comm=facts, grid=blocks)
        columns = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
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

    def _iterate_waits(self) -> Iterator[tuple[int, Event | None]]:
        """Yield the calls that wait: for a stream, for all of a device, or, as a stream or as the host, for an event."""
        columns = ("correlationId", "streamId", "globalPid", "contextId", "eventId", "eventSyncId")
        by_number: dict[tuple[int, Any], tuple[int, int]] = {}
        by_event = RecordedEvents()
        for correlation, stream, pid, context, event, number in self.database.iterate_rows(_RECORD, *columns):
            if isinstance(correlation, int) and isinstance(stream, int):
                record = correlation, _get_stream(stream)
                by_event.add((_get_process(pid), context, event), *record)
                if isinstance(number, int) and number > 0:
                    by_number[_get_process(pid), number] = record
        place = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
        for *row, context, event, number, kind in self.database.iterate_rows(
            _WAIT, *place, *columns[3:], "syncType"
        ):
            process = _get_process(row[5])
            wait = _build_device_event(EventKind.SYNC, _WAITS.get(kind, f"Sync {kind}"), row)
            if wait is not None:
                stream = _get_stream(wait.stream)
                wait = wait._replace(stream=stream, thread=(f"device {wait.device}", f"stream {stream}"))
                awaited = None
                if kind in _EVENT_WAITS:
                    last = by_event.find_last((process, context, event), wait.correlation)
                    awaited = by_number.get((process, number), last)
                if awaited is not None:
                    wait = wait._replace(wait_record=awaited[0], wait_stream=awaited[1])
            yield process, wait


def _split_thread(number: Any) -> tuple[int, int]:
    """Return process and thread that Nsight's number of a thread stands for."""
    number = number if isinstance(number, int) else 0
    return number >> 24 & 0xFFFFFF, number & 0xFFFFFF


def _get_process(number: Any) -> int:
    return _split_thread(number)[0]


def _get_stream(number: int) -> int:
    """Return a stream's number, -1 where CUPTI writes that there is none."""
    return number if 0 <= number < _NO_STREAM else NONE


def _build_event(kind: EventKind, name: str, start: Any, end: Any, tid: Any) -> Event | None:
    """Return an event of the host, None where it has no times."""
    if not isinstance(start, int) or not isinstance(end, int) or end < start:
        return None
    process, thread = _split_thread(tid)
    return Event(kind, name, start, end - start, (str(process), str(thread)))


def _build_device_event(
    kind: EventKind,
    name: str,
    row: list[Any],
    comm: dict[str, Any] | None = None,
    grid: tuple[Any, ...] = (),
) -> Event | None:
    """Return an event of a device, None where it has no times.

    Args:
        kind: What it is.
        name: Its name.
        row: Start, end, device, stream, correlation, process, and bytes where it has any.
        comm: What is known about the communication it is.
        grid: How many blocks a kernel has along each dimension.
    """
    start, end, *numbers = row
    if not isinstance(start, int) or not isinstance(end, int) or end < start:
        return None
    assert kind in (*DEVICE_KINDS, EventKind.SYNC)
    device, stream, correlation, _, *size = (
        number if isinstance(number, int) else NONE for number in numbers
    )
    place = (f"device {device}", f"stream {stream}")
    moved = size[0] if size else NONE
    known = grid if grid and all(isinstance(each, int) and 0 < each < 2**31 for each in grid) else None
    blocks = (NONE, NONE, NONE) if known is None else (known[0], known[1], known[2])
    return Event(
        kind,
        name,
        start,
        end - start,
        place,
        correlation,
        stream,
        device,
        moved,
        comm,
        grid=blocks,
    )
