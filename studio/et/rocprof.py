"""Read what rocprof v3 records of a process on AMD's devices: its JSON.

Perfetto files of rocprof: `perfetto.py`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from studio.decoding import build_decoder
from studio.distinct import find_distinct
from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.damaged_json import decode_or_recover
from studio.et.findings import build_order_finding
from studio.et.format import DevicePart, Part, Reading
from studio.et.profile_events import Event, Events, RecordedEvents, infer_device_kind
from studio.et.recording import DeviceTrace, EventKind, Head
from studio.trace import NONE, ROCPROF, Finding
from studio.units import format_counted

_GPU = 2
"""What rocprof writes as the type of an agent that is a GPU."""
_APIS = {
    "hip_api": EventKind.RUNTIME,
    "hsa_api": EventKind.RUNTIME,
    "marker_api": EventKind.ANNOTATION,
    "rccl_api": EventKind.OPERATOR,
}
_KERNELS = "kernel_dispatch"
_DEVICE = (_KERNELS, "memory_copy")
_HIP_EVENTS = "hip_event"
_LISTS = (4, 5)
"""Brackets around agents and symbols, and around records and names of operations."""
_COLLECTIVE = re.compile(r"nccl(?!Group|Comm|Get|Mem|RedOp)([A-Z]\w+)")
LIBRARY_KERNEL = re.compile(r"(nccl|rccl)\w*Kernel", re.IGNORECASE)


def sniff(head: bytes) -> bool:
    """Whether `head` starts rocprof's JSON."""
    return head.lstrip()[:1] == b"{" and b'"rocprofiler-sdk-tool"' in head


class _Handle(msgspec.Struct, gc=False):
    handle: int = NONE


class _Correlation(msgspec.Struct, gc=False):
    internal: int = NONE


class _Dispatch(msgspec.Struct, gc=False):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int = NONE


class _Counted(msgspec.Struct, gc=False):
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    start_timestamp: int = NONE
    end_timestamp: int = NONE
    dispatch_info: _Dispatch | None = None


class _Counters(msgspec.Struct, gc=False):
    """Counters of a kernel, which are written with its times."""

    thread_id: int = NONE
    stream_id: _Handle | None = None
    dispatch_data: _Counted | None = None


class _Callbacks(msgspec.Struct, gc=False):
    counter_collection: list[_Counters] = []


class _Record(msgspec.Struct, gc=False):
    kind: int = NONE
    operation: int = NONE
    thread_id: int = NONE
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    start_timestamp: int = NONE
    end_timestamp: int = NONE
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle | None = None
    dst_agent_id: _Handle | None = None
    src_agent_id: _Handle | None = None
    bytes: int = NONE
    agent_id: _Handle | None = None
    hip_event_handle: int = NONE


class _Symbol(msgspec.Struct, gc=False):
    kernel_id: int = NONE
    kernel_name: str = ""
    formatted_kernel_name: str = ""


class _Names(msgspec.Struct, gc=False):
    kind: str = ""
    operations: list[str] = []


class _Message(msgspec.Struct, gc=False):
    key: int = NONE
    value: str = ""


class _Strings(msgspec.Struct, gc=False):
    buffer_records: list[_Names] = []
    marker_api: list[_Message] = []


class _Agent(msgspec.Struct, gc=False):
    id: _Handle = msgspec.field(default_factory=_Handle)
    type: int = NONE
    name: str = ""
    product_name: str = ""


class _Node(msgspec.Struct, gc=False):
    hostname: str = ""


class _Metadata(msgspec.Struct, gc=False):
    node: _Node = msgspec.field(default_factory=_Node)
    pid: int = NONE


