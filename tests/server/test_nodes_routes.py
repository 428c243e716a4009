"""The node list as a file: what the page lists, in its order, exact."""

from __future__ import annotations

import csv
import io

import flask
import pytest

import studio
from studio.analysis.nodes import NodeIndex
from studio.samples import sample_path
from studio.server.nodes import nodes_blueprint


@pytest.fixture(scope="module")
def client():
    index = NodeIndex(studio.read(sample_path("transformer_8r")))
    server = flask.Flask("nodes")
    server.register_blueprint(nodes_blueprint(lambda _job: index))
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
