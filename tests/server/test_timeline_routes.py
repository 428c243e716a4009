"""The timeline's routes, asked as the page asks them."""

from __future__ import annotations

import csv
import io
import json

import flask
import numpy as np
import pytest

import studio
from studio.analysis.gantt import TILE_BINS, Gantt
from studio.analysis.nodes import node_ref
from studio.errors import TraceError
from studio.samples import sample_path
from studio.server.timeline import timeline_blueprint
from studio.timeline import recorded

TYPES = {"int32": np.int32, "float64": np.float64, "uint8": np.uint8}


@pytest.fixture(scope="module")
def gantt() -> Gantt:
    trace = studio.read(sample_path("transformer_8r"))
    timeline = recorded(trace)
    return Gantt(trace, timeline, origin_ns=int(timeline.start_ns.min()))


@pytest.fixture(scope="module")
def client(gantt):
    server = flask.Flask("timeline")

    def find(job: str, run: str) -> Gantt:
        if (job, run) != ("job", ""):
            raise TraceError(f"There is no run {run!r}.", hint="Choose another.")
        return gantt

    server.register_blueprint(timeline_blueprint(find))
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
    assert found["rank"].tolist() == gantt.rows.rank.tolist()
    assert [found["names"][name] for name in found["name"]] == [
        gantt.rows.names[name] for name in gantt.rows.name
    ]
    assert found["finish"].max() == gantt.span_ns


def test_a_tile_is_the_librarys(client, gantt) -> None:
    found = unpacked(client.get("/api/jobs/job/timeline/tile?level=14&tile=1&rows=0-2,9"))
    expected = gantt.tile(14, 1, [0, 1, 2, 9])
    for name in ("bars", "start", "end", "node", "name", "bytes", "category", "binned", "begun", "fraction"):
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
        "node": node_ref(graph, row),
        "index": row,
        "row": bar.row,
        "start": bar.start_ns,
        "end": bar.end_ns,
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
