"""Read what the profiler of JAX and TensorFlow (XLA) records: `.xplane.pb`, and its JSON for the trace viewer.

Both hold planes (a host or a device) of lines (a thread or a stream) of events with named values. A line that repeats
what others hold in another grouping (steps, modules, scopes) is left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from studio.decoding import decoder
from studio.errors import TraceFormatError
from studio.et import xla
from studio.et.collector import collector_paused
from studio.et.format import DevicePart, Part, Reading
from studio.et.kineto import times_ns
from studio.et.mend import decode_mended
from studio.et.profile_events import Event, Events, device_kind
from studio.et.recording import EventKind, Head
from studio.et.rocprof import findings_of
from studio.et.varints import field_kinds
from studio.trace import NONE, STEP, Finding

RECORDER = "JAX (XLA) recording"
_DEVICE = re.compile(r"/device:([A-Za-z_]+):([0-9]{1,9})")
_STREAM = re.compile(r"Stream #([0-9]{1,18})")
_RUNTIME = re.compile(r"(cu|cuda|hip|hsa_)[A-Z]\w*")
_BYTES = re.compile(r"\bsize:([0-9]{1,18})")
_PLANE_NAME = re.compile(rb"/(host|device|custom)|Task Environment|#")
_OPERATIONS = ("XLA Ops", "Async XLA Ops")
"""Lines of a device without streams that hold what it did; the first by time, the others beside it."""
_LINE = {
    "id": (1, "INT64"),
    "name": (2, "STRING"),
    "timestamp_ns": (3, "INT64"),
    "events": (4, "repeated XEvent"),
    "display_name": (11, "STRING"),
}
_MESSAGES = {
    "XSpace": {
        "planes": (1, "repeated XPlane"),
        "errors": (2, "repeated STRING"),
        "hostnames": (4, "repeated STRING"),
    },
    "XPlane": {
        "id": (1, "INT64"),
        "name": (2, "STRING"),
        "lines": (3, "repeated XLine"),
        "event_metadata": (4, "repeated EventEntry"),
        "stat_metadata": (5, "repeated StatEntry"),
        "stats": (6, "repeated XStat"),
    },
    "EventEntry": {"key": (1, "INT64"), "value": (2, "XEventMetadata")},
    "StatEntry": {"key": (1, "INT64"), "value": (2, "XStatMetadata")},
    "XLine": _LINE,
    "XEvent": {
        "metadata_id": (1, "INT64"),
        "offset_ps": (2, "INT64"),
        "duration_ps": (3, "INT64"),
        "stats": (4, "repeated XStat"),
        "occurrences": (5, "INT64"),
    },
    "XStat": {
        "metadata_id": (1, "INT64"),
        "double_value": (2, "DOUBLE"),
        "uint64_value": (3, "UINT64"),
        "int64_value": (4, "INT64"),
        "str_value": (5, "BYTES"),
        "bytes_value": (6, "BYTES"),
        "ref_value": (7, "UINT64"),
    },
    "XEventMetadata": {
        "id": (1, "INT64"),
        "name": (2, "BYTES"),
        "display_name": (4, "BYTES"),
        "stats": (5, "repeated XStat"),
    },
    "XStatMetadata": {"id": (1, "INT64"), "name": (2, "BYTES")},
}
"""What is read of the schema `xplane.proto`; texts as bytes, since they may hold anything."""


@lru_cache(maxsize=1)
def messages() -> dict[str, Any]:
    """Return the message classes of the schema."""
    from studio.et.schema import message_classes

    return message_classes("xplane", _MESSAGES)


def sniff(head: bytes) -> bool:
    """Whether `head` starts an XSpace: a message whose first is a plane with a name."""
    kinds = field_kinds(head, b"\n")
    name = kinds.get(2)
    return isinstance(name, bytes) and _PLANE_NAME.match(name) is not None


def sniff_json(head: bytes) -> bool:
    """Whether `head` starts a file for the trace viewer: processes that are called as planes are."""
    return (
        head.lstrip()[:1] == b"{"
        and b'"traceEvents"' in head
        and re.search(rb'"name"\s*:\s*"/(device:[A-Za-z_]+:[0-9]+|host:)', head) is not None
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a plane, in either form of file.

    Attributes:
        plane, name, number: Its plane's name, and its own name and number.
        events: Name, start, duration and values of each event.
    """

    plane: str
    name: str
    number: int
    events: Iterable[tuple[str, int, int, dict[str, Any]]]


