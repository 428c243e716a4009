"""The timeline's routes, asked as the page asks them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import flask
import numpy as np
import pytest

import studio
from studio.analysis.job.node_refs import format_node_ref
from studio.analysis.path.whole import build_whole_path
from studio.analysis.timeline import perfetto as perfetto_events
from studio.analysis.timeline.counters import count_in_flight
from studio.analysis.timeline.differences import Ghost
from studio.analysis.timeline.gantt import TILE_BINS, Gantt
from studio.analysis.timeline.undrawn import Undrawn, find_undrawn
from studio.errors import TraceError
from studio.samples import sample_path
from studio.server.path import build_outline
from studio.server.timeline import build_timeline_blueprint
from studio.sim.compared import build_side
from studio.timeline import NodeTimes, collect_node_times, recorded
from studio.trace import NodeType
from tests.handmade import collective, node, trace_of

TYPES = {"int32": np.int32, "float64": np.float64, "uint8": np.uint8}


@pytest.fixture(scope="module")
def gantt() -> Gantt:
    trace = studio.read(sample_path("transformer_8r"))
    timeline = recorded(trace)
    return Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))


def slower(gantt: Gantt) -> NodeTimes:
    """The times of a run that took twice as long, in which the first node of rank 3 is missing."""
    times = collect_node_times(gantt.trace, recorded(gantt.trace))
    for column in (times.start_ns, times.end_ns):
        column[column >= 0] = gantt.origin_ns + 2 * (column[column >= 0] - gantt.origin_ns)
    times.start_ns[times.first[3]] = -1
    return times


@pytest.fixture(scope="module")
def client(gantt):
    server = flask.Flask("timeline")

    def find(job: str, run: str) -> Gantt:
        if (job, run) != ("job", ""):
            raise TraceError(f"There is no run {run!r}.", hint="Choose another.")
        return gantt

    def ghost(job: str, run: str, other: str) -> Gantt:
        shown = find(job, run)
        if other != "slower":
            raise TraceError(f"There is no run {other!r}.", hint="Choose another.")
        return Ghost(shown, slower(shown), origin_ns=shown.origin_ns)

    side = build_side(gantt.trace)
    server.config["SESSION"] = SimpleNamespace(
        gantt=find,
        ghost=ghost,
        counters=lambda job, run: count_in_flight(find(job, run)),
        whole_path=lambda job, run: build_whole_path(side, side.ledger()),
    )
    server.register_blueprint(build_timeline_blueprint())
    return server.test_client()


def unpacked(answer) -> dict:
    """Read the packed form as its documentation says."""
    assert answer.status_code == 200
    raw = answer.data
    length = int.from_bytes(raw[:4], "little")
    found = json.loads(raw[4 : 4 + length])
    for name, kind, offset, count in found["arrays"]:
        at = 4 + length + offset
        assert at % 8 == 0
        found[name] = np.frombuffer(raw, np.dtype(TYPES[kind]).newbyteorder("<"), count, at)
    return found


def test_the_rows_of_a_job(client, gantt) -> None:
    found = unpacked(client.get("/api/jobs/job/timeline"))
    assert found["span"] == gantt.span_ns
    assert found["bars"] == 2488
    assert found["undrawn"] == ""  # every node has a start
    assert found["rank"].tolist() == gantt.rows.rank.tolist()
    assert [found["names"][name] for name in found["name"]] == [
        gantt.rows.names[name] for name in gantt.rows.name
    ]
    assert found["finish"].max() == gantt.span_ns


def test_nodes_without_a_bar_are_counted_by_type_with_the_reason() -> None:
    """Rank 0 has the times of two nodes of three, rank 1 none, and the numbers add up to all nodes."""
    timed = [node(1, "COMP", micros=2), node(2, "METADATA"), node(3, "COMP", 1, micros=3)]
    trace = trace_of([timed, [node(1, "COMP", micros=2), collective(2, "ALL_REDUCE", 64, 1)]])
    first = trace.graph_of(trace.ranks[0])
    first.start_ns[:] = [5_000, -1, 9_000]
    trace.graph_of(trace.ranks[1]).start_ns[:] = -1
    gantt = Gantt(trace, recorded(trace), origin_ns=5_000)
    found = find_undrawn(gantt)
    assert found == Undrawn(5, (("METADATA", 1), ("COMP", 1), ("COMM_COLL", 1)), (1,))
    assert len(gantt) + found.count == found.nodes
    server = flask.Flask("untimed")
    server.config["SESSION"] = SimpleNamespace(gantt=lambda job, run: gantt)
    server.register_blueprint(build_timeline_blueprint())
    asked = server.test_client().get
    assert unpacked(asked("/api/jobs/job/timeline"))["undrawn"] == (
        "3 of 5 nodes have no bar, as no start was recorded: 1 METADATA, 1 COMP, 1 COMM_COLL. "
        "Without any bar: rank 1."
    )
    simulated = unpacked(asked("/api/jobs/job/timeline?run=some"))["undrawn"]
    assert "as the simulation did not run them" in simulated


def test_a_tile_is_the_librarys(client, gantt) -> None:
    found = unpacked(client.get("/api/jobs/job/timeline/tile?level=14&tile=1&rows=0-2,9"))
    expected = gantt.tile(14, 1, [0, 1, 2, 9])
    for name in (
        "bars",
        "start",
        "end",
        "node",
        "name",
        "bytes",
        "waits",
        "category",
        "binned",
        "begun",
        "fraction",
    ):
        np.testing.assert_array_equal(found[name], getattr(expected, name).reshape(-1))
    assert tuple(found["names"]) == expected.names
    assert found["bars"][-1] > 0
    assert (found["start"] < TILE_BINS << 14).all()


def test_a_node_comes_with_its_neighbours(client, gantt) -> None:
    found = client.get("/api/jobs/job/timeline/node?rank=2&node=118").json
    rank = gantt.rank(2)
    graph = gantt.trace.graph_of(rank)
    row = graph.id.tolist().index(118)
    bar = gantt.bar(rank, row)
    assert bar is not None
    assert found["bar"] == {
        "rank": 2,
        "node": format_node_ref(graph, row),
        "index": row,
        "row": bar.row,
        "start": bar.start_ns,
        "end": bar.end_ns,
        "waits": 0,
        "name": graph.strings[int(graph.name[row])],
        "type": "COMP",
        "bytes": 0,
    }
    assert found["previous"]["start"] <= found["bar"]["start"] <= found["next"]["start"]
    assert {one["index"] for one in found["up"]} == {
        int(one) for one in [*graph.data.of(row), *graph.ctrl.of(row)]
    }
    by_index = client.get(f"/api/jobs/job/timeline/node?rank=2&index={row}").json
    by_place = client.get(f"/api/jobs/job/timeline/node?row={bar.row}&at={bar.start_ns}&within=0").json
    assert by_index == by_place == found
    assert client.get("/api/jobs/job/timeline/node?row=0&at=9000000000&within=1").json == {"bar": None}


def test_a_window_as_csv(client, gantt) -> None:
    answer = client.get("/api/jobs/job/timeline/spans.csv?from=0&to=1000000000&rows=0-6")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="timeline-job.csv"'
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(lines) == len(gantt.trace.graph_of(gantt.rank(0)))
    assert {line["rank"] for line in lines} == {"0"}
    assert all(int(one["callback_ns"]) - int(one["issue_ns"]) == int(one["duration_ns"]) for one in lines)
    half = client.get("/api/jobs/job/timeline/spans.csv?from=0&to=20000000&rows=0-6")
    assert 1 < len(half.text.splitlines()) < len(lines)


@pytest.mark.parametrize(
    "path",
    [
        "?run=gone",
        "/tile",
        "/tile?level=14&tile=0",
        "/tile?level=14&tile=0&rows=56",
        "/tile?level=14&tile=0&rows=3-1x",
        "/tile?level=53&tile=0&rows=0",
        "/tile?level=2.5&tile=0&rows=0",
        "/tile?level=14&tile=-1&rows=0",
        "/tile?level=40&tile=99999999999&rows=0",
        "/tile?level=14&tile=0&rows=0-99999999999999",
        "/node?rank=9&node=1",
        "/node?rank=0&node=999999",
        "/node?rank=0&index=999999",
        "/node?row=0&at=x&within=1",
        "/spans.csv?from=0&to=&rows=0",
        "/counters/window?from=7&to=7",
        "/counters/course.csv?from=x&to=7",
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_reason(client, path: str) -> None:
    answer = client.get(f"/api/jobs/job/timeline{path}")
    assert answer.status_code == 400
    assert set(answer.json["error"]) == {"message", "hint"}
    assert answer.json["error"]["message"]


def test_wrong_paths_and_methods_are_not_answered(client) -> None:
    assert client.get("/api/jobs/job/timeline/elsewhere").status_code == 404
    assert client.post("/api/jobs/job/timeline").status_code == 405


def test_the_peers_of_a_collective_are_the_members_of_its_group(client, gantt) -> None:
    rank = gantt.rank(2)
    graph = gantt.trace.graph_of(rank)
    row = next(
        at for at in range(len(graph)) if graph.strings[int(graph.name[at])].endswith("all_reduce.fwd")
    )
    found = client.get(f"/api/jobs/job/timeline/peers?rank=2&index={row}").json
    group = next(one for one in gantt.trace.groups if one.name == found["group"])
    assert {one[0] for one in found["peers"]} == set(group.ranks)
    assert found["members"] == len(group.ranks) > 1
    for number, display, start, end, row in found["peers"]:
        bar = gantt.bar(gantt.rank(number), row)
        assert (bar.row, bar.start_ns, bar.end_ns) == (display, start, end)
        other = gantt.trace.graph_of(gantt.rank(number))
        assert other.strings[int(other.name[row])] == found["bar"]["name"]
    send = int(np.flatnonzero(graph.type == NodeType.COMM_SEND)[0])
    pair = client.get(f"/api/jobs/job/timeline/peers?rank=2&index={send}").json
    kinds = [gantt.trace.graph_of(gantt.rank(one[0])).type[one[4]] for one in pair["peers"]]
    assert sorted(kinds) == [NodeType.COMM_SEND, NodeType.COMM_RECV]
    alone = int(np.flatnonzero(graph.type == NodeType.COMP)[0])
    assert client.get(f"/api/jobs/job/timeline/peers?rank=2&index={alone}").json == {"peers": []}


def test_the_critical_path_stands_in_the_rows_of_its_nodes(client, gantt) -> None:
    found = unpacked(client.get("/api/jobs/job/timeline/path"))
    assert found["length"] == gantt.span_ns
    assert found["sentence"].startswith("60 % compute of stage 1, 25 % compute of stage 0")
    # This recording has neither gaps nor nodes without bars on it: pieces fill its time.
    assert (found["start"][0], found["end"][-1], found["dropped"]) == (0, gantt.span_ns, 0)
    assert (found["start"][1:] == found["end"][:-1]).all()
    assert not found["gap"].any()
    columns = zip(*(found[name].tolist() for name in ("rank", "row", "start", "end")), strict=True)
    for rank, row, start, end in list(columns)[::20]:
        bars = gantt.window(row, int(start), int(end))
        assert gantt.rows.rank[row] == rank
        assert any(bar.start_ns <= start and bar.end_ns >= end for bar in bars)


def test_a_path_of_very_many_pieces_is_joined_and_says_what_is_missing(gantt, monkeypatch) -> None:
    side = build_side(gantt.trace)
    path = build_whole_path(side, side.ledger()).path
    every, _ = build_outline(gantt, path)
    monkeypatch.setattr("studio.server.path._MOST", 60)
    few, dropped = build_outline(gantt, path)
    assert (few.shape[1], dropped > 0) == (60, True)
    assert few.shape[1] + dropped < every.shape[1]


def test_a_ghost_tells_what_waited_in_the_other_run(gantt) -> None:
    times = collect_node_times(gantt.trace, recorded(gantt.trace))
    plain = Ghost(gantt, times, origin_ns=gantt.origin_ns)
    account = gantt.account
    mine = slice(account.first[2], account.first[2] + 200)
    begun = account.begun_ns.copy()
    begun[mine] += 5_000
    told = Ghost(gantt, times, origin_ns=gantt.origin_ns, account=lambda: replace(account, begun_ns=begun))
    meets = np.flatnonzero(account.begun_ns[mine] >= 0)
    assert not plain.coverage.waits_ns.any()
    assert (told.coverage.waits_ns[told.places(gantt.rank(2))[meets]] == 5_000).all()
    assert np.count_nonzero(told.coverage.waits_ns) == len(meets) > 9


def test_a_chain_reaches_what_only_others_wait_for(client, gantt) -> None:
    rank = gantt.rank(0)
    graph = gantt.trace.graph_of(rank)
    found = client.get("/api/jobs/job/timeline/chain?rank=0&index=60").json
    assert found["more"] is False
    waits: dict[int, set[int]] = {
        row: {int(one) for one in [*graph.data.of(row), *graph.ctrl.of(row)] if one >= 0}
        for row in range(len(graph))
    }
    reached, edge = {60}, {60}
    while edge := {one for row in edge for one in waits[row]} - reached:
        reached |= edge
    edge = {60}
    while edge := {row for row in waits if waits[row] & edge} - reached:
        reached |= edge
    bars = [gantt.bar(rank, row) for row in reached]
    expected = sorted((bar.start_ns, bar.end_ns) for bar in bars)
    assert sorted((start, end) for _, start, end in found["bars"]) == expected
    assert len(reached) > 100
    assert all(found["bars"][a][2] <= found["bars"][b][1] for a, b, _ in found["edges"])


def test_a_ghost_has_the_other_runs_times_in_the_same_rows(client, gantt) -> None:
    here = unpacked(client.get("/api/jobs/job/timeline/tile?level=14&tile=0&rows=0-40"))
    there = unpacked(client.get("/api/jobs/job/timeline/tile?level=15&tile=0&rows=0-40&ghost=slower"))
    assert here["node"].size > 500
    missing = gantt.bar(gantt.rank(3), 0).row
    for row in range(41):
        mine, ghost = (
            {
                int(one["node"][at]): (
                    2 * one["start"][at] / scale,
                    2 * one["end"][at] / scale,
                    int(one["category"][at]),
                )
                for at in range(one["bars"][row], one["bars"][row + 1])
            }
            for one, scale in ((here, 1), (there, 2))
        )
        if row == missing:
            del mine[0]
        assert ghost == mine


def test_differences_are_told_for_one_node_and_for_all_of_a_window(client, gantt) -> None:
    found = client.get("/api/jobs/job/timeline/difference?rank=2&node=118&ghost=slower").json
    assert [2 * time for time in found["here"]] == found["there"]
    assert client.get("/api/jobs/job/timeline/difference?rank=3&index=0&ghost=slower").json["there"] is None
    whole = f"from=0&to={gantt.span_ns}&ghost=slower"
    table = client.get(f"/api/jobs/job/timeline/differences?{whole}").json
    assert table["count"] == len(gantt) - 1
    rows = [dict(zip(table["head"], row, strict=True)) for row in table["rows"]]
    assert all(row["other_ns"] == 2 * row["time_ns"] == -2 * row["difference_ns"] for row in rows)
    sizes = [abs(row["difference_ns"]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    copied = client.get(f"/api/jobs/job/timeline/differences.tsv?{whole}").text.splitlines()
    assert len(copied) == len(gantt)
    assert client.get("/api/jobs/job/timeline/tile?level=14&tile=0&rows=0&ghost=gone").status_code == 400


def test_a_chrome_trace_has_every_node_and_flows_that_leave_and_enter_slices(client, gantt) -> None:
    found = json.loads(client.get("/api/jobs/job/timeline/trace.json").text)["traceEvents"]
    slices = [one for one in found if one["ph"] == "X"]
    assert len(slices) == len(gantt)
    begins = {(one["pid"], one["tid"], one["ts"]) for one in slices}
    for thread in {(one["pid"], one["tid"]) for one in slices}:
        mine = sorted((one["ts"], one["dur"]) for one in slices if (one["pid"], one["tid"]) == thread)
        assert all(one[0] + one[1] <= two[0] + 1e-6 for one, two in pairwise(mine))
    leaving, entering = ({one["id"]: one for one in found if one["ph"] == kind} for kind in "sf")
    assert leaving.keys() == entering.keys()
    assert all(
        (one["pid"], one["tid"], one["ts"]) in begins for part in (leaving, entering) for one in part.values()
    )
    edges = sum(len(gantt.adjacency_of(rank).edges) for rank in gantt.trace.ranks)
    assert sum(one["name"] in ("data", "ctrl") for one in leaving.values()) == edges
    assert {one["name"] for one in leaving.values()} == {"data", "ctrl", "collective", "message"}
    joined = [(leaving[at], entering[at]) for at in leaving if leaving[at]["name"] == "collective"]
    assert all(one["pid"] != two["pid"] and one["ts"] <= two["ts"] for one, two in joined)


def test_the_timeline_comes_in_perfettos_own_format_or_the_answer_says_what_is_missing(
    client, gantt, monkeypatch
) -> None:
    found = client.get("/api/jobs/job/timeline/trace.pftrace")
    assert found.data == b"".join(perfetto_events.iterate_perfetto_events(gantt))
    assert found.headers["Content-Disposition"] == 'attachment; filename="timeline-job.pftrace"'
    monkeypatch.setattr(perfetto_events, "version", {"perfetto": "0.59.1", "protobuf": "5.29.3"}.__getitem__)
    refused = client.get("/api/jobs/job/timeline/trace.pftrace")
    assert refused.status_code == 400
    assert "pip install" in refused.json["error"]["hint"]


def test_the_counters_of_a_window_are_a_table_and_their_course_a_file(client, gantt) -> None:
    asked = "from=5000000&to=9000000"
    found = client.get(f"/api/jobs/job/timeline/counters/window?{asked}").json
    rows = [dict(zip(found["head"], row, strict=True)) for row in found["rows"]]
    assert [row["counter"] for row in rows] == ["nodes in flight", "bytes in flight"]
    copied = list(
        csv.DictReader(
            io.StringIO(client.get(f"/api/jobs/job/timeline/counters/window.tsv?{asked}").text),
            delimiter="\t",
        )
    )
    assert [float(row["mean"]) for row in copied] == [row["mean"] for row in rows]
    answer = client.get(f"/api/jobs/job/timeline/counters/course.csv?{asked}")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="counters-job.csv"'
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    for row in rows:
        course = [
            (int(one["from_ns"]), int(one["until_ns"]), float(one["value"]))
            for one in lines
            if one["counter"] == row["counter"]
        ]
        assert (course[0][0], course[-1][1]) == (5_000_000, 9_000_000)
        assert sum((until - begin) * value for begin, until, value in course) == pytest.approx(
            4_000_000 * row["mean"]
        )
        greatest = next(one for one in course if one[2] == max(value for _, _, value in course))
        assert greatest == (row["most_from_ns"], row["most_until_ns"], row["most"])
    bars = [bar for row in range(len(gantt.rows)) for bar in gantt.window(row, 5_000_000, 9_000_000)]
    inside = sum(min(bar.end_ns, 9_000_000) - max(bar.start_ns, 5_000_000) for bar in bars)
    assert rows[0]["mean"] == pytest.approx(inside / 4_000_000)
