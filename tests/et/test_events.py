"""Issue and callback lines as a recorded timeline, and timelines written as such lines and as Chrome traces."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import studio
from studio import timeline
from studio.analysis.timeline.chrome import iterate_chrome_events
from studio.analysis.timeline.gantt import Gantt
from studio.analysis.timeline.perfetto import iterate_perfetto_events
from studio.analysis.timeline.slices import Slices
from studio.commands.base import timelines
from studio.commands.base.timelines import write_events
from studio.commands.convert import Request, run
from studio.errors import StudioError, TraceError, TraceFormatError
from studio.et.format import JobSize
from studio.samples import sample_path
from studio.sim.config import Algorithm, Dimension, SystemConfig, Topology
from studio.trace import Trace
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

LINE = "{word},sys->id={rank},tick={tick},node->id={node},node->name={name},node->type={kind}\n"


def lines(*events: tuple[str, int, int, int], name: str = "x", kind: int = 4) -> str:
    return "".join(
        LINE.format(word=word, rank=rank, tick=tick, node=node, name=name, kind=kind)
        for word, rank, tick, node in events
    )


def spans(trace: Trace) -> list[tuple[int, int, str, int, int, int]]:
    """Rank, id, name, type, start and duration of every node."""
    return sorted(
        (rank.number, int(i), graph.strings[n], int(t), int(s), int(d))
        for rank in trace.ranks
        for graph in [trace.graph_of(rank)]
        for i, n, t, s, d in zip(
            graph.id, graph.name, graph.type, graph.start_ns, graph.duration_ns, strict=True
        )
    )


def read(tmp_path, text: str) -> Trace:
    path = tmp_path / "log"
    path.write_text(text)
    return studio.read(path)


def test_the_three_files_of_one_run_tell_the_same(shared):
    """With type names in the names, as in the trace, and behind a logger's prefix; every node of eight ranks."""
    folder = shared / "traces" / "timeline"
    raw = spans(studio.read(folder / "llama_8r_rawnames.csv.gz"))
    assert raw == spans(studio.read(folder / "llama_8r.simulator_log.txt.gz"))
    marked = spans(studio.read(folder / "llama_8r.csv.gz"))
    assert [(*one[:2], *one[3:]) for one in marked] == [(*one[:2], *one[3:]) for one in raw]
    assert len(raw) == 2816
    with gzip.open(folder / "llama_8r_rawnames.csv.gz", "rt") as stream:
        ended = {}
        for line in stream:
            fields = dict(part.strip().partition("=")[::2] for part in line.split(",")[1:])
            if line.startswith("callback"):
                ended[int(fields["sys->id"]), int(fields["node->id"])] = int(fields["tick"])
    assert all(start + length == ended[rank, number] for rank, number, _, _, start, length in raw)


def test_the_golden_timeline_has_the_same_spans(shared):
    """The existing tool writes milliseconds at 1,500 MHz, and leaves out what it cannot type by its name."""
    golden = json.loads(
        gzip.decompress((shared / "traces/golden/timeline/llama_8r.1500MHz.timeline.json.gz").read_bytes())
    )
    theirs = sorted(
        (event["pid"], event["name"], round(event["ts"] * 1.5e6), round(event["dur"] * 1.5e6))
        for event in golden["traceEvents"]
    )
    trace = studio.read(shared / "traces" / "timeline" / "llama_8r.csv.gz")
    ours = sorted((rank, name, start, length) for rank, _, name, _, start, length in spans(trace))
    assert ours == theirs


def test_prefixes_other_lines_and_names(tmp_path):
    text = (
        "[info] starting\n[t] issue,sys->id=0,tick=\n"
        "[t] [D] <workload>: issue,sys->id=3, tick=5, node->id=1, node->name=f(a, b=2), c=d, node->type=7\n"
        "progress 10%: nothing,sys->id=1\n"
        "x: callback,a=3,b=9,c=1,d=f(a, b=2), c=d,node->type=7\r\n"
    )
    assert spans(read(tmp_path, text)) == [(3, 1, "f(a, b=2), c=d", 7, 5, 4)]


