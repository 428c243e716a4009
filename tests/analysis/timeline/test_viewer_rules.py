"""Timelines that are written for viewers obey the viewers' published rules."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

import studio
from studio.analysis.timeline.chrome import iterate_chrome_events
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.perfetto import iterate_perfetto_events
from studio.analysis.timeline.slices import Slices
from studio.samples import sample_path
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.timeline import recorded
from studio.trace import read_int_column
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled
from tests.viewer_rules import chrome_facts, perfetto_facts

LOG = "issue,a=0,b=5,c=1,d=x,type=4\nissue,a=1,b=5,c=1,d=y,type=7\ncallback,a=1,b=5,c=1,d=y,type=7\n"


def of(trace: studio.Trace) -> Gantt:
    timeline = recorded(trace)
    return Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))


@cache
def job() -> studio.Trace:
    """Half of a job, in which ranks send to each other."""
    trace = studio.read(sample_path("transformer_8r"))
    return replace(trace, ranks=tuple(rank for rank in trace.ranks if rank.number % 2 == 0))


def sample() -> Gantt:
    return of(job())


@cache
def sample_chrome() -> str:
    return "".join(iterate_chrome_events(sample()))


def early_receives() -> Gantt:
    """Receives posted a millisecond before their sends, and sends that begin after their receives ended."""
    trace = job()
    graphs = []
    for graph in trace.graphs:
        early = 1_000_000 * (graph.type == 6)
        late = 9_000_000_000 * ((graph.type == 5) & (np.arange(len(graph)) % 2 == 0))
        graphs.append(
            replace(graph, start_ns=graph.start_ns - early + late, duration_ns=graph.duration_ns + early)
        )
    return of(replace(trace, graphs=tuple(graphs)))


def overlapping() -> Gantt:
    """Nodes that all begin at once and last differently, some of them for no time."""
    trace = job()
    graph = trace.graphs[0]
    many = replace(graph, start_ns=np.full(len(graph), 1000), duration_ns=np.arange(len(graph)) // 3)
    return of(replace(trace, graphs=(many, *trace.graphs[1:])))


def folded() -> Gantt:
    """A simulation in which one rank stands for all."""
    nodes = [node(1, "COMP", micros=3), collective(2, "ALL_REDUCE", 1 << 20, 1)]
    topology = Topology((Dimension("ring", 2, 50.0, 500.0),))
    system = SystemConfig(topology, algorithms={"all_reduce": (Algorithm("ring"),)})
    result = studio.simulate(trace_of([nodes, nodes]), system, native=compiled(), fold=True)
    assert result.classes == 1
    return Gantt(result.trace, result.timeline())


def log(tmp_path) -> Gantt:
    (tmp_path / "log").write_text(LOG)
    return of(studio.read(tmp_path / "log"))


MADE = {
    "recording": sample,
    "early receives": early_receives,
    "overlapping": overlapping,
    "folded run": folded,
}


@pytest.mark.parametrize("what", [*MADE, "log"])
def test_files_obey_the_rules_of_perfetto_and_of_chrome(what, tmp_path):
    gantt = log(tmp_path) if what == "log" else MADE[what]()
    flows = sum(1 for _ in Slices(gantt).flows())
    assert (flows == 0) == (what == "log")
    perfetto = perfetto_facts(b"".join(iterate_perfetto_events(gantt)))
    chrome = chrome_facts("".join(iterate_chrome_events(gantt)).encode())
    for facts in (perfetto, chrome):
        assert facts.problems[:5] == []
        assert facts.slices == len(gantt) > 0
        assert facts.tracks
    assert chrome.flows == flows


def set_flag(packets, _events):
    packets[0].sequence_flags = 0


def drop_texts(packets, _events):
    packets[0].ClearField("interned_data")


def second_name(_packets, events):
    events[0].interned_data.event_names.add(iid=events[0].track_event.name_iid, name="other")


def lose_parent(packets, _events):
    threads = (one.track_descriptor for one in packets if one.track_descriptor.HasField("thread"))
    next(threads).parent_uuid = 999


def lose_end(packets, events):
    packets.remove(next(one for one in events if one.track_event.type == messages.TrackEvent.TYPE_SLICE_END))


def lone_flow(_packets, events):
    events[0].track_event.flow_ids.append(77)


def counter(_packets, events):
    events[0].track_event.type = messages.TrackEvent.TYPE_COUNTER


def clock(_packets, events):
    events[0].timestamp_clock_id = 64


def no_sequence(_packets, events):
    events[0].trusted_packet_sequence_id = 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_flag, "before the state is cleared"),
        (drop_texts, "used before it is defined"),
        (second_name, "is defined twice"),
        (lose_parent, "parent of track"),
        (lose_end, "never end"),
        (lone_flow, "flows with one end"),
        (counter, "a counter beside counter tracks"),
        (clock, "an unknown clock"),
        (no_sequence, "no sequence id"),
    ],
)
def test_what_breaks_a_rule_of_perfetto_is_noticed(change, words):
    trace = messages.Trace.FromString(b"".join(iterate_perfetto_events(folded())))
    change(trace.packet, [packet for packet in trace.packet if packet.HasField("track_event")])
    assert words in "; ".join(perfetto_facts(trace.SerializeToString()).problems)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda slices, _flows: slices[0].update(dur=1e9), "overlap"),
        (lambda _slices, flows: flows[-1].update(ts=1e9), "touches no slice"),
        (lambda _slices, flows: flows[-2].update(ts=1e9), "ends before it starts"),
        (lambda _slices, flows: flows[-1].update(id=77), "is not one start and one end"),
        (lambda slices, _flows: slices[0].update(tid=77), "has no name"),
    ],
)
def test_what_breaks_a_rule_of_chrome_is_noticed(change, words):
    content = json.loads(sample_chrome())
    kinds = ("X",), ("s", "f")
    change(*([one for one in content["traceEvents"] if one["ph"] in of] for of in kinds))
    assert words in "; ".join(chrome_facts(json.dumps(content).encode()).problems)


def test_messages_that_go_back_in_time_read_back_as_they_were(tmp_path):
    """The arrow is drawn backwards, as viewers demand; the studio reads it the right way round."""
    gantt = early_receives()
    for name, pieces in (("x.json", iterate_chrome_events(gantt)), ("straight.json", sample_chrome())):
        (tmp_path / name).write_text("".join(pieces))
    assert '"reversed": true' in (tmp_path / "x.json").read_text()
    assert '"reversed"' not in (tmp_path / "straight.json").read_text()
    back, straight = (studio.read(tmp_path / name) for name in ("x.json", "straight.json"))
    sent = [
        sorted(zip(*read_int_column(graph, key, rank.slots), strict=True))
        for trace in (back, straight) for key in ("comm_dst", "comm_src")
        for rank in trace.ranks for graph in [trace.graph_of(rank)]
    ]  # fmt: skip
    assert sum(map(len, sent[: len(sent) // 2])) == sum(map(len, sent[len(sent) // 2 :])) > 0
    assert not any(finding.code == "damaged-event" for finding in back.findings)


@pytest.mark.skipif(
    shutil.which("trace_processor_shell") is None, reason="trace_processor_shell is not on the PATH"
)
def test_perfettos_own_trace_processor_imports_every_slice_and_flow_without_an_error(tmp_path):
    gantt = sample()
    flows = sum(1 for _ in Slices(gantt).flows())
    for name, data in (
        ("x.pftrace", b"".join(iterate_perfetto_events(gantt))),
        ("x.json", "".join(iterate_chrome_events(gantt)).encode()),
    ):
        (tmp_path / name).write_bytes(data)
        (tmp_path / "q.sql").write_text(
            "select (select count(*) from slice), (select count(*) from flow), "
            "(select coalesce(sum(value), 0) from stats where severity in ('error', 'data_loss'));"
        )
        done = subprocess.run(
            ["trace_processor_shell", "-q", str(tmp_path / "q.sql"), str(tmp_path / name)],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        assert done.stdout.strip().splitlines()[-1] == f"{len(gantt)},{flows},0"
