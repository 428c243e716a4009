"""Read Perfetto traces (protobuf) as slices with their track, category, annotations and flows.

Only what the studio's own exports and rocprof write is described: slices of track events, texts by number per sequence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from studio.errors import TraceFormatError
from studio.et.collector import pause_collector
from studio.et.format import DevicePart, Part, Reading
from studio.et.profile_events import Event, Events, infer_device_kind
from studio.et.recording import EventKind, Head
from studio.et.rocprof import LIBRARY_KERNEL, LibraryCalls, build_findings
from studio.et.varints import read_field_kinds
from studio.trace import NONE, ROCPROF, Finding

BEGIN, END = 1, 2
_MOMENTS = (3, 4)
"""Types of track events: a slice begins, the innermost open slice of the track ends; others are moments and counters."""
_CLEARED = 1
_SEQUENCE, _OLD_SYNC = 10, 36
_TEXT = {"iid": (1, "UINT64"), "name": (2, "BYTES")}
_MESSAGES = {
    "Trace": {"packet": (1, "repeated Packet")},
    "Packet": {
        "timestamp": (8, "UINT64"),
        "sequence": (10, "UINT32"),
        "event": (11, "TrackEvent"),
        "interned": (12, "Interned"),
        "flags": (13, "UINT32"),
        "track": (60, "Track"),
    },
    "TrackEvent": {
        "category_iids": (3, "repeated UINT64"),
        "annotations": (4, "repeated Annotation"),
        "type": (9, "INT32"),
        "name_iid": (10, "UINT64"),
        "track_uuid": (11, "UINT64"),
        "categories": (22, "repeated BYTES"),
        "name": (23, "BYTES"),
        "flow_ids": (47, "repeated FIXED64"),
    },
    "Annotation": {
        "name_iid": (1, "UINT64"),
        "uint_value": (3, "UINT64"),
        "int_value": (4, "INT64"),
        "string_value": (6, "BYTES"),
        "name": (10, "BYTES"),
        "string_iid": (17, "UINT64"),
    },
    "Interned": {
        "categories": (1, "repeated Text"),
        "names": (2, "repeated Text"),
        "annotations": (3, "repeated Text"),
        "strings": (29, "repeated Text"),
    },
    "Text": _TEXT,
    "Track": {
        "uuid": (1, "UINT64"),
        "name": (2, "BYTES"),
        "process": (3, "Process"),
        "thread": (4, "Thread"),
        "parent": (5, "UINT64"),
    },
    "Process": {"pid": (1, "INT32"), "name": (6, "BYTES")},
    "Thread": {"pid": (1, "INT32"), "tid": (2, "INT64"), "name": (5, "BYTES")},
}
"""What is read of the schema `perfetto_trace.proto`."""
_KINDS = ("categories", "names", "annotations", "strings")


@lru_cache(maxsize=1)
def load_messages() -> dict[str, Any]:
    """Return the message classes of the schema."""
    from studio.et.schema import build_message_classes

    return build_message_classes("perfetto_subset", _MESSAGES)


def sniff(head: bytes) -> bool:
    """Whether `head` starts a Perfetto trace: its first packet says the sequence or time it is of."""
    kinds = read_field_kinds(head, b"\n")
    marked = isinstance(kinds.get(_OLD_SYNC), bytes)
    return not {1, 2} & kinds.keys() and (marked or isinstance(kinds.get(_SEQUENCE), int)) and 0 not in kinds


@dataclass(slots=True)
class Slice:
    """A slice of a track.

    Attributes:
        track: Number of its track.
        name, category: Untrusted texts.
        begin, end: As the file has them; the end is -1 where it never ends.
        annotations: Its annotations by name.
        flows: Numbers of the flows that touch it.
    """

    track: int
    name: str
    category: str
    begin: int
    end: int = NONE
    annotations: dict[str, int | str] = field(default_factory=dict)
    flows: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Slices:
    """The content of a Perfetto trace.

    Attributes:
        slices: In the order in which they begin in the file.
        tracks: Name, and number of the parent track, of each track.
        processes: Name of the process that a track stands for.
        others: How many events are no slices: counters and moments.
        findings: What is wrong with the file.
    """

    slices: list[Slice] = field(default_factory=list)
    tracks: dict[int, tuple[str, int]] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    others: int = 0
    findings: list[Finding] = field(default_factory=list)


def read_slices(reading: Reading) -> Slices:
    """Read the slices of a file.

    Raises:
        TraceFormatError: It is damaged.
    """
    from studio.et.schema import parse_whole_part

    trace, damage = parse_whole_part(load_messages()["Trace"], reading, "Perfetto trace")
    slices = Slices(findings=damage)
    reading.tick(len(reading.data))
    texts: dict[int, dict[str, dict[int, str]]] = {}
    open_slices: dict[int, list[Slice]] = {}
    for packet in trace.packet:
        interned = texts.setdefault(packet.sequence, {kind: {} for kind in _KINDS})
        if packet.flags & _CLEARED:
            interned = texts[packet.sequence] = {kind: {} for kind in _KINDS}
        for kind in _KINDS if packet.HasField("interned") else ():
            interned[kind].update(
                (text.iid, _decode_text(text.name)) for text in getattr(packet.interned, kind)
            )
        if packet.HasField("track"):
            _add_track(slices, packet.track)
        if packet.HasField("event"):
            _add_event(slices, packet, interned, open_slices)
    return slices


def _add_track(slices: Slices, track: Any) -> None:
    name = _decode_text(track.name) or _decode_text(track.thread.name)
    slices.tracks[track.uuid] = name, track.parent
    if track.HasField("process"):
        slices.processes[track.uuid] = _decode_text(track.process.name)


def _add_event(
    slices: Slices, packet: Any, interned: dict[str, dict[int, str]], open_slices: dict[int, list[Slice]]
) -> None:
    event = packet.event
    running = open_slices.setdefault(event.track_uuid, [])
    if event.type == END and running:
        ended = running.pop()
        ended.end = packet.timestamp
        ended.flows.extend(event.flow_ids)
    elif event.type == BEGIN:
        categories = [interned["categories"].get(number, "") for number in event.category_iids]
        categories += map(_decode_text, event.categories)
        new_slice = Slice(
            event.track_uuid,
            interned["names"].get(event.name_iid, "") if event.name_iid else _decode_text(event.name),
            categories[0] if categories else "",
            packet.timestamp,
            annotations=dict(_iterate_annotations(event, interned)),
            flows=list(event.flow_ids),
        )
        slices.slices.append(new_slice)
        running.append(new_slice)
    elif event.type in _MOMENTS:
        slices.others += 1


def _iterate_annotations(event: Any, interned: dict[str, dict[int, str]]) -> Iterator[tuple[str, int | str]]:
    for note in event.annotations:
        name = interned["annotations"].get(note.name_iid, "") if note.name_iid else _decode_text(note.name)
        if note.string_iid:
            yield name, interned["strings"].get(note.string_iid, "")
        elif note.string_value:
            yield name, _decode_text(note.string_value)
        else:
            yield name, note.uint_value or note.int_value


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# ---------------------------------------------------------------------------------------------------
# rocprof

_HOST = {
    "hip_api": EventKind.RUNTIME,
    "hsa_api": EventKind.RUNTIME,
    "marker_api": EventKind.ANNOTATION,
    "rccl_api": EventKind.OPERATOR,
}
_DEVICE = ("kernel_dispatch", "memory_copy")
_TRACK_PART = re.compile(r"(\w+) \[\W*([0-9]{1,9})\W*\]")
_LAST_NUMBER = re.compile(r"[0-9]{1,9}$")


def read(reading: Reading) -> list[Part]:
    """Read what rocprof v3 wrote of a process: every slice says its times and correlation itself.

    Raises:
        TraceFormatError: It is damaged, or no recording of rocprof.
    """
    with pause_collector():
        slices = read_slices(reading)
        events, left = Events(), dict[str, int]()
        timed = [piece for piece in slices.slices if "begin_ns" in piece.annotations]
        calls = LibraryCalls(
            [
                (piece.name, _get_number(piece, "tid"), *_get_span(piece))
                for piece in timed
                if piece.category == "rccl_api"
            ],
            {
                _get_number(piece, "corr_id"): (_get_number(piece, "tid"), _get_number(piece, "begin_ns"))
                for piece in timed
                if piece.category == "hip_api"
            },
        )
        for piece in slices.slices:
            is_known = "begin_ns" in piece.annotations and (
                piece.category in _HOST or piece.category in _DEVICE
            )
            if is_known:
                events.add(_build_event(piece, slices.tracks.get(piece.track, ("", 0))[0], calls))
            else:
                left[piece.category or "without category"] = (
                    left.get(piece.category or "without category", 0) + 1
                )
    if slices.others:
        left["counters and moments"] = slices.others
    if not events.rows:
        kinds = ", ".join(repr(kind) for kind in list(left)[:4]) or "none"
        raise TraceFormatError(
            f"{reading.name}: a Perfetto trace of a program that is not known; its slices are of the categories {kinds}.",
            hint="Those of rocprofv3 --output-format pftrace, and those that the studio exports, can be read.",
        )
    trace = events.trace(reading.name, Head(recorder=ROCPROF), damaged=bool(slices.findings))
    noticed = (*reading.findings, *slices.findings, *build_findings(reading.name, events.damaged, left))
    return [DevicePart(trace, noticed)]


def _get_number(piece: Slice, name: str) -> int:
    value = piece.annotations.get(name)
    return value if isinstance(value, int) else NONE


def _get_span(piece: Slice) -> tuple[int, int]:
    return _get_number(piece, "begin_ns"), _get_number(piece, "end_ns")


def _build_event(piece: Slice, track: str, calls: LibraryCalls) -> Event:
    begin, end = _get_span(piece)
    times = begin, end - begin
    correlation = _get_number(piece, "corr_id")
    if piece.category in _HOST:
        kind = _HOST[piece.category]
        thread = ("host", str(_get_number(piece, "tid")))
        return Event(kind, piece.name, *times, thread, correlation if kind == EventKind.RUNTIME else NONE)
    named_agent, named_stream = _parse_track_name(track)
    is_copy = piece.category == "memory_copy"
    kind = EventKind.COPY if is_copy else infer_device_kind(piece.name)
    # Of a copy to the host the device is where it comes from.
    side = "src_agent" if "DEVICE_TO_HOST" in piece.name else "dst_agent"
    agent = _parse_agent(piece.annotations.get(side if is_copy else "agent"))
    agent = named_agent if agent == NONE else agent
    stream = _get_number(piece, "stream_ID")
    stream = named_stream if stream == NONE else stream
    place = (f"device {agent}", f"stream {stream}")
    comm = calls.facts(correlation) if LIBRARY_KERNEL.search(piece.name) else None
    return Event(
        kind, piece.name, *times, place, correlation, stream, agent, _get_number(piece, "copy_bytes"), comm
    )


def _parse_agent(value: int | str | None) -> int:
    """Return the number of an agent, which newer releases write behind what they count.

    Example:
        >>> _parse_agent("Agent-4"), _parse_agent("GPU-0"), _parse_agent(2), _parse_agent("Agent")
        (4, 0, 2, -1)
    """
    number = _LAST_NUMBER.search(str(value))
    return int(number[0]) if number else NONE


def _parse_track_name(track: str) -> tuple[int, int]:
    """Return the numbers of device and stream in a track's name; a thread that copies is no stream.

    Example:
        >>> _parse_track_name("COMPUTE AGENT [4] STREAM [2] (GPU)"), _parse_track_name("COPY to AGENT [4] THREAD [0] (GPU)")
        ((4, 2), (4, -1))
        >>> _parse_track_name("COMPUTE GPU [0] QUEUE [3] GPU"), _parse_track_name('STREAM [" 7 "] ')
        ((0, 3), (-1, 7))
    """
    numbers = {word.upper(): int(number) for word, number in _TRACK_PART.findall(track)}
    device = next((number for word, number in numbers.items() if word in ("AGENT", "GPU", "CPU")), NONE)
    return device, numbers.get("STREAM", numbers.get("QUEUE", NONE))
