"""Which ranks of a job are here, recorded or assumed, and what it was made from, in words."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from studio.analysis.job.completeness import Completeness, describe_assumed, is_recording
from studio.doctor.checks import LEAVES_WHOLE
from studio.errors import StudioError
from studio.jobs.completing import parse_source
from studio.pages.base.state import get_workspace
from studio.pages.base.widgets import build_address
from studio.sim.agreement import format_ranks
from studio.store.job_infos import JobInfo
from studio.trace import Trace
from studio.units import format_count, format_counted


def describe_present_ranks(job: Completeness) -> str:
    """Say how many ranks of a job there are.

    Example:
        >>> describe_present_ranks(Completeness((0,), 8, 8)), describe_present_ranks(Completeness((0, 1), 2, -1, is_open=True))
        ('1 of 8 ranks is here.', '2 ranks of a job of unknown size are here.')
    """
    count = len(job.known)
    are = "is" if count == 1 else "are"
    if job.is_open:
        return f"{format_counted(count, 'rank')} of a job of unknown size {are} here."
    return f"{format_count(count)} of {format_counted(job.world, 'rank')} {are} here."


def describe_whole_job(trace: Trace) -> str:
    """Say that all ranks of a job are there, and how many of them were recorded."""
    assumed = describe_assumed(trace)
    if assumed:
        return f"{assumed}."
    return (
        f"All {format_counted(len(trace.ranks), 'rank')} are here."
        if len(trace.ranks) > 1
        else "One rank, the whole job."
    )


def name_known_rank(trace: Trace) -> str:
    """Say what a rank is that repeats no other: a job that was generated or converted is no recording."""
    return "recorded" if is_recording(trace) else "here"


def describe_lost_ranks(trace: Trace) -> str:
    """Say of which ranks part of the files is lost; "" where none is.

    Example:
        >>> from studio.trace import Finding
        >>> lost = [Finding("error", "damaged-file", "the file ends inside a record", rank=rank) for rank in (2, 5)]
        >>> describe_lost_ranks(Trace((), (), findings=tuple(lost))), describe_lost_ranks(Trace((), ()))
        ('Part of the files of ranks 2, 5 is lost.', '')
    """
    lost = [
        finding for finding in trace.findings if finding.level == "error" and finding.code not in LEAVES_WHOLE
    ]
    numbers = sorted({finding.rank for finding in lost if finding.rank is not None})
    of_whom = f" of {format_ranks(numbers)}" if numbers else ""
    return f"Part of the files{of_whom} is lost." if lost else ""


def build_lost_line(trace: Trace, job: str) -> Any:
    """Return what `describe_lost_ranks` says, with where to read on; None where nothing is lost."""
    words = describe_lost_ranks(trace)
    if not words:
        return None
    more = (
        "What is shown of them is what could be read, and problems that other ranks have may follow from it: "
    )
    return html.Div(
        [
            html.P(words, className="cs-ask-words"),
            html.P([more, dcc.Link("Findings", href=build_address("/findings", {"job": job})), "."]),
        ],
        className="cs-ask",
    )


def build_origin_line(info: JobInfo) -> Any:
    """Say which job a completed or scaled one was made from; None for other jobs."""
    source = parse_source(info)
    if source is None:
        return None
    done = {"complete": "Completed", "scale": "Scaled"}[source.verb]
    try:
        name = get_workspace().info(source.job).name
        before: Any = dcc.Link(html.Bdi(name), href=build_address("/ranks", {"job": source.job}))
    except StudioError:
        before = "a job that is no longer there"
    return html.P([f"{done} from ", before, ", which stays as it is."], className="fi-origin")
