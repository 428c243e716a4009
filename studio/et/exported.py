"""Read the timelines that the studio exports, as Chrome traces and in Perfetto's format, back as a job."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from studio.decoding import build_decoder
from studio.errors import TraceFormatError
from studio.et import perfetto
from studio.et.build import build_graph
from studio.et.collector import pause_collector
from studio.et.damaged_json import decode_or_recover
from studio.et.events import UNFINISHED
from studio.et.format import Part, RankPart, Reading
from studio.et.kineto_times import convert_to_ns
from studio.et.link.names import infer_kernel_kind, infer_operator_kind
from studio.et.profile_events import LONGEST_NS
from studio.timeline import LANE_KINDS
from studio.trace import NONE, CollectiveType, Finding, NodeType, Rank

_RANK = re.compile(r"rank ([0-9]{1,9})")
_AGAIN = re.compile(r" · [0-9]+$")
_STREAM = re.compile(r"([0-9]{1,18})(?: of device ([0-9]{1,9}))?")
"""What a lane of a stream is called, with its device where a rank has several."""
_MARK = b'"writer": "chakra-studio"'
_TYPES = {kind.name: kind for kind in NodeType}


@dataclass(slots=True)
class _Bar:
    """A node as it was drawn."""

    id: int
    name: str
    type: str
    lane: str
    start_ns: int
    duration_ns: int
    bytes: int
    collective: str = ""
    waits_for: dict[str, list[int]] = field(default_factory=lambda: {"ctrl_deps": [], "data_deps": []})
    attrs: dict[str, Any] = field(default_factory=dict)
    call: tuple[int, int] | None = None
    """When the node began and its own time, where it is a call of which this is the first piece."""


class _Notes(Protocol):
    """What is noted of a bar of a call."""

    piece: int
    started_ns: int
    lasted_ns: int
    own_ns: int


@dataclass(slots=True)
class _Job:
    """The bars of each rank by place, and what reading noticed."""

    ranks: dict[int, list[_Bar]] = field(default_factory=dict)
    unknown: int = 0
    messages: int = 0

    def add(self, rank: int, bar: _Bar, notes: _Notes) -> None:
        """Add a bar; a call is drawn in pieces, of which the first says when it ran."""
        if notes.piece > 1:
            return
        self.ranks[rank].append(bar)
        if notes.own_ns >= 0 and notes.started_ns >= 0 and notes.own_ns < notes.lasted_ns < LONGEST_NS:
            bar.call = (notes.started_ns, notes.own_ns)
            bar.attrs["inclusive_ns"] = notes.lasted_ns

    def meet(self, source: int, send: _Bar, target: int, receive: _Bar) -> None:
        """Note a message."""
        self.messages += 1
        send.attrs |= {"comm_dst": target, "comm_tag": self.messages}
        receive.attrs |= {"comm_src": source, "comm_tag": self.messages}


def _build_parts(reading: Reading, job: _Job, findings: Iterable[Finding]) -> list[Part]:
    if not job.ranks:
        raise TraceFormatError(
            f"{reading.name}: an exported timeline without a rank.", hint="Export the timeline again."
        )
    noticed = [*reading.findings, *findings]
    message = (
        f"{reading.name}: a timeline that the studio exported, of a recording or a simulation: its times are the "
        "recorded ones of this job. Nodes that had no time, and attributes, are not in it."
    )
    noticed.append(
        Finding("info", "exported-timeline", message, "Open the job's own files to have all of it.")
    )
    if job.unknown:
        message = f"{reading.name}: slices or flows that belong to no node, left out: {job.unknown:,}."
        noticed.append(Finding("warning", "damaged-event", message, file=reading.name))
    parts: list[Part] = []
    for number, bars in sorted(job.ranks.items()):
        graph, slots = build_graph([_build_node(bar) for bar in bars])
        times = [bar.call or (bar.start_ns, bar.duration_ns) for bar in bars]
        graph.start_ns[:] = [start for start, _ in times]
        graph.duration_ns[:] = [duration for _, duration in times]
        rank = Rank(NONE, NONE, slots, file=reading.name)
        parts.append(RankPart(rank, graph, number, tuple(noticed) if not parts else ()))
    return parts


def _build_node(bar: _Bar) -> dict[str, Any]:
    kind, _, name = _AGAIN.sub("", bar.lane).partition(" ")
    attrs = dict(bar.attrs)
    if bar.bytes > 0:
        attrs["comm_size"] = bar.bytes
    if kind == "communication" and name:
        attrs["pg_name"] = name
    if kind == "stream" and (stream := _STREAM.fullmatch(name)):
        attrs["stream"] = int(stream[1])
        attrs |= {"device": int(stream[2])} if stream[2] else {}
    if kind == "thread" and name.isascii() and name.isdigit() and len(name) < 19:
        attrs["tid"] = int(name)
    if bar.type == "COMM_COLL":
        recorded = CollectiveType.__members__.get(bar.collective)
        guessed = (
            infer_operator_kind(bar.name)
            if infer_operator_kind(bar.name) is not None
            else infer_kernel_kind(bar.name)
        )
        if recorded is not None or (guessed is not None and guessed >= 0):
            attrs["comm_type"] = int(recorded if recorded is not None else guessed or 0)
    attrs["is_cpu_op"] = kind in ("cpu", "thread")
    return {"id": bar.id, "type": bar.type, "name": bar.name, "attrs": attrs, **bar.waits_for}


def _parse_type(name: object) -> str:
    return name if isinstance(name, str) and name in _TYPES else "INVALID"


# ---------------------------------------------------------------------------------------------------
# Chrome traces


class _Args(msgspec.Struct, gc=False):
    id: int = NONE
    type: str = ""
    bytes: int = 0
    collective: str = ""
    name: str | int = ""
    unfinished: bool = False
    reversed: bool = False
    piece: int = 1
    started_ns: int = NONE
    lasted_ns: int = 0
    own_ns: int = NONE


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    pid: int = NONE
    tid: int = NONE
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    id: int = NONE
    cat: str = ""
    args: _Args | None = None


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(default_factory=list, name="traceEvents")


_file = build_decoder(_File)


def sniff_chrome(head: bytes) -> bool:
    """Whether `head` starts a Chrome trace that the studio wrote."""
    return head.lstrip()[:1] == b"{" and _MARK in head[:200]


def read_chrome(reading: Reading) -> list[Part]:
    """Read a Chrome trace that the studio wrote: all ranks, with types, bytes, lanes and dependencies.

    Raises:
        TraceFormatError: It is damaged beyond use.
    """
    with pause_collector():
        try:
            content, findings = decode_or_recover(reading.data, _file, reading.name)
        except msgspec.DecodeError as error:
            raise TraceFormatError(
                f"{reading.name}: not as the studio writes it: {error}.", hint="Export the timeline again."
            ) from error
        reading.tick(len(reading.data))
        return _build_parts(reading, _read_chrome_job(content.events), findings)


def _read_chrome_job(events: list[_Event]) -> _Job:
    job = _Job()
    lanes: dict[tuple[int, int], str] = {}
    drawn: dict[tuple[int, int], list[_Bar]] = {}
    arrows: list[tuple[_Event, int]] = []
    starts = convert_to_ns([event.ts for event in events])[0].tolist()
    for event, start_ns in zip(events, starts, strict=True):
        args = event.args or _Args()
        if event.ph == "M" and event.name == "thread_name":
            lanes[event.pid, event.tid] = str(args.name)
        elif event.ph == "M" and event.name == "process_name" and _is_rank(event, str(args.name)):
            job.ranks.setdefault(event.pid, [])
        elif event.ph == "X" and event.pid in job.ranks and 0 <= args.id < 1 << 64 and args.bytes < 1 << 62:
            length = int(convert_to_ns([event.dur])[0][0])
            lane = lanes.get((event.pid, event.tid), "")
            bar = _Bar(
                args.id,
                event.name,
                _parse_type(args.type),
                lane,
                start_ns,
                length,
                args.bytes,
                args.collective,
            )
            bar.attrs |= {UNFINISHED: True} if args.unfinished else {}
            job.add(event.pid, bar, args)
            drawn.setdefault((event.pid, event.tid), []).append(bar)
        elif event.ph in ("s", "f"):
            arrows.append((event, start_ns))
        elif event.ph == "X":
            job.unknown += 1
    _add_chrome_flows(job, arrows, drawn)
    return job


def _is_rank(event: _Event, name: str) -> bool:
    return _RANK.fullmatch(name) is not None and 0 <= event.pid < 1 << 31


def _add_chrome_flows(
    job: _Job, arrows: list[tuple[_Event, int]], drawn: dict[tuple[int, int], list[_Bar]]
) -> None:
    """Add all arrows: an end belongs to the last bar of its thread to begin by its time."""
    begins: dict[tuple[int, int], list[int]] = {}
    for thread, bars in drawn.items():
        bars.sort(key=lambda bar: bar.start_ns)
        begins[thread] = [bar.start_ns for bar in bars]
    begun: dict[int, tuple[int, _Bar]] = {}
    for event, time_ns in arrows:
        thread = event.pid, event.tid
        place = bisect_right(begins.get(thread, ()), time_ns) - 1
        bar = drawn[thread][place] if place >= 0 else None
        if bar is None or time_ns >= bar.start_ns + max(bar.duration_ns, 1):
            job.unknown += 1
        elif event.ph == "s":
            begun[event.id] = event.pid, bar
        elif event.id not in begun:
            job.unknown += 1
        else:
            ends = [begun.pop(event.id), (event.pid, bar)]
            if event.args is not None and event.args.reversed:
                ends.reverse()
            _add_chrome_flow(job, event.cat, *ends)


def _add_chrome_flow(job: _Job, kind: str, first: tuple[int, _Bar], last: tuple[int, _Bar]) -> None:
    if kind in ("ctrl", "data") and first[1] is not last[1]:
        last[1].waits_for[f"{kind}_deps"].append(first[1].id)
    elif kind == "message":
        job.meet(*first, *last)


# ---------------------------------------------------------------------------------------------------
# Perfetto


def sniff_perfetto(head: bytes) -> bool:
    """Whether `head` starts a Perfetto trace that the studio wrote: the first packet names the kinds of lanes."""
    return perfetto.sniff(head) and all(kind.encode() in head[:400] for kind in LANE_KINDS)


def read_perfetto(reading: Reading) -> list[Part]:
    """Read a Perfetto trace that the studio wrote; all dependencies count as data dependencies.

    Raises:
        TraceFormatError: It is damaged.
    """
    with pause_collector():
        content = perfetto.read_slices(reading)
        job = _Job()
        flows: dict[int, list[tuple[int, _Bar]]] = {}
        for span in content.slices:
            lane, parent = content.tracks.get(span.track, ("", 0))
            named = _RANK.fullmatch(content.processes.get(parent, ""))
            number = span.annotations.get("id")
            if named is None or not isinstance(number, int) or not span.begin <= span.end < LONGEST_NS:
                job.unknown += 1
                continue
            size = span.annotations.get("bytes", 0)
            bar = _Bar(
                number,
                span.name,
                _parse_type(span.annotations.get("type")),
                lane,
                span.begin,
                span.end - span.begin,
                size if isinstance(size, int) and size < LONGEST_NS else 0,
                str(span.annotations.get("collective", "")),
            )
            bar.attrs |= {UNFINISHED: True} if span.annotations.get(UNFINISHED) else {}
            job.ranks.setdefault(int(named[1]), [])
            job.add(int(named[1]), bar, _parse_notes(span.annotations))
            for flow in span.flows:
                flows.setdefault(flow, []).append((int(named[1]), bar))
        for ends in flows.values():
            _add_perfetto_flow(job, ends)
        return _build_parts(reading, job, content.findings)


def _parse_notes(annotations: dict[str, Any]) -> _Args:
    notes = _Args()
    for key in ("piece", "started_ns", "lasted_ns", "own_ns"):
        value = annotations.get(key)
        if isinstance(value, int):
            setattr(notes, key, value)
    return notes


def _add_perfetto_flow(job: _Job, ends: list[tuple[int, _Bar]]) -> None:
    """Add a flow: within a rank a dependency, between a send and a receive a message, else a collective."""
    if len(ends) == 2 and ends[0][0] == ends[1][0]:
        ends[1][1].waits_for["data_deps"].append(ends[0][1].id)
    elif len(ends) == 2 and {bar.type for _, bar in ends} == {"COMM_SEND", "COMM_RECV"}:
        send, receive = sorted(ends, key=lambda end: end[1].type, reverse=True)
        job.meet(send[0], send[1], receive[0], receive[1])
