"""Read the databases that rocprofv3 writes by itself since ROCm 7 (rocpd, SQLite): a rank for each process.

Tables of a process end with its identifier; databases that were merged have those of several. Events have a place and times of
their own, or name a track that has the place, or two timestamps, too. Source: ROCm/rocprofiler-sdk, `rocpd_tables.sql`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.database import MAGIC, Database, open_database
from studio.et.findings import build_order_finding
from studio.et.format import DevicePart, Part, Reading
from studio.et.heads import PLACES
from studio.et.profile_events import Event, Events, infer_device_kind
from studio.et.recording import EventKind, Head
from studio.et.records import clean
from studio.et.rocprof import LIBRARY_KERNEL, LibraryCalls, build_findings
from studio.trace import NONE, ROCPROF, Finding
from studio.units import format_counted

_PROCESS, _KERNEL, _COPY, _REGION = (
    f"rocpd_{name}" for name in ("info_process", "kernel_dispatch", "memory_copy", "region")
)
_DESCRIBING = re.compile(
    r"rocpd_(info_\w+|metadata|string|track|timestamp|event|arg|line_info|call_stack|region|kernel_dispatch|memory_copy)"
)
"""Tables that are read, or describe what is; others hold records that are no work of a stream and no call that launches any."""
_KINDS = {
    "HIP": EventKind.RUNTIME,
    "HSA": EventKind.RUNTIME,
    "MARKER": EventKind.ANNOTATION,
    "RCCL": EventKind.OPERATOR,
}
"""What a region is by the first word of its category that is one of these."""
_AGAIN = "Record it again with rocprofv3, or copy it when rocprofv3 has ended."


def sniff(head: bytes) -> bool:
    """Whether `head` starts a database with tables of rocprofv3."""
    return head.startswith(MAGIC) and b"rocpd_" in head


def read(reading: Reading) -> list[Part]:
    """Read a database: a rank for each process that ran something on a device.

    Raises:
        TraceFormatError: The database is damaged, or holds nothing that ran on a device.
    """
    with pause_collector(), open_database(reading, _AGAIN) as database:
        processes = [
            process
            for ending in _list_endings(database)
            for process in _Tables(database, ending).read_processes()
        ]
        reading.tick(len(reading.data))
        return _build_parts(processes, reading, database)


def _list_endings(database: Database) -> list[str]:
    """Return what the names of the tables of each process end with."""
    return sorted({table.removeprefix(_PROCESS) for table in database.tables if table.startswith(_PROCESS)})


@dataclass(slots=True)
class _Process:
    """What a database holds of a process.

    Attributes:
        pid: Its number.
        head: What it says about itself.
        events: What it did.
        left: How many records of other kinds there are.
    """

    pid: int
    head: Head
    events: Events = field(default_factory=Events)
    left: dict[str, int] = field(default_factory=dict)


def _build_parts(processes: Sequence[_Process], reading: Reading, database: Database) -> list[Part]:
    working = [process for process in processes if process.events.devices]
    damaged = bool(database.damage)
    if not working:
        reasons = "; ".join(database.damage.values())
        raise TraceFormatError(
            f"{reading.name}: nothing that ran on a device can be read{f': {clean(reasons)}' if reasons else ''}.",
            hint=_AGAIN if damaged else "Record with rocprofv3 --sys-trace -- COMMAND.",
        )
    working.sort(key=lambda process: (min(process.events.devices), process.pid))
    noticed = [*reading.findings, *database.build_findings()]
    idle = len(processes) - len(working)
    if idle:
        message = (
            f"{reading.name}: {format_counted(idle, 'process', 'processes')} that used no device, left out."
        )
        noticed.append(Finding("info", "left-out", message, file=reading.name))
    if len(working) > 1 and any(process.head.rank is None for process in working):
        what = f"{reading.name}: {format_counted(len(working), 'process', 'processes')} in one database do not tell their ranks"
        hint = "Give the databases of the ranks as they were written, and not merged."
        noticed.append(build_order_finding(what, hint, reading.name))
        for place, process in enumerate(working):
            process.head = replace(process.head, rank=None, world_size=None, place=(place, len(working)))
    return [
        DevicePart(
            process.events.trace(reading.name, process.head, process.pid, damaged=damaged),
            (
                *(noticed if not place else ()),
                *build_findings(reading.name, process.events.damaged, process.left),
            ),
        )
        for place, process in enumerate(working)
    ]


class _Row(NamedTuple):
    """An event of a device or of a thread, whichever layout it was read from; numbers are -1 where none is given.

    Attributes:
        process: The database's number of its process.
        thread, agent, queue, stream: Where it ran.
        start, end: When.
        event: Its entry among the events, which has its correlation.
    """

    process: int
    thread: int
    agent: int
    queue: int
    stream: int
    start: int
    end: int
    event: int


class _Tables:
    """The tables of one ending: those of one process, as a rule."""

    def __init__(self, database: Database, ending: str) -> None:
        self._database, self._ending = database, ending
        self._texts = self._index_texts("rocpd_string", "string")
        self._categories = self._index_texts("rocpd_info_category", "name") or self._texts
        self._stack: dict[int, int] = {}
        """The correlation of each event: the number that a call and what it launched have in common."""
        self._category: dict[int, str] = {}
        self._message: dict[int, str] = {}
        self._read_events()
        self._times = dict(self._iterate("rocpd_timestamp", "id", "value"))
        where = ("pid", "tid", "agent_id", "queue_id", "stream_id")
        self._tracks = {row[0]: row[1:] for row in self._iterate("rocpd_track", "id", *where)}
        self._threads = dict(self._iterate("rocpd_info_thread", "id", "tid"))
        gpus = sorted(
            (_to_number(index), _to_number(number), str(product or name or ""))
            for number, index, kind, product, name in self._iterate(
                "rocpd_info_agent", "id", "absolute_index", "type", "product_name", "name"
            )
            if kind == "GPU"
        )
        self._device_of = {number: place for place, (_, number, _) in enumerate(gpus)}
        self._names = tuple(clean(name) for _, _, name in gpus)
        self._calls: dict[int, list[tuple[str, int, int, int]]] = {}
        self._launches: dict[int, dict[int, tuple[int, int]]] = {}
        self._untimed = 0

    def read_processes(self) -> list[_Process]:
        """Return the processes of these tables with their events."""
        host = next((text for (text,) in self._iterate("rocpd_info_node", "hostname") if text), "")
        processes = {
            _to_number(number): _Process(
                _to_number(pid),
                Head(
                    *_find_place(environment),
                    host=clean(str(host)),
                    devices=self._names,
                    recorder=ROCPROF,
                ),
            )
            for number, pid, environment in self._iterate(_PROCESS, "id", "pid", "environment")
        }
        if not processes:
            return []
        first = next(iter(processes.values()))
        for row, (name,) in self._iterate_events(_REGION, "name_id"):
            self._add_region(processes.get(row.process, first), row, name)
        calls = {
            number: LibraryCalls(self._calls.get(number, []), self._launches.get(number, {}))
            for number in processes
        }
        for row, event in self._iterate_device_events():
            named = LIBRARY_KERNEL.search(event.name) and row.process in calls
            facts = calls[row.process].facts(event.correlation) if named else None
            processes.get(row.process, first).events.add(event._replace(comm=facts))
        first.events.damaged += self._untimed
        for whole in sorted(self._database.tables):
            table = whole.removesuffix(self._ending)
            is_own = whole.endswith(self._ending) and table.startswith("rocpd_")
            if is_own and not _DESCRIBING.fullmatch(table) and (count := self._database.count_rows(whole)):
                first.left[table.removeprefix("rocpd_")] = count
        return list(processes.values())

    def _iterate(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        return self._database.iterate_rows(table + self._ending, *columns)

    def _index_texts(self, table: str, column: str) -> Mapping[int, str]:
        return {
            number: clean(text)
            for number, text in self._iterate(table, "id", column)
            if isinstance(number, int) and isinstance(text, str)
        }

    def _read_events(self) -> None:
        for number, category, stack, more in self._iterate(
            "rocpd_event", "id", "category_id", "stack_id", "extdata"
        ):
            if not isinstance(number, int):
                continue
            self._stack[number] = _to_number(stack)
            self._category[number] = self._categories.get(category, "")
            if isinstance(more, str) and '"message"' in more:
                self._message[number] = _find_text(more, "message")

    def _iterate_events(self, table: str, *columns: str) -> Iterator[tuple[_Row, tuple[Any, ...]]]:
        """Yield each event of a table and its columns besides; those that say no time are counted."""
        where = ("pid", "tid", "agent_id", "queue_id", "stream_id")
        when = ("start", "end", "start_id", "end_id", "track_id", "event_id")
        for row in self._iterate(table, *where, *when, *columns):
            place, (start, end, start_id, end_id, track, event) = row[:5], row[5:11]
            if start is None and end is None:
                start, end = self._times.get(start_id), self._times.get(end_id)
            if track is not None and track in self._tracks:
                place = tuple(
                    of_track if own is None else own
                    for own, of_track in zip(place, self._tracks[track], strict=True)
                )
            if isinstance(start, int) and isinstance(end, int):
                yield _Row(*map(_to_number, (*place, start, end, event))), row[11:]
            else:
                self._untimed += 1

    def _add_region(self, process: _Process, row: _Row, name: Any) -> None:
        """Add a call or a range of a thread; those of other libraries are counted."""
        category = self._category.get(row.event, "")
        kind = next((_KINDS[word] for word in category.upper().split("_") if word in _KINDS), None)
        if kind is None:
            key = category or "regions without category"
            process.left[key] = process.left.get(key, 0) + 1
            return
        text = self._message.get(row.event) or self._texts.get(name, "")
        thread = _to_number(self._threads.get(row.thread, row.thread))
        correlation = self._stack.get(row.event, NONE) if kind == EventKind.RUNTIME else NONE
        if kind == EventKind.OPERATOR:
            self._calls.setdefault(row.process, []).append((text, thread, row.start, row.end))
        if kind == EventKind.RUNTIME:
            self._launches.setdefault(row.process, {})[correlation] = thread, row.start
        lane = (str(process.pid), str(thread))
        process.events.add(Event(kind, text, row.start, row.end - row.start, lane, correlation))

    def _iterate_device_events(self) -> Iterator[tuple[_Row, Event]]:
        """Yield kernels and copies."""
        symbols = {
            number: clean(str(shown or mangled or ""))
            for number, shown, mangled in self._iterate(
                "rocpd_info_kernel_symbol", "id", "display_name", "kernel_name"
            )
        }
        for row, (kernel,) in self._iterate_events(_KERNEL, "kernel_id"):
            name = symbols.get(kernel) or f"kernel {_to_number(kernel)}"
            yield row, self._build_device_event(row, infer_device_kind(name), name)
        for row, (number, target, source, size) in self._iterate_events(
            _COPY, "name_id", "dst_agent_id", "src_agent_id", "size"
        ):
            name = self._texts.get(number) or "memory copy"
            event = self._build_device_event(row, EventKind.COPY, name, (target, source))
            yield row, event._replace(bytes=_to_number(size))

    def _build_device_event(self, row: _Row, kind: EventKind, name: str, ends: tuple[Any, ...] = ()) -> Event:
        devices = (self._device_of[agent] for agent in (*ends, row.agent) if agent in self._device_of)
        device = next(devices, NONE)
        # Work that no stream of HIP was given has its queue alone.
        stream = row.stream if row.stream != NONE else row.queue
        place = (f"device {device}", f"stream {stream}")
        correlation = self._stack.get(row.event, NONE)
        return Event(kind, name, row.start, row.end - row.start, place, correlation, stream, device)


def _to_number(value: Any) -> int:
    return value if isinstance(value, int) else NONE


def _find_text(text: str, key: str) -> str:
    """Return the text that a JSON object has under a key, "" where it has none."""
    try:
        value = json.loads(text).get(key)
    except (ValueError, AttributeError, RecursionError):
        return ""
    return clean(value) if isinstance(value, str) else ""


def _find_place(environment: Any) -> tuple[int | None, int | None]:
    """Return the rank and the number of ranks that a launcher gave to a process, None where none did."""
    for rank, size in PLACES:
        numbers = [
            _find_text(environment, name) if isinstance(environment, str) else "" for name in (rank, size)
        ]
        if all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
            own, every = map(int, numbers)
            if own < every and every > 1:
                return own, every
    return None, None
