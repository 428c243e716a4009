"""Warnings at the lower edge of every page: runs, ranks and jobs that the address names and that do not exist."""

from __future__ import annotations

import json
from typing import Any

from dash import html

from studio.errors import StudioError
from studio.jobs.sweeps import list_sweeps
from studio.pages.base.state import RECORDED, get_session, get_workspace
from studio.pages.base.widgets import build_aria_label
from studio.views.address import list_run_options, rank_of

_NAMED_AT_MOST = 60
_OF_THE_JOB = frozenset({"/graph", "/timeline"})
"""Pages that compare with runs of the same job only."""


def list_missing(named: str | None) -> list[Any]:
    """Return a warning for each thing that the address names and that does not exist, with a button that removes it.

    Args:
        named: Page, and the view's job, run, rank, runs to compare with, run in the same lanes and sweep, as a JSON list.
    """
    path, job, run, rank, beside, ghost, sweep = json.loads(named) if named else [None] * 7
    if not job or not _is_job(job):
        return []  # the page reports this itself
    lines = []
    if run and not _is_run(job, run):
        lines.append(
            _build_line(
                _explain_missing_run(run), "The pages that need its times show nothing.", {"run": None}
            )
        )
    if rank is not None:
        try:
            rank_of(get_session().trace(job), {"rank": rank})
        except StudioError as error:
            lines.append(_build_line(error.message, error.hint, {"rank": None, "node": None}))
    for key, text in (("with", beside), ("ghost", ghost)):
        parts = [part for part in str(text or "").split(",") if part]
        kept = [part for part in parts if _is_there(path, job, part)]
        gone = [part for part in parts if part not in kept]
        if gone:
            message = f"There is no {' and no '.join(map(_quote, gone))} to compare with."
            lines.append(
                _build_line(
                    message, "It may have been deleted, or have no times.", {key: ",".join(kept) or None}
                )
            )
    if (
        sweep
        and path == "/sweep"
        and all(kept_sweep.id != sweep for kept_sweep in list_sweeps(get_session(), job))
    ):
        message = f"There is no sweep {_quote(sweep)}: it may have been deleted."
        lines.append(_build_line(message, "Another one is not shown in its place.", {"sweep": None}))
    return lines


def _build_line(message: str, hint: str, change: dict[str, Any]) -> Any:
    button: dict[str, Any] = {
        "data-view": json.dumps(change),
        **build_aria_label(f"Remove it from the address: {message}"),
    }
    return html.Div(
        [
            html.Span("missing", className="cs-level cs-level-warning"),
            html.Span([message, " ", html.Span(hint, className="cs-dim")]),
            html.Button("Remove it from the address", className="cs-button", **button),
        ],
        className="cs-missing",
    )


def _explain_missing_run(run: str) -> str:
    if run == RECORDED:
        return "The files of this job hold no times, so there is no recording to show."
    return f"This job has no run {_quote(run)}: it may have been deleted."


def _quote(text: str) -> str:
    return repr(text if len(text) <= _NAMED_AT_MOST else f"{text[: _NAMED_AT_MOST - 1]}…")


def is_side(part: str, *, timed: bool = False) -> bool:
    """Return whether a job, or `job/run`, exists; with `timed`, whether it has times."""
    job, _, run = part.partition("/")
    if not _is_job(job):
        return False
    if run:
        return _is_run(job, run)
    return not timed or bool(list_run_options(get_session(), job))


def _is_there(path: str | None, job: str, part: str) -> bool:
    return _is_run(job, part) if path in _OF_THE_JOB else is_side(part, timed=path == "/compare")


def _is_job(job: str) -> bool:
    try:
        get_workspace().info(job)
    except StudioError:
        return False
    return True


def _is_run(job: str, run: str) -> bool:
    if run == RECORDED:
        return get_workspace().info(job).summary.timed_nodes > 0
    try:
        get_workspace().run_info(job, run)
    except StudioError:
        return False
    return True
