"""The node list as a file: what the page lists, in its order, exact."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import quote

import flask
import numpy as np
import pytest

import studio
from studio.analysis.job.nodes import NodeIndex
from studio.samples import sample_path
from studio.server.nodes import build_nodes_blueprint
from studio.timeline import read_recorded_times
from tests.handmade import node, trace_of


@pytest.fixture(scope="module")
def client():
    index = NodeIndex(studio.read(sample_path("transformer_8r")))
    recorded = read_recorded_times(index.trace)
    run = replace(recorded, end_ns=np.where(recorded.end_ns >= 0, recorded.end_ns + 1000, -1))
    lists = {"": index, "run": NodeIndex(index.trace, run, like=index)}
    server = flask.Flask("nodes")
    info = SimpleNamespace(summary=SimpleNamespace(timed_nodes=1))
    workspace = SimpleNamespace(info=lambda _job: info, require=lambda *_: None)
    server.config["SESSION"] = SimpleNamespace(workspace=workspace, node_index=lambda _job, run: lists[run])
    server.register_blueprint(build_nodes_blueprint())
    return server.test_client()


def test_the_file_holds_what_is_listed(client) -> None:
    """Every node that matches, past the thousand of a page, sorted as asked, with exact numbers where there are any."""
    rows = list(csv.DictReader(io.StringIO(client.get("/api/jobs/job/nodes.csv?sort=-duration_ns").text)))
    listed = client.get("/api/jobs/job/nodes?start=0&end=1000&sort=-duration_ns").json
    assert len(rows) == listed["count"] == 2488
    assert [(row["rank"], row["id"]) for row in rows[:1000]] == [
        (one["rank"], one["id"]) for one in listed["rows"]
    ]
    lasted = [int(row["duration_ns"]) for row in rows if row["duration_ns"]]
    assert lasted == sorted(lasted, reverse=True)
    assert f"{lasted[0]:,} ns" == listed["rows"][0]["duration_ns_exact"]
    assert 0 < sum(not row["bytes"] for row in rows) < len(rows)
    some = list(csv.DictReader(io.StringIO(client.get("/api/jobs/job/nodes.csv?q=embedding").text)))
    assert 0 < len(some) < len(rows)
    assert all("embedding" in row["name"] for row in some)
    assert client.get("/api/jobs/job/nodes.csv?f=no").status_code == 400


def test_times_of_a_run_and_those_recorded_stand_in_the_file_as_in_the_list(client) -> None:
    """In a run every node that was recorded takes 1 µs more; what the file calls recorded is the recording's."""
    query = "sort=-duration_ns&f=" + quote('{"start_ns":["matches","> 1 ms"]}')
    plain = list(csv.DictReader(io.StringIO(client.get(f"/api/jobs/job/nodes.csv?{query}").text)))
    rows = list(csv.DictReader(io.StringIO(client.get(f"/api/jobs/job/nodes.csv?run=run&{query}").text)))
    listed = client.get(f"/api/jobs/job/nodes?run=run&start=0&end=1&{query}").json
    assert len(rows) == listed["count"] > 0
    assert listed["simulated"]
    for row in rows:
        assert int(row["run_end_ns"]) - int(row["run_start_ns"]) == int(row["run_duration_ns"])
        assert int(row["run_duration_ns"]) == int(row["recorded_duration_ns"] or 0) + 1000
    first, old = listed["rows"][0], plain[0]
    assert first["duration_ns_exact"] == f"{int(rows[0]['run_duration_ns']):,} ns"
    assert first["recorded_duration_ns_exact"] == f"{int(old['duration_ns']):,} ns"
    assert first["start_ns_exact"].endswith("after the beginning of the run")
    assert first["recorded_start_ns_exact"] == f"{int(old['start_ns']):,} ns after the first recorded start"
    assert int(old["end_ns"]) == int(old["start_ns"]) + int(old["duration_ns"])


def test_own_times_are_told_from_times_that_hold_what_a_node_called(client) -> None:
    assert client.get("/api/jobs/job/nodes?start=0&end=1").json["own_times"] is False
    called = node(1, "COMP", micros=5, is_cpu_op=True, inclusive_ns=9000)
    assert NodeIndex(trace_of([[called]])).job.holds_own_times
