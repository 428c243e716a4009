"""What Home says of a job in the list of recent ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from studio.jobs.counting import is_awaited, start_counting
from studio.pages.home.words import describe_hypothetical
from studio.session import Session
from studio.sql.database import Database
from studio.sql.sources import build_workspace_source
from studio.store.durable_files import write_sealed
from studio.store.tasks import ACTIVE, close_tasks, list_tasks, open_tasks
from studio.store.workspace import Workspace
from studio.views.trends import list_points
from tests.handmade import at, node, trace_of
from tests.small_jobs import some
from tests.waiting import wait_until


def test_a_job_made_for_advice_is_said_to_be_hypothetical_and_left_out_of_trends(tmp_path):
    store = Workspace(tmp_path)
    mine = store.save(some(), "gpt")
    changed = store.save(some(), "gpt (no host gaps)", hypothetical="no host gaps")
    [shown] = describe_hypothetical(store.info(changed))
    assert (shown.children, shown.title) == (" · hypothetical, made for advice", "no host gaps")
    assert describe_hypothetical(store.info(mine)) == []
    assert [point.job for point in list_points(Session(store))] == [mine]


def save_as_before(store):
    """Store a job as studios did for which a recorded call ended after its own time; returns its id."""
    call = at(1, 70, node(1, "COMP", is_cpu_op=True, tid=1, inclusive_ns=100_000))
    inner = at(21, 30, node(2, "COMP", 1, is_cpu_op=True, tid=1))
    job = store.save(trace_of([[call, inner]]), "recorded before")
    info = store.info(job)
    assert (info.summary.end_ns, info.has_old_summary) == (101_000, False)
    write_sealed(
        store.root / "jobs" / job / "job.json",
        replace(info, edition=0, summary=replace(info.summary, end_ns=71_000)),
    )
    return job


def test_spans_that_were_stored_when_calls_ended_earlier_are_counted_again_in_the_background(tmp_path):
    store = Workspace(tmp_path)
    job, plan = save_as_before(store), store.save(some(), "without times")
    session, tasks = Session(store), open_tasks(store.root)
    try:
        assert is_awaited(session, store.info(job))
        assert start_counting(tasks, session, store.jobs())
        wait_until(lambda: not any(task.status in ACTIVE for task in list_tasks(tasks, "summary")))
        info = store.info(job)
        assert (info.name, info.summary.end_ns, info.has_old_summary) == ("recorded before", 101_000, False)
        assert not start_counting(tasks, session, store.jobs()), "once"
        assert store.info(plan).summary == session.summary(plan)
    finally:
        close_tasks(tasks)


def test_a_job_that_cannot_be_counted_is_not_tried_for_ever(tmp_path):
    store = Workspace(tmp_path)
    job = save_as_before(store)
    for path in (tmp_path / "jobs" / job).iterdir():
        if path.name != "job.json":
            path.write_bytes(b"damaged")
    session, tasks = Session(store), open_tasks(store.root)
    try:
        assert start_counting(tasks, session, store.jobs())
        wait_until(lambda: not any(task.status in ACTIVE for task in list_tasks(tasks, "summary")))
        assert list(session.uncounted) == [job]
        assert not start_counting(tasks, session, store.jobs())
        assert not is_awaited(session, store.info(job)), "its old span is shown"
    finally:
        close_tasks(tasks)


@pytest.mark.integration
def test_opening_a_job_and_asking_for_jobs_count_it_again(tmp_path):
    store = Workspace(tmp_path)
    job = save_as_before(store)
    assert Session(store).summary(job).end_ns == store.info(job).summary.end_ns == 101_000
    job = save_as_before(store)
    with Database(build_workspace_source(store)) as database:
        spans = database.ask("SELECT recorded_ns FROM jobs").table.column(0).to_pylist()
    assert spans == [100_000, 100_000]
    assert not store.info(job).has_old_summary
