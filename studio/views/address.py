"""The run and rank that an address names, with defaults for what it leaves open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from studio.analysis.job.nodes import NodeIndex
from studio.comparing import RECORDED
from studio.errors import StudioError, TraceError
from studio.session import Session
from studio.trace import Rank, Trace
from studio.units import format_ns


def choose_shown_run(session: Session, job: str, view: Mapping[str, Any]) -> str | None:
    """Return which run a view shows: an id, "" for the recording, None where the job has neither."""
    wanted = view.get("run")
    if wanted:
        return "" if wanted == RECORDED else str(wanted)
    if session.workspace.info(job).summary.timed_nodes:
        return ""
    runs = session.workspace.runs(job)
    return runs[0].id if runs else None


def read_shown_run(shown: str | None) -> tuple[str | None, str | None]:
    """Return the job and the run that the view names; `shown` is both as a JSON list, nothing before there is a view.

    Example:
        >>> read_shown_run('["a1b2", null]'), read_shown_run(None)
        (('a1b2', None), (None, None))
    """
    job, run = json.loads(shown) if shown else (None, None)
    return job, run


def rank_of(trace: Trace, view: Mapping[str, Any]) -> Rank:
    """Return the rank a view is about, the first where it names none.

    Raises:
        TraceError: The job has no such rank.
    """
    wanted = view.get("rank")
    if wanted is None:
        return trace.ranks[0]
    rank = trace.rank(int(wanted)) if str(wanted).isdecimal() else None
    if rank is None:
        numbers = f"{trace.ranks[0].number} to {trace.ranks[-1].number}"
        raise TraceError(f"This job has no rank {str(wanted)[:20]!r}.", hint=f"Its ranks are {numbers}.")
    return rank


def list_run_options(session: Session, job: str) -> list[dict[str, str]]:
    """Return the recording and runs of a job as options, newest run first."""
    timed = session.workspace.info(job).summary.timed_nodes
    recording = [{"value": RECORDED, "label": "as recorded"}] if timed else []
    runs = [
        {"value": run.id, "label": f"{run.label} · {format_ns(run.makespan_ns)}"}
        for run in session.workspace.runs(job)
    ]
    return recording + runs


def get_shown_nodes(session: Session, job: str, run: str) -> NodeIndex:
    """Return the searchable list of a job's nodes, with the times of a run; "" stands for the default run.

    If there is no such run, the list has recorded times; the page reports the missing run.
    """
    shown = choose_shown_run(session, job, {"run": run}) or ""
    if shown:
        try:
            session.workspace.require(job, shown)
        except StudioError:
            shown = ""
    return session.node_index(job, shown)


def run_note(session: Session, job: str | None, view: Mapping[str, Any]) -> str:
    """Say which run the listed times are of; "" if the view shows no run."""
    if not job:
        return ""
    try:
        run = choose_shown_run(session, job, view)
        if not run:
            return ""
        info = session.workspace.run_info(job, run)
        timed = session.workspace.info(job).summary.timed_nodes > 0
    except StudioError:
        return ""  # the page says what is wrong
    beside = "beside those recorded" if timed else "none were recorded"
    return f"Times of the run {info.label}, {format_ns(info.makespan_ns)} in all, {beside}"
