"""Routes of the Graph page: the drawing as a file, and the map of the whole graph."""

from __future__ import annotations

from flask import Blueprint, Response, request

from studio.errors import StudioError, TraceError
from studio.figures.graph_files import SAID, write_drawing
from studio.server.answers import as_json, download, get_session, handle_error
from studio.server.packed import pack_arrays
from studio.views.graph import build_shown_elements, format_node_reference, map_shown


def build_graph_blueprint() -> Blueprint:
    """Make the routes below /api/jobs."""
    routes = Blueprint("graph", __name__, url_prefix="/api/jobs")
    routes.register_error_handler(StudioError, handle_error)

    @routes.get("/<job>/graph.<kind>")
    def serve_drawing(job: str, kind: str) -> Response:
        known_kind = next((candidate for candidate in SAID if candidate == kind), None)
        if known_kind is None:
            known = ", ".join(SAID)
            raise TraceError(f"A graph cannot be saved as {kind[:20]!r}.", hint=f"The kinds are {known}.")
        text = write_drawing(
            known_kind,
            build_shown_elements(get_session(), _build_view(job)),
            dark=request.args.get("theme") == "dark",
        )
        return download(iter([text]), f"graph-{job}.{known_kind}", SAID[known_kind])

    @routes.get("/<job>/graph/map")
    def describe(job: str) -> Response:
        overview = map_shown(get_session(), _build_view(job))
        header = {
            "width": overview.width,
            "height": overview.height,
            "layers": overview.layers,
            "widest": overview.widest,
        }
        return pack_arrays(header, {"kind": overview.kind, "shown": overview.shown})

    @routes.get("/<job>/graph/map/node")
    def serve_nearest_node(job: str) -> Response:
        view = _build_view(job)
        overview = map_shown(get_session(), view)
        row = overview.nearest(_parse_share("x"), _parse_share("y"))
        return as_json({"node": format_node_reference(get_session(), view, row) if row >= 0 else None})

    return routes


def _build_view(job: str) -> dict[str, str]:
    return {**request.args.to_dict(), "job": job}


def _parse_share(name: str) -> float:
    text = request.args.get(name, "")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise TraceError(
            f"The {name} {text[:20]!r} is not a position on the map.", hint="Send a number from 0 to 1."
        )
    return value
