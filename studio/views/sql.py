"""What a query of an address is asked of: the job and run that are shown, and the lists of the whole workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from studio.comparing import RECORDED
from studio.session import Session
from studio.sql.columns import EXAMPLES
from studio.sql.database import Answer, Database, Limits
from studio.sql.sources import Sources, stored_source, workspace_source
from studio.views.address import shown_run

TIME_S: Final = 15.0
"""How long a query of the page may take."""


def query_of(view: Mapping[str, Any]) -> str:
    """Return the query of a view; the first example where it has none."""
    return str(view.get("sql") or (EXAMPLES[0].query if view.get("job") else "FROM jobs"))


def sources_of(session: Session, view: Mapping[str, Any]) -> Sources:
    """Return what a view's query is asked of.

    Raises:
        StudioError: There is no such job or run.
    """
    job = str(view.get("job") or "")
    if not job:
        return workspace_source(session.workspace)
    run = shown_run(session, job, view)
    # Lists are of all jobs, whichever is open.
    return replace(stored_source(session, job, run or RECORDED), listed=None)


def answer_of(session: Session, view: Mapping[str, Any], rows: int) -> Answer:
    """Answer the query of a view.

    Args:
        session: The workspace, and what is open of it.
        view: The view.
        rows: Most rows of the answer.

    Raises:
        StudioError: The query cannot be answered, or there is no such job or run.
    """
    with Database(sources_of(session, view)) as database:
        return database.ask(query_of(view), Limits(rows, TIME_S))
