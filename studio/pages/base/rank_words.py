"""Which ranks of a job are here, recorded or assumed, and what it was made from, in words."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from studio.analysis.job.completeness import Completeness, assumed_words
from studio.errors import StudioError
from studio.jobs.completing import made_from
from studio.pages.base.state import workspace
from studio.pages.base.widgets import link
from studio.store.workspace import JobInfo
from studio.trace import Trace
from studio.units import format_count, format_counted


def here_words(job: Completeness) -> str:
    """Say how many ranks of a job there are.

    Example:
        >>> here_words(Completeness((0,), 8, 8)), here_words(Completeness((0, 1), 2, -1, is_open=True))
        ('1 of 8 ranks is here.', '2 ranks of a job of unknown size are here.')
    """
    count = len(job.known)
    are = "is" if count == 1 else "are"
    if job.is_open:
        return f"{format_counted(count, 'rank')} of a job of unknown size {are} here."
    return f"{format_count(count)} of {format_counted(job.world, 'rank')} {are} here."


def whole_words(trace: Trace) -> str:
    """Say that all ranks of a job are there, and how many of them were recorded."""
    assumed = assumed_words(trace)
    if assumed:
        return f"{assumed}."
    return (
        f"All {format_counted(len(trace.ranks), 'rank')} are here."
        if len(trace.ranks) > 1
        else "One rank, the whole job."
    )


def origin_line(info: JobInfo) -> Any:
    """Say which job a completed or scaled one was made from; None for other jobs."""
    made = made_from(info)
    if made is None:
        return None
    done = {"complete": "Completed", "scale": "Scaled"}[made.verb]
    try:
        name = workspace().info(made.job).name
        before: Any = dcc.Link(html.Bdi(name), href=link("/ranks", {"job": made.job}))
    except StudioError:
        before = "a job that is no longer there"
    return html.P([f"{done} from ", before, ", which stays as it is."], className="fi-origin")
