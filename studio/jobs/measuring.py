"""Measure jobs in the background, and examine them, for Trends: those where that was not done yet, in one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

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
from studio.units import format_counted

_CANCELLED = Problem("Measuring was cancelled.", "Start the studio again to measure these jobs.")

Run = tuple[str, str | None]
"""A job and one of its runs, "" for the recording, None where it has neither and is only examined."""


def start_measuring(tasks: Tasks, session: Session, wanted: Sequence[Run]) -> bool:
    """Queue the measuring of runs; returns whether it was not under way already.

    What could not be measured is not tried again by itself.
    """
    left = [run for run in wanted if run not in session.unmeasured]
    if not left or is_measuring(tasks):
        return False

    def note(_task: Task) -> None:
        for job, run in left:
            if not is_complete(session, job, run):
                session.unmeasured.setdefault((job, run), _CANCELLED)

    tasks.on_cancel["measure"] = note
    submit(tasks, "measure", format_counted(len(left), "job"), lambda report: _measure(session, left, report))
    return True


def is_complete(session: Session, job: str, run: str | None) -> bool:
    """Return whether a job was examined, and its run measured."""
    measured = run is None or session.measures_made(job, run) is not None
    return measured and session.levels_found(job) is not None


def is_measuring(tasks: Tasks) -> bool:
    """Return whether jobs are being measured, in any studio."""
    return any(task.status in ACTIVE for task in list_tasks(tasks, "measure"))


def _measure(session: Session, wanted: Sequence[Run], report: Report) -> str:
    try:
        for done, (job, run) in enumerate(wanted):
            # Asked between checks, too, so that a large job can be cancelled.
            _measure_one(session, job, run, partial(report.running, done, len(wanted)))
        report.running(len(wanted), len(wanted))
    finally:
        # Pages hear of it even where it was over before they asked.
        session.measurings_ended += 1
    return ""


def _measure_one(session: Session, job: str, run: str | None, tell: Callable[[], None]) -> None:
    tell()
    try:
        if run is not None:
            session.measures(job, run)
        session.examination(job, progress=lambda _phase, _done, _total: tell())
    except TaskCancelled:
        raise
    except Exception as error:  # noqa: BLE001 - one job that cannot be measured must not keep the others from it
        session.unmeasured[job, run] = build_problem("measure", error)
