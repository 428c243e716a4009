"""What somebody waits for goes first: work in the background gives way, and answers are begun before they are asked for."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from studio.jobs import checking
from studio.jobs.checking import start_check
from studio.session import Session
from studio.store.awaited import Awaited
from studio.store.tasks import close_tasks, open_tasks
from studio.store.workspace import Workspace
from studio.units import time_unit
from tests.doctor.broken_jobs import healthy
from tests.waiting import wait_until


def in_thread(work):
    """Run something in a thread; returns the event that is set at its end."""
    done = threading.Event()

    def run():
        work()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done


def test_background_work_waits_until_all_is_answered():
    awaited = Awaited()
    awaited.begin()
    awaited.begin()
    done = in_thread(lambda: awaited.give_way(60))
    assert not done.wait(0.05)
    awaited.end()
    assert not done.wait(0.05)
    awaited.end()
    assert done.wait(20)


def test_background_work_waits_no_longer_than_told():
    awaited = Awaited()
    awaited.begin()
    assert awaited.give_way(0.01) >= 0.01


def test_who_asks_for_what_is_being_prepared_waits_for_it_and_others_do_not():
    awaited, go_on, made = Awaited(), threading.Event(), []

    def make():
        go_on.wait(20)
        made.append("first")

    awaited.prepare("first", make)
    awaited.settle("other")
    awaited.prepare("other", lambda: made.append("other"))
    settled = in_thread(lambda: awaited.settle("first"))
    gone = in_thread(lambda: awaited.give_way(60))
    assert not settled.wait(0.05)
    assert not gone.wait(0.05)
    go_on.set()
    assert settled.wait(20)
    assert gone.wait(20)
    assert made == ["first"]


def test_what_is_prepared_is_made_as_the_request_has_chosen():
    awaited, made = Awaited(), []
    token = time_unit.set("ms")
    try:
        awaited.prepare("first", lambda: made.append(time_unit.get()))
    finally:
        time_unit.reset(token)
    awaited.settle("first")
    assert made == ["ms"]


def test_what_cannot_be_prepared_is_left_to_who_asks_for_it():
    awaited, made = Awaited(), []

    def fail():
        raise ValueError("no such job")

    awaited.prepare("first", fail)
    awaited.settle("first")
    awaited.prepare("first", lambda: made.append("made"))
    awaited.settle("first")
    assert made == ["made"]


@pytest.fixture
def opened(tmp_path):
    workspace = Workspace(tmp_path)
    tasks = open_tasks(workspace.root)
    yield workspace, tasks, Session(workspace)
    close_tasks(tasks)


def test_a_check_begins_once_the_page_has_its_answers(opened):
    workspace, tasks, session = opened
    job = workspace.save(healthy(), "job")
    session.awaited.begin()
    start_check(tasks, session, job)
    assert not in_thread(lambda: wait_until(lambda: session.levels_found(job) is not None)).wait(0.2)
    session.awaited.end()
    wait_until(lambda: session.levels_found(job) is not None)


def test_a_check_does_not_wait_for_ever(opened, monkeypatch):
    monkeypatch.setattr(checking, "_GIVES_WAY_S", 0.01)
    workspace, tasks, session = opened
    job = workspace.save(healthy(), "job")
    session.awaited.begin()
    start_check(tasks, session, job)
    wait_until(lambda: session.levels_found(job) is not None)


@pytest.mark.integration
def test_the_graph_is_begun_with_its_address_and_requests_count_as_awaited():
    program = """
import tempfile
from studio.commands.serve import load_components
load_components()
from studio.app import create_app
from studio.session import Session
from studio.store.imports import open_registry
from studio.store.tasks import close_tasks, open_tasks
from studio.jobs.importing import upload_reader
from studio.jobs.simulations import Simulations, simulate_jobs
from studio.store.workspace import Workspace
from studio.trace import Rank, Trace
from tests.graphs import graph
with tempfile.TemporaryDirectory() as folder:
    workspace = Workspace(folder)
    job = workspace.save(Trace((graph(4, data=[(0, 1), (1, 2), (2, 3)]),), (Rank(0, 0),)), "job")
    tasks = open_tasks(workspace.root)
    session = Session(workspace)
    app = create_app(session, open_registry(tasks, upload_reader(workspace)), Simulations(tasks, simulate_jobs(session)))
    seen = []

    @app.server.get("/seen")
    def count():
        seen.append(session.awaited.give_way(0.01) >= 0.01)
        return ""

    client = app.server.test_client()
    client.get("/seen")
    assert seen == [True], "a request is awaited while it is answered"
    assert session.awaited.give_way(20) < 20
    with app.server.test_request_context("/"):
        pass
    client.get("/seen")
    assert seen == [True, True], "what was not counted is not taken off"
    client.get(f"/overview?job={job}")
    client.get("/graph")
    client.get("/graph?job=gone")
    assert session.awaited.give_way(20) < 20
    assert session.kept_of_job("trace", job) is None
    client.get(f"/graph?job={job}&deps=data")
    session.awaited.settle(f"graph of {job}")
    begun = [key for sides, key in session._cache._entries if "build_drawing" in str(key[:2])]
    assert [key[2].deps for key in begun] == ["data"], begun
    close_tasks(tasks)
"""
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
