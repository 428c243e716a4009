"""Jobs are examined in the background, and what is found stays with them."""

from __future__ import annotations

import threading

import pytest

from studio.doctor import CHECKS, run_checks
from studio.doctor.stored import read_stored_examination, to_store
from studio.jobs.checking import check_again, list_checked_jobs, start_check
from studio.session import Session
from studio.store.durable_files import read_sealed
from studio.store.tasks import cancel, close_tasks, list_tasks, open_tasks
from studio.store.workspace import Workspace
from tests.doctor.broken_jobs import BROKEN, healthy
from tests.waiting import wait_until


@pytest.fixture
def opened(tmp_path):
    workspace = Workspace(tmp_path)
    tasks = open_tasks(workspace.root)
    yield workspace, tasks, Session(workspace)
    close_tasks(tasks)


def test_a_job_is_examined_once_and_the_result_survives_a_restart(opened, monkeypatch):
    workspace, tasks, session = opened
    job = workspace.save(BROKEN["deadlock"](), "job")
    assert session.levels_found(job) is None
    assert start_check(tasks, session, job)
    wait_until(lambda: not list_checked_jobs(tasks))
    assert session.levels_found(job) == {"error": 1, "warning": 0, "info": 0}
    assert not start_check(tasks, session, job)

    def never(*_args: object, **_more: object) -> None:
        raise AssertionError("examined again")

    monkeypatch.setattr("studio.session.run_checks", never)
    again = Session(workspace)
    assert again.levels_found(job) == {"error": 1, "warning": 0, "info": 0}
    assert again.examination_made(job) == run_checks(workspace.load(job))


def test_findings_of_other_checks_count_for_nothing(opened, monkeypatch):
    workspace, _, session = opened
    job = workspace.save(healthy(), "job")
    session.examination(job)
    monkeypatch.setattr("studio.doctor.stored.EDITION", 10**6)
    assert Session(workspace).levels_found(job) is None


def test_damaged_findings_are_made_again(opened):
    workspace, _, session = opened
    job = workspace.save(healthy(), "job")
    session.examination(job)
    [path] = workspace.root.glob("jobs/*/examination.json")
    assert read_stored_examination(read_sealed(path)) == session.examination(job)
    path.write_bytes(path.read_bytes().replace(b'"passed"', b'"pissed"'))
    assert Session(workspace).levels_found(job) is None
    assert len(Session(workspace).examination(job).passed) == len(CHECKS)


def test_every_broken_job_is_stored_and_read_as_it_was():
    import msgspec

    for make in BROKEN.values():
        made = run_checks(make())
        assert read_stored_examination(msgspec.json.encode(to_store(made))) == made


def test_a_cancelled_check_begins_again_only_when_asked(opened, monkeypatch):
    workspace, tasks, session = opened
    job = workspace.save(healthy(), "job")
    begun, going = threading.Event(), threading.Event()
    real = run_checks

    def slow(trace, *, progress):
        begun.set()
        going.wait(20)
        return real(trace, progress=progress)

    monkeypatch.setattr("studio.session.run_checks", slow)
    start_check(tasks, session, job)
    assert begun.wait(20)
    [task] = list_tasks(tasks, "check")
    cancel(tasks, task.id)
    going.set()
    wait_until(lambda: job in session.unexamined and not list_checked_jobs(tasks))
    assert session.unexamined[job].message == "The check was cancelled."
    assert not start_check(tasks, session, job)
    check_again(tasks, session, job)
    wait_until(lambda: session.levels_found(job) is not None)
