"""Words on the jobs that Home lists."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.store.job_infos import JobInfo


def describe_hypothetical(job: JobInfo) -> list[Any]:
    """Say of a job that advice has made that nobody has recorded it, and in a title what was changed; [] for others."""
    if not job.hypothetical:
        return []
    return [html.Span(" · hypothetical, made for advice", className="cs-dim", title=job.hypothetical)]