def test_files_without_types_are_typed_by_their_names(tmp_path):
    text = "issue,a=0,b=0,c=1,d=COMM_COLL_NODE_x\ncallback,a=0,b=2,c=1,d=COMM_COLL_NODE_x\nissue,a=0,b=2,c=2,d=why\n"
    trace = read(tmp_path, text)
    assert [one[3] for one in spans(trace)] == [7, 0]
    assert {finding.code for finding in trace.findings} >= {"type-inferred", "unknown-type", "unfinished"}


def test_what_is_unfinished_or_odd_is_kept_and_counted(tmp_path):
    trace = read(
        tmp_path,
        lines(
            ("issue", 0, 5, 1),
            ("issue", 70_000, 5, 1),
            ("callback", 0, 9, 2),
            ("issue", 1, 9, 3),
            ("callback", 1, 4, 3),
        )
        + f"issue,a=0,b={2**64},c=1,d=x,e=4\nissue,a=\n",
    )
    assert spans(trace) == [
        (0, 1, "x", 4, 5, 0), (0, 2, "x", 4, -1, 0), (1, 3, "x", 4, 9, 0), (70_000, 1, "x", 4, 5, 0),
    ]  # fmt: skip
    told = {finding.code: finding.message for finding in trace.findings}
    assert told.keys() == {
        "timeline-only",
        "unfinished",
        "no-issue",
        "backwards",
        "bad-value",
        "damaged-line",
    }
    assert told["unfinished"].endswith("no duration: 2.")


def test_a_node_that_runs_twice_is_two_nodes(tmp_path):
    twice = lines(("issue", 0, 0, 1), ("callback", 0, 2, 1), ("issue", 0, 5, 1), ("callback", 0, 9, 1))
    trace = read(tmp_path, twice)
    assert [one[4:] for one in spans(trace)] == [(0, 2), (5, 4)]
    assert "duplicate-id" in {finding.code for finding in trace.findings}


def test_a_file_without_a_complete_line_is_refused(tmp_path):
    with pytest.raises(TraceFormatError):
        read(tmp_path, "issue,sys->id=0,tick=")


def test_what_a_simulation_writes_reads_as_what_it_found(tmp_path):
    nodes = [
        node(1, "COMP", name="a, b=c", micros=3),
        node(2, "COMP", 1, micros=4),
        node(3, "COMP", micros=0),
    ]
    trace = trace_of({0: nodes, 1: [node(9, "COMP", name="x,node->type=4", micros=5)]})
    result = studio.simulate(
        trace, SystemConfig(Topology((Dimension("ring", 2, 50.0, 500.0),))), native=compiled()
    )
    write_events(result, tmp_path / "events.csv")
    shown = result.timeline()
    expected = sorted(
        (
            lane.rank,
            int(graph.id[row]),
            graph.strings[graph.name[row]],
            int(graph.type[row]),
            start,
            end - start,
        )
        for number, lane in enumerate(shown.lanes)
        for graph in [trace.graph_of(trace.rank(lane.rank))]
        for row, start, end in zip(
            *(column[shown.of_lane(number)].tolist() for column in (shown.row, shown.start_ns, shown.end_ns)),
            strict=True,
        )
    )
    assert spans(studio.read(tmp_path / "events.csv")) == expected


def test_what_is_written_reads_as_the_same(tmp_path):
    timed = tmp_path / "t.csv"
    timed.write_text(
        lines(("issue", 0, 1, 1), ("callback", 0, 4, 1), ("issue", 1, 4, 7), ("callback", 1, 4, 7))
    )
    [again] = run(Request(timed, tmp_path / "again.csv")).files
    assert spans(studio.read(again)) == spans(studio.read(timed))
    assert studio.read(again) == studio.read(timed)


