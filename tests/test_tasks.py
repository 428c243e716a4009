"""Tasks in the background: one queue for all kinds, one owner each, and what cancelling and restarts make of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from studio.doctor import REPAIRS
from studio.errors import StudioError
from studio.jobs.repairing import repair_job, start_repair
from studio.session import Session
from studio.store.tasks import (
    KINDS,
    Problem,
    Report,
    Task,
    TaskCancelled,
    Tasks,
    cancel,
    close_tasks,
    dismiss,
    get,
    list_tasks,
    open_tasks,
    submit,
    wait,
)
from studio.store.workspace import Workspace
from tests.doctor.broken_jobs import BROKEN


@pytest.fixture
def tasks(tmp_path) -> Iterator[Tasks]:
    tasks = open_tasks(tmp_path)
    yield tasks
    close_tasks(tasks)


class Held:
    """Work that goes on until it is let go or cancelled."""

    def __init__(self) -> None:
        self.go, self.begun, self.over = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, report: Report) -> str:
        try:
            while not self.go.wait(0.002):
                report.running(1, 4, phase="counting", unit="sheep")
                self.begun.set()
            return "made"
        finally:
            self.over.set()


def begun(tasks: Tasks, kind="repair") -> tuple[Held, Task]:
    held = Held()
    task = submit(tasks, kind, "a title", held, job="job")
    assert held.begun.wait(60)
    return held, task


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_of_any_kind_tells_how_far_it_is_and_ends(tasks, kind):
    held, task = begun(tasks, kind)
    seen = get(tasks, task.id)
    assert (seen.kind, seen.title, seen.job, seen.status) == (kind, "a title", "job", "running")
    assert (seen.done, seen.total, seen.unit, seen.phase) == (1, 4, "sheep", "counting")
    # Of one moment nobody can tell how long the rest takes.
    assert seen.remaining_s(seen.phase_started + 5) is None
    held.go.set()
    ended = wait(tasks, task.id, 60)
    # Of imports only the import itself is kept.
    assert (ended and (ended.status, ended.result)) == (("done", "made") if KINDS[kind].kept else None)
    assert [one.id for one in list_tasks(tasks, kind)] == [task.id] * KINDS[kind].kept
    dismiss(tasks, task.id)
    assert not list(tasks.root.glob("*.json"))


def test_kinds_do_not_wait_for_each_other_and_each_keeps_its_turns(tasks):
    held = {kind: [begun(tasks, kind) for _ in range(KINDS[kind].at_once)] for kind in KINDS}
    more = [submit(tasks, kind, "later", lambda _report: "made") for kind in KINDS]
    assert [get(tasks, task.id).status for task in more] == ["queued"] * len(KINDS)
    for works in held.values():
        for work, _ in works:
            work.go.set()
    for task in more:
        ended = wait(tasks, task.id, 60)
        assert ended is None or ended.status == "done"


def test_a_cancelled_task_counts_as_such_at_once_and_its_work_stops(tasks):
    told = []
    tasks.on_cancel["repair"] = told.append
    held, task = begun(tasks)
    late = submit(tasks, "repair", "late", lambda _report: told.append("never") or "made")
    cancel(tasks, late.id)
    cancel(tasks, task.id)
    assert [get(tasks, one.id).status for one in (task, late)] == ["cancelled"] * 2
    assert held.over.wait(60)
    assert get(tasks, task.id).result is None
    cancel(tasks, task.id)
    assert [one.id for one in told] == [late.id, task.id]
    last = submit(tasks, "repair", "last", lambda _report: "made")
    assert wait(tasks, last.id, 60).status == "done"


def test_what_fails_is_told_and_ends_nothing_else(tasks):
    def refused(_report):
        raise StudioError("It does not fit.", hint="Take another.")

    def full(_report):
        raise MemoryError

    def wrong(_report):
        raise ZeroDivisionError

    def stopped(_report):
        raise TaskCancelled

    ended = [
        wait(tasks, submit(tasks, "repair", "x", work).id, 60) for work in (refused, full, wrong, stopped)
    ]
    assert [task.status for task in ended] == ["failed", "failed", "failed", "cancelled"]
    assert ended[0].error == Problem("It does not fit.", "Take another.")
    assert ended[1].error == KINDS["repair"].memory
    assert "ZeroDivisionError" in ended[2].error.message


CHILD = """
import sys, time
from pathlib import Path
from studio.store.tasks import KINDS, open_tasks, submit
def work(report):
    while True:
        report.running(1, 2)
        time.sleep(0.01)
