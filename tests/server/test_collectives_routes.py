"""The CSV of the Collectives page: exact figures, and names that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
import json

from flask import Flask

from studio.server.collectives import build_collectives_blueprint
from studio.session import Session
from studio.store.workspace import Workspace
from tests.handmade import collective, trace_of


def test_names_that_look_like_formulas_are_texts_in_both_files(tmp_path) -> None:
    trace = trace_of({rank: [collective(1, "ALL_REDUCE", 64 + 64 * rank, name="=1+1")] for rank in range(3)})
    session = Session(Workspace(tmp_path))
    job = session.workspace.save(trace, "job")
    app = Flask("test")
    app.config["SESSION"] = session
    app.register_blueprint(build_collectives_blueprint())
    client = app.test_client()

    def lines(path: str) -> list[list[str]]:
        return list(csv.reader(io.StringIO(client.get(f"/api/jobs/{job}/{path}?rel=0").text)))

    [head, row] = lines("collectives/imbalances.csv")
    assert dict(zip(head, row, strict=True)) == {
        "collective": "'=1+1",
        "metric": "size",
        "max_over_mean": "1.5",
        "most_bytes": "192",
        "mean_bytes": "128",
        "to_move_bytes": "64",
        "worst_rank": "2",
        "ranks_above_mean": "2",
    }
    [head, row] = lines("collectives.csv")
    assert (row[0], row[-3:]) == ("'=1+1", ["64", "128", "192"])


def test_types_that_share_a_name_come_before_it_in_the_windows_of_the_page(tmp_path) -> None:
    """The page writes these names, shortened at their ends where there is no room."""
    kinds = ("ALL_REDUCE", "BROADCAST", "ALL_REDUCE")
    nodes = [collective(number, kind, 64, name="ncclKernel(void*)") for number, kind in enumerate(kinds)]
    session = Session(Workspace(tmp_path))
    job = session.workspace.save(
        trace_of([[*nodes, collective(3, "ALL_GATHER", 8, name="other")]] * 2), "job"
    )
    app = Flask("test")
    app.config["SESSION"] = session
    app.register_blueprint(build_collectives_blueprint())
    packed = app.test_client().get(f"/api/jobs/{job}/collectives").data
    header = json.loads(packed[4 : 4 + int.from_bytes(packed[:4], "little")])
    assert set(header["names"]) == {"ALL_REDUCE · ncclKernel", "BROADCAST · ncclKernel", "other"}
