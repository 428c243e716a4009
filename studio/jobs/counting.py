"""Count jobs again in the background whose stored numbers meant something else, for the list of jobs on Home: in one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from studio.jobs.rounds import Round, start_round
from studio.session import Session
from studio.store.job_infos import JobInfo
from studio.store.tasks import Problem, Tasks

_CANCELLED = Problem("Counting was cancelled.", "Open the job to count it again.")


def start_counting(tasks: Tasks, session: Session, jobs: Sequence[JobInfo]) -> bool:
    """Queue the counting of jobs whose recorded span may be told wrongly; returns whether it was not under way already.

    What could not be counted is not tried again by itself.
    """

    def count(job: str, _tell: Callable[[], None]) -> None:
        # What is open already is at hand; what is not is not kept.
        opened = session.kept_of_job("trace", job)
        trace = session.workspace.load(job) if opened is None else opened
        if session.workspace.renew_summary(job, trace).has_old_summary:
            session.uncounted[job] = Problem("The workspace cannot be written.")

    awaited = [info.id for info in jobs if is_awaited(session, info)]
    return start_round(tasks, session, Round("summary", count, session.uncounted, _CANCELLED), awaited)


def is_awaited(session: Session, info: JobInfo) -> bool:
    """Return whether the recorded span of a job waits for being counted again."""
    return info.has_old_summary and info.summary.timed_nodes > 0 and info.id not in session.uncounted