tasks = open_tasks(Path(sys.argv[1]))
for kind in KINDS:
    submit(tasks, kind, kind, work)
    submit(tasks, kind, "waits", work)
while sum(task.status == "running" for task in tasks.live.values()) < 3:
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.integration
def test_the_tasks_of_a_killed_studio_are_interrupted_for_others_and_the_next(tmp_path, tasks):
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        seen = list_tasks(tasks)
        assert len(seen) == 2 * len(KINDS)
        assert {task.status for task in seen} <= {"running", "queued"}
        cancel(tasks, seen[0].id)  # another studio's: nothing happens
        assert get(tasks, seen[0].id).status == seen[0].status
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        if child.stdout:
            child.stdout.close()
    assert {task.status for task in list_tasks(tasks)} == {"interrupted"}
    late = open_tasks(tmp_path)
    kept = [kind for kind in KINDS if KINDS[kind].kept]
    assert sorted(task.kind for task in list_tasks(late)) == sorted(kept * 2)
    assert len(list((tasks.root / ".studios").iterdir())) == 2
    close_tasks(late)


def test_what_ended_long_ago_is_forgotten(tmp_path, tasks):
    task = submit(tasks, "repair", "old", lambda _report: "made")
    wait(tasks, task.id, 60)
    close_tasks(open_tasks(tmp_path))
    assert get(tasks, task.id)
    close_tasks(open_tasks(tmp_path, now=lambda: time.time() + 2 * 86_400))
    assert not list(tasks.root.glob("*.json"))


# ---------------------------------------------------------------------------------------------------
# Repairs


def test_a_job_is_repaired_in_the_background(tmp_path, tasks):
    session = Session(Workspace(tmp_path))
    job = session.workspace.save(BROKEN["cycle"](), "llama")
    task = wait(tasks, start_repair(tasks, session, job, ["cycle"]).id, 60)
    assert (task.status, task.kind, task.job, task.title) == ("done", "repair", job, "llama")
    assert task.result == repair_job(session, job, ["cycle"])
    failed = wait(tasks, start_repair(tasks, session, job, ["magic"]).id, 60)
    assert "no repair 'magic'" in failed.error.message


@pytest.mark.parametrize("moment", [REPAIRS["cycle"].title, "storing", "stored"])
def test_a_repair_that_is_cancelled_leaves_no_job(tmp_path, tasks, monkeypatch, moment):
    session = Session(Workspace(tmp_path))
    job = session.workspace.save(BROKEN["cycle"](), "llama")
    running, finish, over = Report.running, Report.finish, threading.Event()

    def cancelled_in(report, done, total, *, phase="", unit=""):
        if phase == moment:
            cancel(tasks, report.id)
        running(report, done, total, phase=phase, unit=unit)

    def cancelled_before(report, result):
        if moment == "stored":
            cancel(tasks, report.id)
        taken = finish(report, result)
        over.set()
        return taken

    monkeypatch.setattr(Report, "running", cancelled_in)
    monkeypatch.setattr(Report, "finish", cancelled_before)
    task = wait(tasks, start_repair(tasks, session, job, ["cycle"]).id, 60)
    assert task.status == "cancelled"
    assert moment != "stored" or over.wait(60)
    close_tasks(tasks)
    assert [one.id for one in session.workspace.jobs()] == [job]
    tasks.alive.acquire()
