"""Timelines in Perfetto's own format, read back with the messages of Perfetto's package."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

import studio
from studio.analysis.timeline import perfetto as module
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.peers import find_peers
from studio.analysis.timeline.perfetto import iterate_perfetto_events
from studio.analysis.timeline.slices import Slices
from studio.errors import StudioError
from studio.samples import sample_path
from studio.timeline import LANE_KINDS, recorded
from studio.trace import NodeType, Strings, type_name

HOSTILE = (
    "<script>alert(1)</script>",
    'quote " and \\ and \n',
    "\x00nothing",
    "",
    b"half \xff",
    "日本 🚀 " * 400,
)


def sample() -> studio.Trace:
    return studio.read(sample_path("transformer_8r"))


def drawn(trace: studio.Trace) -> Gantt:
    timeline = recorded(trace)
    return Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))


class Slice(NamedTuple):
    rank: str
    lane: str
    category: str
    name: str
    start: int
    end: int
    id: int
    type: str
    bytes: int


def read_back(data: bytes) -> tuple[list[Slice], list[tuple[int, int]]]:
    """Read a file as Perfetto does: texts by sequence, events by time, flows in the order of their events."""
    trace = messages.Trace.FromString(data)
    texts: dict[tuple[int, str, int], str] = {}
    tracks: dict[int, tuple[str, str]] = {}
    processes: dict[int, str] = {}
    events = []
    opened: set[int] = set()
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            assert sequence not in opened
            opened.add(sequence)
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                text = entry.str.decode() if kind.name == "debug_annotation_string_values" else entry.name
                assert entry.iid
                assert texts.setdefault((sequence, kind.name, entry.iid), text) == text
        if packet.HasField("track_descriptor"):
            found = packet.track_descriptor
            assert found.uuid not in {0, *tracks, *processes}
            if found.HasField("process"):
                processes[found.uuid] = found.process.process_name
            else:
                tracks[found.uuid] = processes[found.parent_uuid], found.thread.thread_name
        if packet.HasField("track_event"):
            assert sequence in opened
            assert packet.sequence_flags & messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            events.append(packet)
    return _joined(sorted(events, key=lambda packet: packet.timestamp), texts, tracks)


def _joined(events, texts, tracks) -> tuple[list[Slice], list[tuple[int, int]]]:
    slices: list[Slice] = []
    running: dict[int, int] = {}
    flows: dict[int, list[int]] = {}
    for packet in events:
        event, sequence = packet.track_event, packet.trusted_packet_sequence_id
        if event.type == messages.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in running, "slices of one thread overlap"
            running[event.track_uuid] = at = len(slices)
            told = {
                texts[sequence, "debug_annotation_names", one.name_iid]: one
                for one in event.debug_annotations
            }
            kind = texts[sequence, "debug_annotation_string_values", told["type"].string_value_iid]
            size = told["bytes"].int_value if "bytes" in told else 0
            names = (
                texts[sequence, "event_categories", event.category_iids[0]],
                texts[sequence, "event_names", event.name_iid],
            )
            time = packet.timestamp
            slices.append(
                Slice(*tracks[event.track_uuid], *names, time, -1, told["id"].uint_value, kind, size)
            )
        else:
            at = running.pop(event.track_uuid)
            slices[at] = slices[at]._replace(end=packet.timestamp)
        for number in event.flow_ids:
            flows.setdefault(number, []).append(at)
    assert not running
    return slices, [pair for chain in flows.values() for pair in pairwise(chain)]


def expected(gantt: Gantt) -> dict[tuple[int, int], Slice]:
    """Every slice, by rank and node."""
    found = {}
    for rank in gantt.trace.ranks:
        graph = gantt.trace.graph_of(rank)
        for node in range(len(graph)):
            bar = gantt.bar(rank, node)
            if bar is None:
                continue
            kind = LANE_KINDS[int(gantt.rows.kind[bar.row])]
            lane = f"{kind} {gantt.rows.names[int(gantt.rows.name[bar.row])]}".strip()
            level = int(gantt.rows.level[bar.row])
            found[rank.number, node] = Slice(
                f"rank {rank.number}",
                lane + (f" · {level + 1}" if level else ""),
                kind,
                graph.strings[int(graph.name[node])],
                bar.start_ns,
                bar.end_ns,
                int(graph.id[node]),
                type_name(int(graph.type[node])),
                gantt.bytes_of(bar),
            )
    return found


def expected_flows(gantt: Gantt, of: dict[tuple[int, int], Slice]) -> set[tuple[Slice, Slice]]:
    """Dependencies, neighbours in the arrival at a collective, and messages from send to receive."""
    found = set()
    for rank in gantt.trace.ranks:
        graph = gantt.trace.graph_of(rank)
        edges = gantt.adjacency_of(rank).edges
        for ends in zip(edges.before.tolist(), edges.after.tolist(), strict=True):
            found.add(tuple(of[rank.number, node] for node in ends))
        for node in np.flatnonzero(np.isin(graph.type, (NodeType.COMM_COLL, NodeType.COMM_SEND))).tolist():
            bars = find_peers(gantt, gantt.bar(rank, node)).bars
            if graph.type[node] == NodeType.COMM_SEND:
                bars = sorted(bars, key=lambda bar: bar.rank.number != rank.number)
            found |= set(pairwise(of[bar.rank.number, bar.node] for bar in bars))
    return found


def test_a_file_read_back_tells_every_slice_and_every_flow() -> None:
    gantt = drawn(sample())
    of = expected(gantt)
    pieces = list(iterate_perfetto_events(gantt))
    slices, pairs = read_back(b"".join(pieces))
    assert len(slices) == len(gantt) == 2488
    assert sorted(slices) == sorted(of.values())
    assert len(set(slices)) == len(slices)
    flows = {(slices[one], slices[two]) for one, two in pairs}
    assert flows == expected_flows(gantt, of)
    assert len(pairs) == len(flows) == sum(1 for _ in Slices(gantt).flows())
    assert len(pieces) > len(gantt.trace.ranks)


def test_a_receive_posted_before_its_send_is_still_where_the_message_arrives() -> None:
    trace = sample()
    graphs = []
    for graph in trace.graphs:
        early = 1_000_000 * (graph.type == NodeType.COMM_RECV)
        start, duration = graph.start_ns - early, graph.duration_ns + early
        graphs.append(replace(graph, start_ns=start, duration_ns=duration))
    gantt = drawn(replace(trace, graphs=tuple(graphs)))
    slices, pairs = read_back(b"".join(iterate_perfetto_events(gantt)))
    joined = [(slices[one], slices[two]) for one, two in pairs]
    met = [
        pair
        for pair in joined
        if pair[0].rank != pair[1].rank and pair[0].type.startswith(("COMM_S", "COMM_R"))
    ]
    assert len(met) == np.count_nonzero(gantt.messages.send_rank >= 0)
    assert all((one.type, two.type) == ("COMM_SEND", "COMM_RECV") for one, two in met)
    assert all(two.start < one.start for one, two in met)


def test_hostile_names_survive() -> None:
    trace = sample()
    graph = trace.graphs[0]
    strings = Strings.of((*graph.strings, *HOSTILE))
    name = graph.name.copy()
    name[: len(HOSTILE)] = np.arange(len(graph.strings), len(strings))
    changed = replace(trace, graphs=(replace(graph, strings=strings, name=name), *trace.graphs[1:]))
    gantt = drawn(changed)
    slices, _ = read_back(b"".join(iterate_perfetto_events(gantt)))
    of = expected(gantt)
    owner = next(rank.number for rank in changed.ranks if rank.graph == 0)
    for node, text in enumerate(HOSTILE):
        assert of[owner, node] in slices
        assert of[owner, node].name == ("half \ufffd" if isinstance(text, bytes) else text)


def test_what_overlaps_beyond_the_rows_of_a_lane_gets_threads_of_its_own() -> None:
    """Perfetto would end the wrong slice, were two open in one thread."""
    trace = sample()
    graph = trace.graphs[0]
    many = replace(graph, start_ns=np.full(len(graph), 1000), duration_ns=np.arange(len(graph)) + 10)
    gantt = drawn(replace(trace, graphs=(many, *trace.graphs[1:])))
    slices, _ = read_back(b"".join(iterate_perfetto_events(gantt)))

    def times(found):
        return sorted((one.rank, one.name, one.start, one.end, one.id) for one in found)

    assert times(slices) == times(expected(gantt).values())


@pytest.mark.parametrize("rank", [0, 1 << 40])
def test_ranks_of_any_number_can_be_written(rank) -> None:
    trace = sample()
    last = replace(trace.ranks[-1], number=rank + 99)
    slices, _ = read_back(
        b"".join(iterate_perfetto_events(drawn(replace(trace, ranks=(*trace.ranks[:-1], last)))))
    )
    assert f"rank {rank + 99}" in {one.rank for one in slices}


def test_a_rank_without_times_has_no_slices_and_no_flows() -> None:
    trace = sample()
    last = trace.ranks[-1]
    graph = trace.graph_of(last)
    untimed = replace(graph, start_ns=np.full(len(graph), -1))
    ranks = (*trace.ranks[:-1], replace(last, graph=len(trace.graphs)))
    gantt = drawn(replace(trace, graphs=(*trace.graphs, untimed), ranks=ranks))
    slices, pairs = read_back(b"".join(iterate_perfetto_events(gantt)))
    assert {one.rank for one in slices} == {f"rank {rank.number}" for rank in trace.ranks[:-1]}
    assert len(pairs) == sum(1 for _ in Slices(gantt).flows())


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch) -> None:
    gantt = drawn(sample())
    versions = {"perfetto": "0.59.1", "protobuf": "5.29.3"}
    monkeypatch.setattr(module, "version", versions.__getitem__)
    with pytest.raises(StudioError, match=r"needs protobuf 6\.31\.1 or newer; 5\.29\.3") as old:
        iterate_perfetto_events(gantt)
    assert "pip install 'chakra-studio[perfetto]'" in old.value.hint
    versions["protobuf"] = "6.31.1"
    assert module.explain_unwritable() == ""
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(StudioError, match="cannot be imported"):
        iterate_perfetto_events(gantt)

    def missing(name: str) -> str:
        raise module.PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", missing)
    with pytest.raises(StudioError, match="which is not installed") as absent:
        iterate_perfetto_events(gantt)
    assert "pip install 'chakra-studio[perfetto]'" in absent.value.hint


@pytest.mark.integration
def test_importing_the_module_does_not_load_the_package() -> None:
    code = "import sys, studio.analysis.timeline.perfetto; sys.exit('perfetto' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_written_in_bulk_is_what_protobuf_would_write() -> None:
    """Packets are put together from encoded parts; read and written again by protobuf they are the same bytes."""
    jobs = (
        sample(),
        studio.generate("gpt3-125m", ranks=4, tp=2, pp=2, batch=2, gpu="a100"),
    )
    systems = (None, studio.preset("hgx-a100", npus=4))
    for trace, system in zip(jobs, systems, strict=True):
        gantt = Gantt(trace, studio.simulate(trace, system).timeline()) if system else drawn(trace)
        data = b"".join(iterate_perfetto_events(gantt))
        assert messages.Trace.FromString(data).SerializeToString() == data


def test_slices_of_one_graph_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ranks share a graph: what begins a slice differs among them in its time, thread and flows only."""
    trace = studio.generate("gpt3-125m", ranks=8, tp=2, batch=8, gpu="a100")
    told: list[list[int]] = []
    tell = module._Writer._tell
    monkeypatch.setattr(module._Writer, "_tell", lambda self, what: told.append(what) or tell(self, what))
    result = studio.simulate(trace, studio.preset("hgx-a100", npus=8))
    list(iterate_perfetto_events(Gantt(trace, result.timeline())))
    assert len(trace.graphs) == 1
    assert len(told) == len(trace.graphs[0])
