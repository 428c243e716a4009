"""Measure jobs in the background, and examine them, for Trends: those where that was not done yet, in one task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from studio.jobs.rounds import Round, is_under_way, start_round
from studio.session import Session
from studio.store.tasks import Problem, Tasks

_CANCELLED = Problem("Measuring was cancelled.", "Start the studio again to measure these jobs.")

Run = tuple[str, str | None]
"""A job and one of its runs, "" for the recording, None where it has neither and is only examined."""


def start_measuring(tasks: Tasks, session: Session, wanted: Sequence[Run]) -> bool:
    """Queue the measuring of runs; returns whether it was not under way already.

    What could not be measured is not tried again by itself.
    """

    def measure(wanted_run: Run, tell: Callable[[], None]) -> None:
        job, run = wanted_run
        if run is not None:
            session.measures(job, run)
        # Asked between checks, too, so that a large job can be cancelled.
        session.examination(job, progress=lambda _phase, _done, _total: tell())

    return start_round(tasks, session, Round("measure", measure, session.unmeasured, _CANCELLED), wanted)


def is_measuring(tasks: Tasks) -> bool:
    """Return whether jobs are being measured, in any studio."""
    return is_under_way(tasks, "measure")
