"""Advice for a job or a run, worked out once and kept by the session."""

from __future__ import annotations

from studio.advice.advice import Advised, advise
from studio.session import Session, keep_result


@keep_result
def advice_of(session: Session, job: str, run: str) -> Advised:
    """Return what changes would save: of a run on its system, of a recording by replay.

    Args:
        session: What is open.
        job: Id of the job.
        run: Id of one of its runs; "" for the recording.

    Raises:
        StudioError: There is no such job or run, or it cannot be simulated.
    """
    if not run:
        return advise(session.trace(job))
    opened = session.run(job, run)
    return advise(opened.result.trace, opened.parts)
