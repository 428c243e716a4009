"""The published rules of trace viewers, checked of a whole file: Perfetto's format and Chrome's trace events.

Perfetto's are those of the comments in its message definitions (`trace_packet.proto`, `track_event.proto`,
`track_descriptor.proto`, `interned_data.proto`) and of its pages on track events and synthetic traces; Chrome's are those
of the document "Trace Event Format".
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

_REALTIME_TO_BOOTTIME = range(1, 12)
_METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


@dataclass
class Facts:
    """What a file holds, for a test to compare with what it should."""

    slices: int = 0
    tracks: int = 0
    flows: int = 0
    problems: list[str] = field(default_factory=list)

    def rule(self, holds: object, what: str) -> None:
        if not holds:
            self.problems.append(what)


def perfetto_facts(data: bytes) -> Facts:
    """Check a file in Perfetto's format."""
    facts = Facts()
    trace = messages.Trace.FromString(data)
    tracks: dict[int, Any] = {}
    known: dict[int, set[tuple[str, int]]] = {}
    clocks: set[int] = set()
    events = []
    for place, packet in enumerate(trace.packet):
        sequence = packet.trusted_packet_sequence_id
        at = f"packet {place}"
        facts.rule(sequence, f"{at}: no sequence id")
        flags = packet.sequence_flags
        if flags & messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            known[sequence] = set()
        clocks |= {clock.clock_id for clock in packet.clock_snapshot.clocks}
        if packet.timestamp_clock_id:
            usual = packet.timestamp_clock_id in _REALTIME_TO_BOOTTIME
            facts.rule(usual or packet.timestamp_clock_id in clocks, f"{at}: an unknown clock")
        _interned(facts, packet, known, at)
        if packet.HasField("track_descriptor"):
            _descriptor(facts, packet.track_descriptor, tracks, at)
        if packet.HasField("track_event"):
            facts.rule(packet.HasField("timestamp"), f"{at}: an event without a time")
            facts.rule(packet.timestamp < 1 << 63, f"{at}: a time beyond 63 bits")
            _references(facts, packet, known, tracks, at)
            events.append((place, packet))
    # The viewer sorts by time, and keeps the order of the file within a time.
    _nesting(facts, sorted(events, key=lambda one: one[1].timestamp), tracks)
    facts.tracks = len(tracks)
    return facts


def _interned(facts: Facts, packet: Any, known: dict[int, set[tuple[str, int]]], at: str) -> None:
    for kind, entries in packet.interned_data.ListFields():
        for entry in entries:
            facts.rule(packet.trusted_packet_sequence_id in known, f"{at}: texts before the state is cleared")
            there = known.setdefault(packet.trusted_packet_sequence_id, set())
            facts.rule(entry.iid, f"{at}: a text of number 0")
            facts.rule((kind.name, entry.iid) not in there, f"{at}: {kind.name} {entry.iid} is defined twice")
            there.add((kind.name, entry.iid))


def _descriptor(facts: Facts, track: Any, tracks: dict[int, Any], at: str) -> None:
    facts.rule(track.uuid, f"{at}: a track of number 0")
    facts.rule(track.uuid not in tracks, f"{at}: track {track.uuid} is described twice")
    if track.parent_uuid:
        facts.rule(track.parent_uuid in tracks, f"{at}: the parent of track {track.uuid} is not there")
    if track.HasField("thread"):
        parent = tracks.get(track.parent_uuid)
        same = parent is not None and parent.process.pid == track.thread.pid
        facts.rule(same, f"{at}: thread {track.uuid} is not below its process")
        facts.rule(track.thread.tid != track.thread.pid, f"{at}: passes for the main thread")
        others = {(one.thread.pid, one.thread.tid) for one in tracks.values() if one.HasField("thread")}
        facts.rule((track.thread.pid, track.thread.tid) not in others, f"{at}: two threads of one number")
        facts.rule(-(1 << 31) <= track.thread.pid < 1 << 31, f"{at}: a process beyond 32 bits")
    elif track.HasField("process"):
        others = {one.process.pid for one in tracks.values() if one.HasField("process")}
        facts.rule(track.process.pid not in others, f"{at}: two processes of one number")
    tracks[track.uuid] = track


def _references(
    facts: Facts, packet: Any, known: dict[int, set[tuple[str, int]]], tracks: dict[int, Any], at: str
) -> None:
    event, sequence = packet.track_event, packet.trusted_packet_sequence_id
    used = [("event_categories", number) for number in event.category_iids]
    used += [("event_names", event.name_iid)] if event.name_iid else []
    for note in event.debug_annotations:
        used += [("debug_annotation_names", note.name_iid)] if note.name_iid else []
        if note.WhichOneof("value") == "string_value_iid":
            used.append(("debug_annotation_string_values", note.string_value_iid))
        facts.rule(note.name_iid or note.name, f"{at}: an annotation without a name")
        facts.rule(note.WhichOneof("value"), f"{at}: an annotation without a value")
    there = known.get(sequence, set())
    for kind, number in used:
        facts.rule((kind, number) in there, f"{at}: {kind} {number} is used before it is defined")
    if used:
        needs = packet.sequence_flags & messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        facts.rule(needs, f"{at}: uses texts and does not say that it needs them")
    facts.rule(event.track_uuid in tracks, f"{at}: an event on a track that is not described")
    counter = event.track_uuid in tracks and tracks[event.track_uuid].HasField("counter")
    is_counter = event.type == messages.TrackEvent.TYPE_COUNTER
    facts.rule(counter == is_counter, f"{at}: a counter beside counter tracks, or a slice on one")
    if event.type == messages.TrackEvent.TYPE_SLICE_BEGIN:
        facts.rule(event.name_iid or event.HasField("name"), f"{at}: a slice without a name")
        facts.rule(event.category_iids or event.categories, f"{at}: a slice without a category")