class _Process(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []
    buffer_records: dict[str, list[_Record]] = {}
    callback_records: _Callbacks | None = None

    def list_counters(self) -> list[_Counters]:
        """Return the records of counters of kernels."""
        return self.callback_records.counter_collection if self.callback_records else []


class _File(msgspec.Struct):
    processes: list[_Process] = msgspec.field(default_factory=list, name="rocprofiler-sdk-tool")


_file = build_decoder(_File)


def read(reading: Reading) -> list[Part]:
    """Read one file: a rank for each process in it.

    Raises:
        TraceFormatError: It is no JSON of rocprof, or holds no process.
    """
    with pause_collector():
        try:
            content, findings = decode_or_recover(reading.data, _file, reading.name, _LISTS)
        except msgspec.DecodeError as error:
            raise TraceFormatError(
                f"{reading.name}: not as rocprof writes it: {error}.", hint="Record it again with rocprofv3."
            ) from error
        reading.tick(len(reading.data))
        if not content.processes:
            raise TraceFormatError(
                f"{reading.name}: no process in the list 'rocprofiler-sdk-tool'.",
                hint="Record with rocprofv3 --sys-trace --output-format json -- COMMAND.",
            )
        noticed = [*reading.findings, *findings]
        damaged = any(finding.level == "error" for finding in noticed)
        if damaged and not any(
            process.list_counters() or any(process.buffer_records.values()) for process in content.processes
        ):
            raise TraceFormatError(
                f"{reading.name}: cut off before the first record of what ran; only the description of the process is there.",
                hint="Copy or record the file again.",
            )
        count = len(content.processes)
        if count > 1:
            what = f"{reading.name}: {format_counted(count, 'process', 'processes')} in one file do not tell their ranks"
            noticed.append(
                build_order_finding(what, "Give the files of the ranks as they were written.", reading.name)
            )
        parts = [_build_part(process, reading.name, damaged=damaged) for process in content.processes]
        order = sorted(range(count), key=lambda place: list_devices(parts[place].trace))
        places = [(order.index(place), count) if count > 1 else None for place in range(count)]
        return [
            replace(
                part,
                trace=replace(part.trace, head=replace(part.trace.head, place=place)),
                findings=(*(noticed if part is parts[0] else ()), *part.findings),
            )
            for part, place in zip(parts, places, strict=True)
        ]


def list_devices(trace: DeviceTrace) -> list[int]:
    """Return the numbers of the devices that a recording has work of."""
    return [device for device in find_distinct(trace.device[trace.is_device]).tolist() if device != NONE]


def _build_part(process: _Process, name: str, *, damaged: bool) -> DevicePart:
    left = {
        key: len(records)
        for key, records in process.buffer_records.items()
        if records and key not in (*_APIS, *_DEVICE, _HIP_EVENTS)
    }
    counters = process.list_counters()
    if counters and not process.buffer_records.get(_KERNELS):
        process.buffer_records[_KERNELS] = [_read_counted(each) for each in counters]
    elif counters:
        left["counter_collection"] = len(counters)
    events = Events()
    for event in _iterate_events(process):
        events.add(event)
    head = Head(
        host=process.metadata.node.hostname,
        devices=tuple(agent.product_name or agent.name for agent in process.agents if agent.type == _GPU),
        recorder=ROCPROF,
    )
    trace = events.trace(name, head, process.metadata.pid, damaged=damaged)
    return DevicePart(trace, tuple(build_findings(name, events.damaged, left)))


def _read_counted(counters: _Counters) -> _Record:
    """Return the kernel that counters are of, which is recorded nowhere else where counters alone were asked for."""
    counted = counters.dispatch_data or _Counted()
    return _Record(
        thread_id=counters.thread_id,
        correlation_id=counted.correlation_id,
        start_timestamp=counted.start_timestamp,
        end_timestamp=counted.end_timestamp,
        dispatch_info=counted.dispatch_info or _Dispatch(),
        stream_id=counters.stream_id,
    )


def build_findings(name: str, damaged: int, left: dict[str, int]) -> Iterator[Finding]:
    """Yield what reading left out: events without usable times, and records of other kinds."""
    if damaged:
        message = f"{name}: events without a usable time, left out: {damaged:,}."
        yield Finding("warning", "damaged-event", message, file=name)
    if left:
        kinds = ", ".join(f"{key} ({count:,})" for key, count in left.items())
        message = f"{name}: records that are no work of a stream and launch none, left out: {kinds}."
        yield Finding("info", "left-out", message, file=name)


def _iterate_events(process: _Process) -> Iterator[Event]:
    names = _OperationNames(process)
    for key, kind in _APIS.items():
        for record in process.buffer_records.get(key, ()):
            yield Event(
                kind,
                names.of(key, record),
                record.start_timestamp,
                record.end_timestamp - record.start_timestamp,
                (str(process.metadata.pid), str(record.thread_id)),
                record.correlation_id.internal if kind == EventKind.RUNTIME else NONE,
            )
    calls = LibraryCalls(
        [
            (names.of("rccl_api", record), record.thread_id, record.start_timestamp, record.end_timestamp)
            for record in process.buffer_records.get("rccl_api", ())
        ],
        {
            record.correlation_id.internal: (record.thread_id, record.start_timestamp)
            for record in process.buffer_records.get("hip_api", ())
        },
    )
    for key in _DEVICE:
        for record in process.buffer_records.get(key, ()):
            yield _build_device_event(process, record, names.of(key, record), calls)
    yield from _iterate_waits(process, names)


def _iterate_waits(process: _Process, names: _OperationNames) -> Iterator[Event]:
    """Yield what streams wait for: an event that another one recorded."""
    records = process.buffer_records.get(_HIP_EVENTS, ())
    recorded = RecordedEvents()
    for record in records:
        if "RECORD" in names.of(_HIP_EVENTS, record) and record.stream_id is not None:
            recorded.add(record.hip_event_handle, record.correlation_id.internal, record.stream_id.handle)
    for record in records:
        name, correlation = names.of(_HIP_EVENTS, record), record.correlation_id.internal
        awaited = recorded.find_last(record.hip_event_handle, correlation) if "WAIT" in name else None
        if awaited is not None and record.stream_id is not None:
            yield _place_event(
                EventKind.SYNC,
                name,
                record,
                (_find_device(process, [record.agent_id]), record.stream_id.handle),
                wait_record=awaited[0],
                wait_stream=awaited[1],
            )


def _find_device(process: _Process, agents: Sequence[_Handle | None]) -> int:
    """Return the number among the GPUs of the first of some agents that is one, -1 where none is."""
    gpus = [agent.id.handle for agent in process.agents if agent.type == _GPU]
    return next(
        (gpus.index(agent.handle) for agent in agents if agent is not None and agent.handle in gpus), NONE
    )


def _build_device_event(process: _Process, record: _Record, name: str, calls: LibraryCalls) -> Event:
    dispatch = record.dispatch_info
    device = _find_device(
        process, [dispatch.agent_id] if dispatch else [record.dst_agent_id, record.src_agent_id]
    )
    queue = record.stream_id or (dispatch.queue_id if dispatch else None)
    named = LIBRARY_KERNEL.search(name)
    return _place_event(
        EventKind.COPY if dispatch is None else infer_device_kind(name),
        name,
        record,
        (device, queue.handle if queue is not None else NONE),
        bytes=record.bytes,
        comm=calls.facts(record.correlation_id.internal) if named else None,
    )


def _place_event(kind: EventKind, name: str, record: _Record, place: tuple[int, int], **more: Any) -> Event:
    """Return an event of a device and stream, with the times and the correlation of its record, and what `more` is known."""
    device, stream = place
    return Event(
        kind,
        name,
        record.start_timestamp,
        record.end_timestamp - record.start_timestamp,
        (f"device {device}", f"stream {stream}"),
        record.correlation_id.internal,
        stream,
        device,
        **more,
    )


class _OperationNames:
    """Names of records, from the tables of the file."""

    def __init__(self, process: _Process) -> None:
        self._kernels = {
            symbol.kernel_id: symbol.formatted_kernel_name or symbol.kernel_name
            for symbol in process.kernel_symbols
        }
        self._operations = process.strings.buffer_records
        self._messages = {message.key: message.value for message in process.strings.marker_api}

    def of(self, key: str, record: _Record) -> str:
        """Return the name of a record in the list `key`."""
        if record.dispatch_info is not None:
            kernel = record.dispatch_info.kernel_id
            return self._kernels.get(kernel) or f"kernel {kernel}"
        if key == "marker_api" and record.correlation_id.internal in self._messages:
            return self._messages[record.correlation_id.internal]
        if 0 <= record.kind < len(self._operations):
            operations = self._operations[record.kind].operations
            if 0 <= record.operation < len(operations):
                return operations[record.operation]
        return f"{key} {record.operation}"


class _Calls:
    """The calls of one thread, by their start.

    Attributes:
        names, starts, ends: Of each call.
        latest: Of each call the latest end of it and those before it.
        openings: Places of the calls that open a group.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.latest: list[int] = []
        self.openings: list[int] = []

    def add(self, name: str, start: int, end: int) -> None:
        """Add a call that began after all others."""
        if name == "ncclGroupStart":
            self.openings.append(len(self.names))
        self.names.append(name)
        self.starts.append(start)
        self.ends.append(end)
        self.latest.append(max(end, self.latest[-1]) if self.latest else end)

    def around(self, time: int) -> int | None:
        """Return the innermost call that was under way, None where none was."""
        place = bisect_right(self.starts, time) - 1
        while place >= 0 and self.latest[place] >= time:
            if self.ends[place] >= time:
                return place
            place -= 1
        return None

    def find_opening(self, before: int) -> int:
        """Return where the last group was opened before a place, 0 where none was."""
        index = bisect_left(self.openings, before) - 1
        return self.openings[index] if index >= 0 else 0


class LibraryCalls:
    """Calls of the communication library, to tell what a kernel carries out whose name does not say it."""

    def __init__(
        self,
        calls: Sequence[tuple[str, int, int, int]],
        launches: dict[int, tuple[int, int]],
        statements: Mapping[tuple[int, int], dict[str, Any]] | None = None,
        kernels: Iterable[int] = (),
    ) -> None:
        """Keep the calls by thread.

        Args:
            calls: Name, thread, start and end of each call.
            launches: Thread and start of the runtime call with each correlation id.
            statements: What a call says of itself, such as its size, by its thread and start.
            kernels: Correlation ids of the library's kernels, to tell which of a group's calls each carries out.
        """
        self._launches = launches
        self._statements = statements or {}
        self._calls: dict[int, _Calls] = {}
        for name, thread, start, end in sorted(calls, key=lambda call: call[2]):
            self._calls.setdefault(thread, _Calls()).add(name, start, end)
        self._begun: dict[int, list[int]] = {}
        for thread, time in sorted(launches[number] for number in kernels if number in launches):
            self._begun.setdefault(thread, []).append(time)

    def facts(self, correlation: int) -> dict[str, Any] | None:
        """Return what the call around the launch says: a collective, or the only kind that a group of calls holds."""
        if correlation not in self._launches:
            return None
        thread, time = self._launches[correlation]
        calls = self._calls.get(thread)
        place = None if calls is None else calls.around(time)
        if calls is None or place is None:
            return None
        carried = [place]
        if calls.names[place] == "ncclGroupEnd":
            # What began before the launch, since the group was opened.
            last = bisect_right(calls.starts, time)
            carried = list(range(calls.find_opening(last), last))
        carried = [each for each in carried if _COLLECTIVE.fullmatch(calls.names[each])]
        match = _COLLECTIVE.fullmatch(calls.names[carried[0]]) if carried else None
        if match is None or len({calls.names[each] for each in carried}) > 1:
            return None
        stated_facts = [self._statements.get((thread, calls.starts[each]), {}) for each in carried]
        begun = self._begun.get(thread, [])
        before = bisect_left(begun, calls.starts[place])
        among = bisect_right(begun, calls.ends[place]) - before
        if among == len(stated_facts):
            # Each has a kernel of its own.
            stated_facts = [stated_facts[bisect_left(begun, time) - before]]
        return {"collective": match[1], **_join_facts(stated_facts, whole=among == 1)}


def _join_facts(stated_facts: Sequence[dict[str, Any]], *, whole: bool) -> dict[str, Any]:
    """Return what several calls say together: what they agree in, and the sum of their sizes where one kernel is the `whole` of them."""
    joined = {
        key: value
        for key, value in stated_facts[0].items()
        if all(each.get(key) == value for each in stated_facts)
    }
    for size in ("in_elements", "out_elements"):
        sizes = [each.get(size, NONE) for each in stated_facts]
        if len(stated_facts) > 1:
            joined.pop(size, None)
        if (
            len(stated_facts) > 1
            and whole
            and min(sizes) >= 0
            and ("group" in joined or "group" not in stated_facts[0])
        ):
            joined[size] = sum(sizes)
    return joined