@dataclass(slots=True)
class _Process:
    """What a file says so far.

    Attributes:
        events: Its events.
        left: Lines left out: their names → events in them.
        devices: Names of the device planes with events.
        replicas: Devices that take part in the program, as far as known.
    """

    events: Events = field(default_factory=Events)
    left: dict[str, int] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    replicas: int = 0

    def add(self, lines: Iterable[_Line], collectives: dict[str, xla.Collective]) -> None:
        """Add the events of some lines."""
        by_plane: dict[str, list[_Line]] = {}
        for line in lines:
            by_plane.setdefault(line.plane, []).append(line)
        for plane, those in by_plane.items():
            device = _DEVICE.fullmatch(plane.split(" ")[0])
            for line in those:
                if device is None and plane.startswith("/host:"):
                    self._host(line)
                elif device is not None and _holds_work(line, those):
                    self.devices.append(plane) if plane not in self.devices else None
                    self._device(line, int(device[2]), collectives)
                else:
                    label = line.name or plane
                    self.left[label] = self.left.get(label, 0) + sum(1 for _ in line.events)

    def _host(self, line: _Line) -> None:
        for written, start_ns, duration_ns, values in line.events:
            step = _whole(values.get("step_num"))
            # What `StepTraceAnnotation` writes; all readers call a step alike.
            name = written if step < 0 else f"{STEP}#{step}"
            runtime = _RUNTIME.fullmatch(name) is not None
            python = EventKind.PYTHON if name.startswith("$") else EventKind.OPERATOR
            kind = EventKind.RUNTIME if runtime else python
            correlation = _whole(values.get("correlation_id"))
            thread = (line.plane, line.name or str(line.number))
            self.events.add(
                Event(kind, name, start_ns, duration_ns, thread, correlation if runtime else NONE)
            )

    def _device(self, line: _Line, device: int, collectives: dict[str, xla.Collective]) -> None:
        named = _STREAM.match(line.name)
        stream = int(named[1]) if named else line.number
        for name, start_ns, duration_ns, values in line.events:
            kind = device_kind(name)
            comm = None if kind != EventKind.KERNEL else self._facts(name, values, collectives)
            moved = _BYTES.search(str(values.get("memcpy_details") or values.get("memset_details") or ""))
            self.events.add(
                Event(
                    kind,
                    name,
                    start_ns,
                    duration_ns,
                    (f"device {device}", f"stream {stream}"),
                    _whole(values.get("correlation_id")),
                    stream,
                    device,
                    int(moved[1]) if moved and kind != EventKind.KERNEL else NONE,
                    comm,
                )
            )

    def _facts(
        self, name: str, values: dict[str, Any], collectives: dict[str, xla.Collective]
    ) -> dict[str, Any] | None:
        operation = str(values.get("hlo_op") or name)
        module = str(values.get("hlo_module") or "")
        text = str(values.get("long_name") or (name if name.startswith("%") else ""))
        known = collectives.get(f"{module}/{operation}") or xla.of_text(text) or xla.of_name(operation)
        if known is None:
            return None
        self.replicas = max(self.replicas, known.devices)
        return known.facts()


def _holds_work(line: _Line, lines: list[_Line]) -> bool:
    """Whether a line of a device holds what it did, not what other lines hold in another grouping."""
    if any(_STREAM.match(other.name) for other in lines):
        return _STREAM.match(line.name) is not None
    if any(other.name in _OPERATIONS for other in lines):
        return line.name in _OPERATIONS
    return True