def _nesting(facts: Facts, events: list[tuple[int, Any]], tracks: dict[int, Any]) -> None:
    running: Counter[int] = Counter()
    flows: dict[int, list[int]] = defaultdict(list)
    ended: set[int] = set()
    for place, packet in events:
        event = packet.track_event
        if event.type == messages.TrackEvent.TYPE_SLICE_BEGIN:
            running[event.track_uuid] += 1
            facts.slices += 1
            # A thread of ours shows one slice at a time: a deeper one would pass for its callee.
            facts.rule(running[event.track_uuid] == 1, f"packet {place}: a slice within another")
        elif event.type == messages.TrackEvent.TYPE_SLICE_END:
            running[event.track_uuid] -= 1
            facts.rule(running[event.track_uuid] >= 0, f"packet {place}: an end without a beginning")
        for number in (*event.flow_ids, *event.terminating_flow_ids):
            facts.rule(number, f"packet {place}: a flow of number 0")
            facts.rule(number not in ended, f"packet {place}: flow {number} has ended")
            flows[number].append(packet.timestamp)
        ended |= set(event.terminating_flow_ids)
    facts.rule(not +running, "slices that never end")
    facts.rule(all(len(times) > 1 for times in flows.values()), "flows with one end")
    facts.flows = sum(len(times) - 1 for times in flows.values())


def chrome_facts(data: bytes) -> Facts:
    """Check a Chrome trace."""
    facts = Facts()
    content = json.loads(data)
    facts.rule(content.get("displayTimeUnit") in ("ms", "ns"), "displayTimeUnit is neither ms nor ns")
    named: set[tuple[str, int, int]] = set()
    slices: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    flows: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for place, event in enumerate(content["traceEvents"]):
        at, kind = f"event {place}", event.get("ph")
        facts.rule(isinstance(event.get("pid"), int), f"{at}: no process")
        facts.rule(event.get("name") is not None, f"{at}: no name")
        if kind == "M":
            facts.rule(event["name"] in _METADATA, f"{at}: unknown metadata {event['name']}")
            facts.rule(_METADATA.get(event["name"]) in event["args"], f"{at}: metadata without its value")
            named.add((event["name"], event["pid"], event.get("tid", 0)))
            continue
        facts.rule(isinstance(event.get("tid"), int), f"{at}: no thread")
        facts.rule(isinstance(event.get("ts"), int | float), f"{at}: no time")
        if kind == "X":
            facts.rule(event["dur"] >= 0, f"{at}: a length below 0")
            # Nanoseconds, so that sums of microseconds are exact.
            start = round(event["ts"] * 1000)
            slices[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
        elif kind in ("s", "f"):
            facts.rule(
                kind == "s" or event.get("bp") == "e", f"{at}: an end that binds to the slice that follows"
            )
            flows[event["cat"], event["name"], event["id"]].append(event)
        else:
            facts.rule(False, f"{at}: unknown kind {kind}")
    for pid, tid in slices:
        facts.rule(("process_name", pid, 0) in named, f"process {pid} has no name")
        facts.rule(("thread_name", pid, tid) in named, f"thread {tid} of process {pid} has no name")
    _chrome_flows(facts, flows, slices)
    facts.slices = sum(map(len, slices.values()))
    facts.tracks = len(slices)
    for thread, spans in slices.items():
        ordered = sorted(spans)
        apart = all(before[1] <= after[0] for before, after in pairwise(ordered))
        facts.rule(apart, f"slices of thread {thread} overlap")
    return facts


def _chrome_flows(
    facts: Facts,
    flows: dict[tuple[str, str, int], list[dict[str, Any]]],
    slices: dict[tuple[int, int], list[tuple[float, float]]],
) -> None:
    at: dict[tuple[int, int], list[tuple[float, float]]] = {
        key: sorted(spans) for key, spans in slices.items()
    }
    for key, ends in flows.items():
        facts.rule([one["ph"] for one in ends] == ["s", "f"], f"flow {key} is not one start and one end")
        facts.rule(ends[0]["ts"] <= ends[-1]["ts"], f"flow {key} ends before it starts")
        for end in ends:
            time = round(end["ts"] * 1000)
            inside = any(
                start <= time < max(finish, start + 1)
                for start, finish in at.get((end["pid"], end["tid"]), ())
            )
            facts.rule(inside, f"flow {key} touches no slice")
    facts.flows = len(flows)
