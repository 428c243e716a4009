"""Measure jobs in the background, for Trends: those that have no measures yet, in one task."""

from __future__ import annotations

from collections.abc import Sequence

from studio.session import Session
from studio.store.tasks import ACTIVE, Report, TaskCancelled, Tasks, list_tasks, problem_of, submit
from studio.units import format_counted

Run = tuple[str, str]
"""A job and one of its runs, "" for the recording."""


def start_measuring(tasks: Tasks, session: Session, wanted: Sequence[Run]) -> bool:
    """Queue the measuring of runs; returns whether it was not under way already.

    What could not be measured is not tried again by itself.
    """
    left = [run for run in wanted if run not in session.unmeasured]
    if not left or is_measuring(tasks):
        return False
    submit(tasks, "measure", format_counted(len(left), "job"), lambda report: _measure(session, left, report))
    return True


def is_measuring(tasks: Tasks) -> bool:
    """Return whether jobs are being measured, in any studio."""
    return any(task.status in ACTIVE for task in list_tasks(tasks, "measure"))


def _measure(session: Session, wanted: Sequence[Run], report: Report) -> str:
    for done, (job, run) in enumerate(wanted):
        report.running(done, len(wanted))
        try:
            session.measures(job, run)
        except TaskCancelled:
            raise
        except Exception as error:  # noqa: BLE001 - one job that cannot be measured must not keep the others from it
            session.unmeasured[job, run] = problem_of("measure", error)
    report.running(len(wanted), len(wanted))
    return ""
