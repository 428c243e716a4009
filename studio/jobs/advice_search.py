"""Look for advice in the background: what changes of a job, or of the system of a run, would save."""

from __future__ import annotations

from studio.advice.advice import advise
from studio.advice.terms import Advised, Progress
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

_CANCELLED = Problem("The search for advice was cancelled.")


def get_advice(session: Session, job: str, run: str) -> Advised | Problem | None:
    """Return the advice for a run, "" for the recording; why there is none; None where nobody has looked for it."""
    advice: Advised | None = session.kept_of_job("advice", job, run)
    return advice if advice is not None else session.unadvised.get((job, run))


def is_sought(tasks: Tasks, job: str, run: str) -> bool:
    """Return whether advice for a run is being looked for."""
    return any(
        task.status in ACTIVE and task.details.get("run") == run for task in list_tasks(tasks, "advice", job)
    )


def start_advising(tasks: Tasks, session: Session, job: str, run: str) -> bool:
    """Look for advice for a run, "" for the recording; returns whether that was not under way already.

    One search that failed, or was cancelled, is begun again.

    Raises:
        StudioError: There is no such job or run.
    """
    if is_sought(tasks, job, run):
        return False
    session.unadvised.pop((job, run), None)
    name = session.workspace.info(job).name

    def note(task: Task) -> None:
        session.unadvised.setdefault((task.job, task.details.get("run", "")), _CANCELLED)

    tasks.on_cancel["advice"] = note
    try:
        submit(
            tasks,
            "advice",
            name,
            lambda report: _seek(session, job, run, report),
            job=job,
            details={"run": run},
        )
    except OSError as error:
        session.unadvised[job, run] = Problem(str(error))
        return False
    return True


def find_advice_for(session: Session, job: str, run: str, progress: Progress | None = None) -> Advised:
    """Return the advice for a run, "" for the recording; the session keeps it.

    Raises:
        StudioError: There is no such job or run, or it cannot be simulated.
    """

    def make() -> Advised:
        if not run:
            return advise(session.trace(job), progress=progress)
        opened = session.run(job, run)
        return advise(opened.result.trace, opened.parts, progress=progress)

    return session.keep_of_job("advice", job, make, run)


def _seek(session: Session, job: str, run: str, report: Report) -> str:
    try:
        find_advice_for(session, job, run, report.running)
        session.answers_made += 1
    except TaskCancelled:
        session.unadvised[job, run] = _CANCELLED
        raise
    except Exception as error:
        session.unadvised[job, run] = build_problem("advice", error)
        raise
    return job
