"""Which ranks of a job are here, recorded or assumed, and what it was made from, in words."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from studio.analysis.job.completeness import Completeness, assumed_words, is_recording
from studio.doctor.checks import LEAVES_WHOLE
from studio.errors import StudioError
from studio.jobs.completing import made_from
from studio.pages.base.state import workspace
from studio.pages.base.widgets import link
from studio.sim.agreement import rank_list
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


def known_word(trace: Trace) -> str:
    """Say what a rank is that repeats no other: a job that was generated or converted is no recording."""
    return "recorded" if is_recording(trace) else "here"


def lost_words(trace: Trace) -> str:
    """Say of which ranks part of the files is lost; "" where none is.

    Example:
        >>> from studio.trace import Finding
        >>> lost = [Finding("error", "damaged-file", "the file ends inside a record", rank=rank) for rank in (2, 5)]
        >>> lost_words(Trace((), (), findings=tuple(lost))), lost_words(Trace((), ()))
        ('Part of the files of ranks 2, 5 is lost.', '')
    """
    lost = [
        finding for finding in trace.findings if finding.level == "error" and finding.code not in LEAVES_WHOLE
    ]
    numbers = sorted({finding.rank for finding in lost if finding.rank is not None})
    of_whom = f" of {rank_list(numbers)}" if numbers else ""
    return f"Part of the files{of_whom} is lost." if lost else ""


def lost_line(trace: Trace, job: str) -> Any:
    """Return what `lost_words` says, with where to read on; None where nothing is lost."""
    words = lost_words(trace)
    if not words:
        return None
    more = (
        "What is shown of them is what could be read, and problems that other ranks have may follow from it: "
    )
    return html.Div(
        [
            html.P(words, className="cs-ask-words"),
            html.P([more, dcc.Link("Findings", href=link("/findings", {"job": job})), "."]),
        ],
        className="cs-ask",
    )


def origin_line(info: JobInfo) -> Any:
    """Say which job a completed or scaled one was made from; None for other jobs."""
    source = made_from(info)
    if source is None:
        return None
    done = {"complete": "Completed", "scale": "Scaled"}[source.verb]
    try:
        name = workspace().info(source.job).name
        before: Any = dcc.Link(html.Bdi(name), href=link("/ranks", {"job": source.job}))
    except StudioError:
        before = "a job that is no longer there"
    return html.P([f"{done} from ", before, ", which stays as it is."], className="fi-origin")