def _whole(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**63 else NONE


def _part(reading: Reading, process: _Process, host: str, noticed: list[Finding]) -> list[Part]:
    local = len(process.events.devices)
    head = Head(
        # A process with one of all devices is one rank of as many; one with several holds that many less ranks.
        world_size=max(process.replicas // max(local, 1), 1) if process.replicas else None,
        backend="xla",
        host=host,
        devices=tuple(process.devices),
        recorder=RECORDER,
    )
    damaged = any(finding.level == "error" for finding in noticed)
    trace = process.events.trace(reading.name, head, damaged=damaged)
    noticed += findings_of(reading.name, process.events.damaged, process.left)
    return [DevicePart(trace, tuple(noticed))]


# ---------------------------------------------------------------------------------------------------
# Protobuf


def read(reading: Reading) -> list[Part]:
    """Read a `.xplane.pb`: one rank, with all devices of its process.

    Raises:
        TraceFormatError: It is damaged.
    """
    space = messages()["XSpace"]()
    try:
        space.ParseFromString(bytes(reading.data))
    except Exception as error:
        if type(error).__name__ != "DecodeError":
            raise
        raise TraceFormatError(
            f"{reading.name}: not a whole .xplane.pb: {error}.", hint="Copy or record the file again."
        ) from error
    process, noticed = _Process(), list(reading.findings)
    names = [_Names(plane) for plane in space.planes]
    collectives: dict[str, xla.Collective] = {}
    for plane, known in zip(space.planes, names, strict=True):
        for entry in plane.event_metadata:
            for proto in known.values(entry.value.stats).values():
                collectives |= xla.of_module(proto) if isinstance(proto, bytes) else {}
    with collector_paused():
        for place, (plane, known) in enumerate(zip(space.planes, names, strict=True), 1):
            process.add((_proto_line(plane.name, line, known) for line in plane.lines), collectives)
            reading.tick(len(reading.data) * place // len(space.planes))
    noticed += (
        Finding("warning", "recorder-error", f"{reading.name}: the recorder says: {message}")
        for message in space.errors
    )
    return _part(reading, process, ", ".join(space.hostnames), noticed)


class _Names:
    """Names and values of a plane, whose events name them by number."""

    def __init__(self, plane: Any) -> None:
        self._stats = {entry.key: _text(entry.value.name) for entry in plane.stat_metadata}
        self.events: dict[int, tuple[str, dict[str, Any]]] = {}
        for entry in plane.event_metadata:
            name, values = _text(entry.value.name), self.values(entry.value.stats)
            display = _text(entry.value.display_name)
            if name.startswith("%") and display:
                name, values = display, {**values, "long_name": name}
            self.events[entry.key] = name, values

    def values(self, stats: Any) -> dict[str, Any]:
        """Return some values by name; bytes only where they are no text."""
        values = {}
        for stat in stats:
            told = [(field.name, value) for field, value in stat.ListFields() if field.name != "metadata_id"]
            # A zero is written as no value at all.
            values[self._stats.get(stat.metadata_id, str(stat.metadata_id))] = (
                self._value(*told[0]) if told else 0
            )
        return values

    def _value(self, field_name: str, value: Any) -> Any:
        if field_name == "ref_value":
            return self._stats.get(value, "")
        return _text(value) if field_name == "str_value" else value


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _proto_line(plane: str, line: Any, names: _Names) -> _Line:
    return _Line(plane, line.display_name or line.name, line.id, _proto_events(line, names))


def _proto_events(line: Any, names: _Names) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    base = line.timestamp_ns
    for event in line.events:
        name, constant = names.events.get(event.metadata_id, (f"event {event.metadata_id}", {}))
        values = {**constant, **names.values(event.stats)} if event.stats else constant
        start = event.offset_ps // 1000
        yield name, base + start, (event.offset_ps + event.duration_ps) // 1000 - start, values


# ---------------------------------------------------------------------------------------------------
# JSON


class _JsonEvent(msgspec.Struct, gc=False):
    ph: Any = ""
    pid: Any = 0
    tid: Any = 0
    name: Any = ""
    ts: Any = None
    dur: Any = None
    args: Any = None


class _Json(msgspec.Struct):
    events: list[_JsonEvent] = msgspec.field(default_factory=list, name="traceEvents")


_json = decoder(_Json)


def read_json(reading: Reading) -> list[Part]:
    """Read a `.trace.json.gz` of the trace viewer: one rank, with all devices of its process.

    Raises:
        TraceFormatError: It is damaged.
    """
    with collector_paused():
        try:
            content, findings = decode_mended(reading.data, _json, reading.name)
        except msgspec.DecodeError as error:
            raise TraceFormatError(
                f"{reading.name}: not as the profiler of JAX writes it: {error}.", hint="Record it again."
            ) from error
        reading.tick(len(reading.data))
        process = _Process()
        process.add(_json_lines(content.events), {})
    return _part(reading, process, "", [*reading.findings, *findings])


def _json_lines(events: list[_JsonEvent]) -> Iterator[_Line]:
    planes: dict[Any, str] = {}
    threads: dict[tuple[Any, Any], str] = {}
    lines: dict[tuple[Any, Any], list[_JsonEvent]] = {}
    for event in events:
        args = event.args if isinstance(event.args, dict) else {}
        pid, tid = str(event.pid), str(event.tid)
        if event.ph == "X":
            lines.setdefault((pid, tid), []).append(event)
        elif event.name == "process_name":
            planes[pid] = str(args.get("name", ""))
        elif event.name == "thread_name":
            threads[pid, tid] = str(args.get("name", ""))
    for (pid, tid), those in lines.items():
        yield _Line(
            planes.get(pid, ""), threads.get((pid, tid), ""), max(_whole(tid), 0), _json_events(those)
        )


def _json_events(events: list[_JsonEvent]) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    starts, good = times_ns([event.ts for event in events])
    lasted, _ = times_ns([0 if event.dur is None else event.dur for event in events])
    for event, start, length, usable in zip(
        events, starts.tolist(), lasted.tolist(), good.tolist(), strict=True
    ):
        args = event.args if isinstance(event.args, dict) else {}
        yield str(event.name), start, length if usable else NONE, args
