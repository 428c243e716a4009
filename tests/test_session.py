"""A session makes things once, shares what runs have in common, and stays within its bytes."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
from flask import Flask

from studio.errors import StudioError
from studio.server.status import build_status_blueprint
from studio.session import Session, keep_result
from studio.sim import simulate
from studio.sim.parts import interpret
from studio.store.cache import Cache, measure
from studio.store.runs import Run
from studio.store.workspace import Workspace
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled
from tests.small_jobs import some
from tests.test_runs import PARTS


@pytest.fixture
def session(tmp_path) -> Session:
    return Session(Workspace(tmp_path))


@pytest.fixture
def job(session) -> str:
    nodes = [node(1, "COMP", micros=5), collective(2, "ALL_REDUCE", 1 << 20, 1)]
    return session.workspace.save(trace_of([nodes] * 4), "job")


def add_run(session: Session, job: str, name: str) -> str:
    result = simulate(session.workspace.load(job), interpret(PARTS).config, native=compiled())
    return session.workspace.save_run(job, Run(name, result, PARTS))


# ---------------------------------------------------------------------------------------------------
# The cache


def test_the_memory_of_arrays_counts_once_per_entry_and_once_for_all_that_share_it():
    column = np.zeros(100_000, np.int64)

    @dataclass(slots=True)
    class Pair:
        one: object
        other: object

    size = measure(Pair(column, {"again": [column[5:], column.reshape(10, -1)]}))
    assert sum(size.arrays.values()) == column.nbytes
    assert 0 < size.other_bytes < 5000
    cache: Cache[str] = Cache(10 * column.nbytes)
    cache.get("a", lambda: [column])
    cache.get("b", lambda: Pair(column, None))
    assert column.nbytes < cache.used_bytes < column.nbytes + 5000
    cache.forget(lambda key: key == "a")
    assert cache.used_bytes > column.nbytes
    cache.forget(lambda key: key == "b")
    assert cache.used_bytes == len(cache) == 0


def test_the_size_of_long_lists_is_estimated_well():
    texts = [f"{number:030}" for number in range(100_000)]
    exact = sum(text.__sizeof__() for text in texts) + texts.__sizeof__()
    assert 0.95 * exact < measure(texts).bytes < 1.1 * exact


def test_what_is_referred_to_weakly_is_measured_on_every_python():
    """Dataclasses of Python before 3.11.3 have the slot of another class: reading it is a TypeError."""

    class Other:
        __slots__ = ("__weakref__",)

    class Job:
        __slots__ = ("__weakref__", "column")

    Job.__weakref__ = Other.__dict__["__weakref__"]
    job = Job()
    job.column = np.zeros(1000)
    assert weakref.ref(job)() is job
    assert list(measure(job).arrays.values()) == [8000]


def test_what_was_asked_for_longest_ago_goes_first_and_the_bytes_are_kept_to():
    cache: Cache[int] = Cache(10_500_000)
    for key in range(10):
        cache.get(key, lambda: np.zeros(1_000_000, np.uint8))
    assert cache.peek(0) is not None
    cache.get(0, lambda: None)
    cache.get(10, lambda: np.zeros(1_000_000, np.uint8))
    assert [key for key in range(11) if cache.peek(key) is None] == [1]
    assert cache.used_bytes <= cache.budget_bytes
    cache.get(11, lambda: np.zeros(50_000_000, np.uint8))
    assert len(cache) == 1  # larger than the budget: alone, until the next comes
    cache.get(12, lambda: b"")
    assert len(cache) == 1
    assert cache.used_bytes < 1000


def test_what_grows_after_it_was_made_is_measured_again():
    cache: Cache[str] = Cache(3_000_000)
    tiles: list[object] = cache.get("tiles", list)
    for _ in range(4):
        cache.get("tiles", list).append(np.zeros(1_000_000, np.uint8))
    cache.get("other", lambda: 1)
    assert cache.peek("tiles") is None
    assert cache.used_bytes < 1_000_000 < measure(tiles).bytes


def test_threads_that_ask_together_wait_for_one_to_make_it():
    cache: Cache[str] = Cache(1000)
    made, ready = [], threading.Barrier(8)

    def make() -> object:
        made.append(threading.get_ident())
        threading.Event().wait(0.02)
        return object()

    got: list[object] = []

    def ask() -> None:
        ready.wait()
        got.append(cache.get("it", make))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(set(map(id, got))) == 1


def test_what_fails_is_tried_again():
    cache: Cache[str] = Cache(1000)
    with pytest.raises(ZeroDivisionError):
        cache.get("it", lambda: 1 // 0)
    assert cache.get("it", lambda: 5) == 5


# ---------------------------------------------------------------------------------------------------
# Jobs and runs


def test_runs_of_a_job_share_its_trace(session, job, monkeypatch):
    runs = [add_run(session, job, f"run {number}") for number in range(8)]
    loads = []
    load = Workspace.load
    monkeypatch.setattr(Workspace, "load", lambda self, job: loads.append(job) or load(self, job))
    for _ in range(3):
        assert len({id(session.run(job, run).result.trace) for run in runs}) == 1
    assert loads == [job]
    assert session.load_side(job, runs[0]).side.trace is session.trace(job)


def test_a_job_or_run_that_is_deleted_is_gone_at_once_with_all_that_was_worked_out(session, job):
    run = add_run(session, job, "run")
    whole = Workspace(session.workspace.root)
    before = session.gantt(job, run)
    session.counters(job, run)
    session.lineup([(job, run), (job, run)])
    entries = session.use.entries
    whole.delete_run(job, run)
    for ask in (session.gantt, session.counters, session.times, session.node_index, session.ghost):
        with pytest.raises(StudioError, match="has no run"):
            ask(job, run, *([""] if ask == session.ghost else []))
    with pytest.raises(StudioError, match="has no run"):
        session.lineup([(job, run), (job, run)])
    assert session.use.entries == 1 < entries  # the trace
    whole.restore_run(job, run)
    assert session.gantt(job, run) is not before
    whole.delete(job)
    with pytest.raises(StudioError, match="There is no job"):
        session.trace(job)
    assert session.use.entries == 0


def test_derived_functions_are_kept_by_what_they_are_asked(session, job):
    run, asked = add_run(session, job, "run"), []

    @keep_result
    def width(session: Session, job: str, run: str | None, factor: int) -> int:
        asked.append((run, factor))
        return len(session.trace(job).ranks) * factor

    @dataclass(frozen=True)
    class Request:
        session: Session
        job: str
        factor: int

    @keep_result
    def height(request: Request) -> int:
        asked.append(request)
        return request.factor

    assert [width(session, job, run, 2), width(session, job, None, 2), width(session, job, run, 2)] == [8] * 3
    assert [height(Request(session, job, 3)), height(Request(session, job, 3))] == [3, 3]
    assert len(asked) == 3
    session.workspace.delete_run(job, run)
    assert width(session, job, None, 2) == 8
    with pytest.raises(StudioError, match="has no run"):
        width(session, job, run, 2)


def test_the_status_tells_how_full_the_session_is(tmp_path):
    session = Session(Workspace(tmp_path), budget_bytes=200_000)
    jobs = [session.workspace.save(some(nodes=1000), f"job {number}") for number in range(8)]
    app = Flask("test")
    app.config["SESSION"] = session
    app.register_blueprint(build_status_blueprint())
    for job in jobs:
        session.trace(job)
        cache = app.test_client().get("/status").json["cache"]
        assert 0 < cache["used_bytes"] <= cache["budget_bytes"] == 200_000
    assert 0 < cache["entries"] < len(jobs)


def test_without_a_word_a_quarter_of_the_memory_may_be_used(session):
    assert 64 << 20 < session.use.budget_bytes < 1 << 46
