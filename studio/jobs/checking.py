"""Examine jobs in the background, each as soon as it is there."""

from __future__ import annotations

from studio.errors import StudioError
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

_GIVES_WAY_S = 10.0
"""A check that begins with a page lets the page's answers go first, altogether for so long at most."""
_CANCELLED = Problem("The check was cancelled.", "Check the job again for its findings.")


def start_check(tasks: Tasks, session: Session, job: str) -> bool:
    """Queue the examination of a job that was not examined; returns whether it was not under way already.

    One that was cancelled, or failed, is not begun again by itself, see `check_again`.
    """
    if job in session.unexamined or job in list_checked_jobs(tasks) or session.levels_found(job) is not None:
        return False
    try:
        name = session.workspace.info(job).name
    except StudioError:
        return False  # There is no such job, or it cannot be read: the page says so.
    try:

        def note(task: Task) -> None:
            session.unexamined.setdefault(task.job, _CANCELLED)

        tasks.on_cancel["check"] = note
        submit(tasks, "check", name, lambda report: _check(session, job, report), job=job)
    except (OSError, StudioError) as error:
        session.unexamined[job] = Problem(str(error))
        return False
    return True


def check_again(tasks: Tasks, session: Session, job: str) -> None:
    """Examine a job whose examination was cancelled or failed."""
    session.unexamined.pop(job, None)
    start_check(tasks, session, job)


def list_checked_jobs(tasks: Tasks) -> frozenset[str]:
    """Return the jobs that are being examined, or wait for it, in any studio."""
    return frozenset(task.job for task in list_tasks(tasks, "check") if task.status in ACTIVE)


def _check(session: Session, job: str, report: Report) -> str:
    left_s = _GIVES_WAY_S

    def tell(phase: str, done: int, total: int) -> None:
        nonlocal left_s
        left_s -= session.awaited.give_way(max(left_s, 0))
        report.running(done, total, phase=phase)

    left_s -= session.awaited.give_way(left_s)
    try:
        session.examination(job, progress=tell)
    except TaskCancelled:
        session.unexamined[job] = _CANCELLED
        raise
    except Exception as error:
        session.unexamined[job] = build_problem("check", error)
        raise
    return job
