"""What a query of an address is asked of: the job and run that are shown, and the lists of the whole workspace."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from studio.comparing import RECORDED
from studio.session import Session
from studio.sql.columns import EXAMPLES
from studio.sql.database import ANSWER_BYTES, Answer, Database, Limits
from studio.sql.sources import Sources, build_stored_source, build_workspace_source
from studio.views.address import choose_shown_run

TIME_S: Final = 15.0
"""How long a query of the page may take."""
_FILE_BYTES = 1 << 30
"""How large an answer may be that a browser saves."""
_asked: dict[str, Database] = {}
"""What is being asked, by who asks it."""
_lock = threading.Lock()


def query_of(view: Mapping[str, Any]) -> str:
    """Return the query of a view; the first example where it has none."""
    return str(view.get("sql") or (EXAMPLES[0].query if view.get("job") else "FROM jobs"))


def build_sources(session: Session, view: Mapping[str, Any]) -> Sources:
    """Return what a view's query is asked of.

    Raises:
        StudioError: There is no such job or run.
    """
    job = str(view.get("job") or "")
    if not job:
        return build_workspace_source(session.workspace)
    run = choose_shown_run(session, job, view)
    # Lists are of all jobs, whichever is open.
    return replace(build_stored_source(session, job, run or RECORDED), listed=None)


def answer_of(session: Session, view: Mapping[str, Any], rows: int, asker: str = "") -> Answer:
    """Answer the query of a view, to be shown to an asker or, without one, to be saved.

    Args:
        session: The workspace, and what is open of it.
        view: The view.
        rows: Most rows of the answer.
        asker: Who asks, such as an opened page; what it asked before and has no answer yet is cancelled.

    Raises:
        StudioError: The query cannot be answered or was cancelled, or there is no such job or run.
    """
    limits = Limits(rows, TIME_S, ANSWER_BYTES if asker else _FILE_BYTES)
    with Database(build_sources(session, view)) as database, _allow_cancelling(asker, database):
        return database.ask(query_of(view), limits)


def cancel(asker: str) -> None:
    """End what an asker waits for, if it waits for anything."""
    with _lock:
        database = _asked.pop(asker, None)
    if database is not None:
        database.cancel()


@contextmanager
def _allow_cancelling(asker: str, database: Database) -> Iterator[None]:
    """Let an asker cancel what is asked in this block."""
    if not asker:
        yield
        return
    cancel(asker)
    with _lock:
        _asked[asker] = database
    try:
        yield
    finally:
        with _lock:
            if _asked.get(asker) is database:
                del _asked[asker]