def test_a_chrome_trace_has_every_span_in_microseconds(shared, tmp_path):
    source = shared / "traces" / "timeline" / "llama_8r_rawnames.csv.gz"
    [path] = run(Request(source, tmp_path / "x.json")).files
    events = json.loads(path.read_text())["traceEvents"]
    trace = studio.read(source)
    shown = sorted(
        (one["pid"], one["args"]["id"], one["name"], round(one["ts"] * 1000), round(one["dur"] * 1000))
        for one in events
        if one["ph"] == "X"
    )
    assert shown == sorted(
        (rank, number, name, start, length) for rank, number, name, _, start, length in spans(trace)
    )
    lanes = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert len(lanes) == len(timeline.recorded(trace).lanes)
    assert all((one["pid"], one["tid"]) in lanes for one in events if one["ph"] == "X")
    assert run(Request(source, path)).files == (path,)


def test_without_times_there_is_no_timeline_to_write(tmp_path):
    source = tmp_path / "w.txt"
    source.write_text("MICRO\n1\na -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 5\n")
    with pytest.raises(TraceError, match="no node of the trace has a start"):
        run(Request(source, tmp_path / "x.json", size=JobSize(2)))
    assert not (tmp_path / "x.json").exists()
    (tmp_path / "groups.json").write_text('{"a": [1]}')
    with pytest.raises(TraceError, match="no trace"):
        run(Request(source, tmp_path / "groups.json", size=JobSize(2)))


def test_times_of_all_sizes_are_written_exactly(tmp_path):
    source = tmp_path / "t.csv"
    source.write_text(lines(("issue", 0, 2**62 + 1, 1), ("callback", 0, 2**62 + 8, 1)))
    [path] = run(Request(source, tmp_path / "x.json")).files
    assert '"ts": 4611686018427387.905, "dur": 0.007' in path.read_text()
    assert np.array_equal(studio.read(source).graphs[0].start_ns, [2**62 + 1])


@pytest.mark.parametrize("suffix", [".json", ".pftrace"])
def test_convert_and_events_write_what_the_timeline_page_saves(suffix, tmp_path):
    """The recording by `convert`, the simulation by `--events`: bytes equal to those of the page's exporters."""
    write = {".json": lambda gantt: "".join(iterate_chrome_events(gantt)).encode(), ".pftrace": joined}[
        suffix
    ]
    studio.write(studio.read(sample_path("transformer_8r")), tmp_path / "in", "job")
    [path] = run(Request(tmp_path / "in", tmp_path / "new" / f"recorded{suffix}")).files
    trace = studio.read(tmp_path / "in")
    assert path.read_bytes() == write(Gantt(trace, timeline.recorded(trace)))
    # A file of the form may be written again, another may not.
    assert run(Request(tmp_path / "in", path)).files == (path,)
    path.write_bytes(b"{}")
    with pytest.raises(TraceError, match="no trace"):
        run(Request(tmp_path / "in", path))
    nodes = [node(1, "COMP", micros=3), collective(2, "ALL_REDUCE", 1 << 20, 1)]
    topology = Topology((Dimension("ring", 2, 50.0, 500.0),))
    system = SystemConfig(topology, algorithms={"all_reduce": (Algorithm("ring"),)})
    result = studio.simulate(trace_of([nodes, nodes]), system, native=compiled(), fold=True)
    assert result.classes == 1
    saved = tmp_path / "deep" / f"simulated{suffix}"
    write_events(result, saved)
    whole = Gantt(result.trace, result.timeline())
    assert saved.read_bytes() == write(whole)
    # A dependency on either rank, and the collective between them.
    assert sum(1 for _ in Slices(whole).flows()) == 3
    assert names_of(saved.parent) == [saved.name]


def joined(gantt):
    return b"".join(iterate_perfetto_events(gantt))


def names_of(folder):
    return sorted(path.name for path in folder.iterdir())


def test_without_the_package_perfettos_format_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(
        timelines, "explain_unwritable", lambda: "It is written by perfetto, which is not installed."
    )
    with pytest.raises(StudioError, match="which is not installed") as refused:
        run(Request(tmp_path / "nothing", tmp_path / "x.pftrace"))
    assert "pip install 'chakra-studio[perfetto]'" in refused.value.hint
    assert ".json" in refused.value.hint
    assert names_of(tmp_path) == []
