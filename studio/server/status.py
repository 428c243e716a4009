"""The status route: how full the studio's memory is of open jobs and runs."""

from __future__ import annotations

from flask import Blueprint, Response

from studio import __version__
from studio.server.answers import as_json, get_session


def build_status_blueprint() -> Blueprint:
    """Make the route `/status`."""
    routes = Blueprint("status", __name__)

    @routes.get("/status")
    def serve_status() -> Response:
        use = get_session().use
        cache = {"budget_bytes": use.budget_bytes, "used_bytes": use.used_bytes, "entries": use.entries}
        return as_json({"version": __version__, "cache": cache})

    return routes
