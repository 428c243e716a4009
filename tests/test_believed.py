"""What commands about times say of recordings that `check` finds errors in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flask import Flask

from studio.analysis.compare.sides import build_recorded_side
from studio.doctor import believed, run_checks
from studio.doctor.believed import explain_time_doubt
from studio.et import write
from studio.pages.overview.verdict import _explain_doubtful_times
from studio.server.report import build_report_blueprint
from studio.session import Session
from studio.store.workspace import Workspace
from studio.timeline import collect_node_times, recorded
from studio.trace import Finding
from tests.doctor.broken_jobs import BROKEN, on_one_machine, reductions
from tests.test_cli import run

CONTRADICTS = BROKEN["times-contradict"]


@pytest.mark.parametrize("command", ["breakdown", "collectives", "critical-path"])
def test_a_recording_in_doubt_is_warned_of_beside_its_times(tmp_path, command: str):
    write(CONTRADICTS(), tmp_path / "in", "job")
    done = run(command, tmp_path / "in", "--json")
    assert done.exit_code == 0
    assert done.stderr.count("\n") == 1
    assert "`check` finds a doubt: Rank 0 has ended 2 collectives" in done.stderr
    assert "`check`" not in done.stdout


def test_a_report_says_it_at_its_head(tmp_path):
    write(CONTRADICTS(), tmp_path / "in", "job")
    done = run("report", tmp_path / "in", "-o", tmp_path / "out.html")
    assert "`check` finds a doubt" in done.stderr
    head = (tmp_path / "out.html").read_text().partition("<h2")[0]
    assert "is not to be believed as it stands: `check` finds a doubt: Rank 0 has ended 2" in head


def test_the_report_of_the_web_says_the_same(tmp_path):
    session = Session(Workspace(tmp_path))
    job = session.workspace.save(CONTRADICTS(), "job")
    app = Flask("test")
    app.config["SESSION"] = session
    app.register_blueprint(build_report_blueprint())
    head = app.test_client().get(f"/api/report?side={job}/recorded").text.partition("<h2")[0]
    assert "is not to be believed as it stands: `check` finds a doubt: Rank 0 has ended 2" in head


def test_nothing_is_said_of_a_recording_without_errors(tmp_path):
    write(reductions([(0, 10), (20, 10)], [(0, 10), (20, 10)]), tmp_path / "in", "job")
    assert run("breakdown", tmp_path / "in").stderr == ""


def test_errors_are_counted_and_come_before_doubts():
    """What the reader lost is told by the commands themselves."""
    several = BROKEN["mixed-runs"]()
    assert explain_time_doubt(several).startswith(
        "`check` finds an error: The files of ranks 0–1 name one machine"
    )
    mixed = on_one_machine(reductions([(0, 9), (20, 9)], [(9000, 9), (9020, 9), (9040, 9)]))
    assert explain_time_doubt(mixed).startswith("`check` finds 2 errors, the first: The files of ranks 0–1")
    lost = Finding("error", "damaged-file", "a.et: the file ends inside a record.")
    assert explain_time_doubt(replace(reductions([(0, 9)], [(0, 9)]), findings=(lost,))) == ""


def test_what_readers_notice_of_times_is_told_last(monkeypatch):
    busy = Finding("warning", "busy-before", "a.json: the device may have been busy with work from before.")
    fine = reductions([(0, 9)], [(0, 9)])
    noticed = replace(fine, findings=(busy,))
    assert explain_time_doubt(noticed) == f"`check` finds a doubt: {busy.message}"
    assert (
        _explain_doubtful_times(
            noticed, build_recorded_side(noticed, collect_node_times(noticed, recorded(noticed))).ledger()
        )
        == f"{busy.message} "
    )
    doubted = replace(CONTRADICTS(), findings=(busy,))
    assert explain_time_doubt(doubted).startswith("`check` finds a doubt: Rank 0")
    monkeypatch.setattr(believed, "MOST_NODES", 1)
    assert explain_time_doubt(noticed).startswith("`check` finds a doubt: a.json")


def test_of_a_large_job_only_times_are_looked_at(monkeypatch):
    known = run_checks(BROKEN["cycle"]())
    monkeypatch.setattr(believed, "MOST_NODES", 1)
    monkeypatch.setattr(believed, "run_checks", None)
    assert explain_time_doubt(CONTRADICTS()).startswith("`check` finds a doubt: Rank 0")
    assert explain_time_doubt(BROKEN["cycle"]()) == ""
    # But for what was found before.
    assert explain_time_doubt(BROKEN["cycle"](), known).startswith("`check` finds an error: ")
