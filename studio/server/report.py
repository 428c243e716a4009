"""The report's route: runs of the workspace as one HTML file to keep."""

from __future__ import annotations

import re

from flask import Blueprint, Response, request

from studio.comparing import with_check
from studio.errors import StudioError, TraceError
from studio.server.answers import get_session, handle_error


def build_report_blueprint() -> Blueprint:
    """Make the route `/api/report?side=JOB/RUN[&side=…]`; RUN is "recorded" for a recording."""
    routes = Blueprint("report", __name__, url_prefix="/api/report")
    routes.register_error_handler(StudioError, handle_error)

    @routes.get("")
    def download() -> Response:
        sides = [_parse_side(text) for text in request.args.getlist("side")]
        if not sides:
            raise TraceError("No run is named.", hint="Open a job first.")
        name = re.sub(r"[^a-z0-9-]+", "-", "-vs-".join(job for job, _ in sides).lower())[:120]
        headers = {"Content-Disposition": f'attachment; filename="report-{name}.html"'}
        from studio.reporting import build_report

        text = build_report(
            [
                with_check(get_session().load_side(job, run), get_session().examination_made(job))
                for job, run in sides
            ]
        )
        return Response(text, mimetype="text/html", headers=headers)

    return routes


def _parse_side(text: str) -> tuple[str, str]:
    job, slash, run = text.partition("/")
    if not job or not slash or not run:
        raise TraceError(f"{text[:80]!r} names no run; allowed: JOB/RUN", hint="RUN may be 'recorded'.")
    return job, run
