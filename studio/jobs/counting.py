"""Count jobs again in the background whose stored numbers meant something else, for the list of jobs on Home: in one task."""

from __future__ import annotations

from collections.abc import Sequence

from studio.session import Session
from studio.store.tasks import (
    ACTIVE,
    Problem,
    Report,
    Task,
    TaskCancelled,
    Tasks,
    build_problem,
    list_tasks,
    submit,
)
from studio.store.workspace import JobInfo
from studio.units import format_counted

_CANCELLED = Problem("Counting was cancelled.", "Open the job to count it again.")


def start_counting(tasks: Tasks, session: Session, jobs: Sequence[JobInfo]) -> bool:
    """Queue the counting of jobs whose recorded span may be told wrongly; returns whether it was not under way already.

    What could not be counted is not tried again by itself.
    """
    left = [info.id for info in jobs if is_awaited(session, info)]
    if not left or any(task.status in ACTIVE for task in list_tasks(tasks, "summary")):
        return False

    def note(_task: Task) -> None:
        for job in left:
            session.uncounted.setdefault(job, _CANCELLED)

    tasks.on_cancel["summary"] = note
    submit(tasks, "summary", format_counted(len(left), "job"), lambda report: _count(session, left, report))
    return True


def is_awaited(session: Session, info: JobInfo) -> bool:
    """Return whether the recorded span of a job waits for being counted again."""
    return info.has_old_summary and info.summary.timed_nodes > 0 and info.id not in session.uncounted


def _count(session: Session, jobs: Sequence[str], report: Report) -> str:
    try:
        for done, job in enumerate(jobs):
            report.running(done, len(jobs))
            _count_one(session, job)
        report.running(len(jobs), len(jobs))
    finally:
        # Pages hear of it even where it was over before they asked.
        session.measurings_ended += 1
    return ""


def _count_one(session: Session, job: str) -> None:
    try:
        # What is open already is at hand; what is not is not kept.
        opened = session.kept_of_job("trace", job)
        trace = session.workspace.load(job) if opened is None else opened
        if session.workspace.renew_summary(job, trace).has_old_summary:
            session.uncounted[job] = Problem("The workspace cannot be written.")
    except TaskCancelled:
        raise
    except Exception as error:  # noqa: BLE001 - one job that cannot be counted must not keep the others from it
        session.uncounted[job] = build_problem("summary", error)
