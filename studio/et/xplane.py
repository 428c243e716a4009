"""Read what the profiler of JAX and TensorFlow (XLA) records: `.xplane.pb`, and its JSON for the trace viewer.

Both hold planes (a host or a device) of lines (a thread or a stream) of events with named values. A line that repeats
what others hold in another grouping (steps, modules, scopes) is left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.damaged_json import decode_or_recover
from studio.et.format import Part, Reading
from studio.et.kineto_times import convert_to_ns
from studio.et.profile_events import LONGEST_NS
from studio.et.varints import read_field_kinds
from studio.et.xplane_process import Line, Process, Timed, build_parts, parse_whole
from studio.trace import NONE, Finding

_PLANE_NAME = re.compile(rb"/(host|device|custom)|Task Environment|#")
_PROGRAM = re.compile(r".*\(([0-9]{1,18})\)")
_START_TIME = "profile_start_time"
_MOST_SHOWN = 1_000_000
"""Events that the trace viewer's form holds at most."""
_YEAR_NS = 365 * 86_400 * 10**9
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
def load_messages() -> dict[str, Any]:
    """Return the message classes of the schema."""
    from studio.et.schema import build_message_classes

    return build_message_classes("xplane", _MESSAGES)


def sniff(head: bytes) -> bool:
    """Whether `head` starts an XSpace: a message whose first is a plane with a name."""
    kinds = read_field_kinds(head, b"\n")
    name = kinds.get(2)
    return isinstance(name, bytes) and _PLANE_NAME.match(name) is not None


def sniff_json(head: bytes) -> bool:
    """Whether `head` starts a file for the trace viewer: processes that are called as planes are."""
    return (
        head.lstrip()[:1] == b"{"
        and b'"traceEvents"' in head
        and re.search(rb'"name"\s*:\s*"/(device:[A-Za-z_]+:[0-9]+|host:)', head) is not None
    )


# ---------------------------------------------------------------------------------------------------
# Protobuf


def read(reading: Reading) -> list[Part]:
    """Read a `.xplane.pb`: a rank for each device of its process.

    Raises:
        TraceFormatError: It is damaged.
    """
    from studio.et.schema import parse_whole_part

    space, damage = parse_whole_part(load_messages()["XSpace"], reading, ".xplane.pb")
    if damage and not any(line.events for plane in space.planes for line in plane.lines):
        raise TraceFormatError(
            f"{reading.name}: not a whole .xplane.pb: it ends before the first event.",
            hint="Copy or record the file again.",
        )
    process, noticed = Process(), [*reading.findings, *damage]
    names = [_Names(plane) for plane in space.planes]
    base_ns = None
    for plane, known in zip(space.planes, names, strict=True):
        for entry in plane.event_metadata:
            numbered = _PROGRAM.fullmatch(_decode_text(entry.value.name))
            for proto in known.values(entry.value.stats).values():
                if isinstance(proto, bytes):
                    process.programs.add(proto, int(numbered[1]) if numbered else NONE)
        start_ns = parse_whole(known.values(plane.stats).get(_START_TIME))
        base_ns = start_ns if 0 < start_ns < LONGEST_NS else base_ns
    begins = [line.timestamp_ns for plane in space.planes for line in plane.lines]
    # Newer recorders count from the start of the profile, older ones as clocks do.
    shift = base_ns if base_ns is not None and max(map(abs, begins), default=0) < _YEAR_NS else 0
    with pause_collector():
        process.add(
            _build_proto_line(plane.name, line, known, shift)
            for plane, known in zip(space.planes, names, strict=True)
            for line in plane.lines
        )
        reading.tick(len(reading.data))
    noticed += (
        Finding("warning", "recorder-error", f"{reading.name}: the recorder says: {message}")
        for message in space.errors
    )
    return build_parts(reading, process, ", ".join(space.hostnames), base_ns, noticed)


class _Names:
    """Names and values of a plane, whose events name them by number."""

    def __init__(self, plane: Any) -> None:
        self._stats = {entry.key: _decode_text(entry.value.name) for entry in plane.stat_metadata}
        self.events: dict[int, tuple[str, dict[str, Any]]] = {}
        for entry in plane.event_metadata:
            name, values = _decode_text(entry.value.name), self.values(entry.value.stats)
            display = _decode_text(entry.value.display_name)
            if name.startswith("%") and display:
                name, values = display, {**values, "long_name": name}
            self.events[entry.key] = name, values

    def values(self, stats: Any) -> dict[str, Any]:
        """Return some values by name; bytes only where they are no text."""
        values = {}
        for stat in stats:
            fields = [
                (field.name, value) for field, value in stat.ListFields() if field.name != "metadata_id"
            ]
            # A zero is written as no value at all.
            values[self._stats.get(stat.metadata_id, str(stat.metadata_id))] = (
                self._convert_value(*fields[0]) if fields else 0
            )
        return values

    def _convert_value(self, field_name: str, value: Any) -> Any:
        if field_name == "ref_value":
            return self._stats.get(value, "")
        return _decode_text(value) if field_name == "str_value" else value


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _build_proto_line(plane: str, line: Any, names: _Names, shift_ns: int) -> Line:
    return Line(plane, line.display_name or line.name, line.id, _iterate_proto_events(line, names, shift_ns))


def _iterate_proto_events(line: Any, names: _Names, shift_ns: int) -> Iterator[Timed]:
    base = line.timestamp_ns + shift_ns
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


_json = build_decoder(_Json)


def read_json(reading: Reading) -> list[Part]:
    """Read a `.trace.json.gz` of the trace viewer: a rank for each device of its process.

    Raises:
        TraceFormatError: It is damaged.
    """
    with pause_collector():
        try:
            content, findings = decode_or_recover(reading.data, _json, reading.name)
        except msgspec.DecodeError as error:
            raise TraceFormatError(
                f"{reading.name}: not as the profiler of JAX writes it: {error}.", hint="Record it again."
            ) from error
        reading.tick(len(reading.data))
        process = Process()
        process.add(_iterate_json_lines(content.events))
    noticed = [*reading.findings, *findings]
    if sum(event.ph == "X" for event in content.events) >= _MOST_SHOWN:
        message = f"{reading.name}: {_MOST_SHOWN:,} events, the most that JAX writes for the trace viewer; others may be missing."
        hint = "Open the .xplane.pb of the same recording, which holds all of them."
        noticed.append(Finding("warning", "viewer-limit", message, hint, file=reading.name))
    return build_parts(reading, process, "", None, noticed)


def _iterate_json_lines(events: list[_JsonEvent]) -> Iterator[Line]:
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
        yield Line(
            planes.get(pid, ""),
            threads.get((pid, tid), ""),
            max(parse_whole(tid), 0),
            _iterate_json_events(those),
        )


def _iterate_json_events(events: list[_JsonEvent]) -> Iterator[Timed]:
    starts, good = convert_to_ns([event.ts for event in events])
    lasted, _ = convert_to_ns([0 if event.dur is None else event.dur for event in events])
    for event, start, length, usable in zip(
        events, starts.tolist(), lasted.tolist(), good.tolist(), strict=True
    ):
        args = event.args if isinstance(event.args, dict) else {}
        yield str(event.name), start, length if usable else NONE, args
