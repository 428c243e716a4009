"""The route of Compare: a node's counterparts on every side, with their bars."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request

from studio.analysis.job.node_refs import find_node
from studio.analysis.timeline.gantt import Gantt
from studio.comparing import RECORDED, SIDES_AT_MOST
from studio.errors import StudioError, TraceError
from studio.server.answers import as_json, get_session, handle_error, parse_whole
from studio.server.bars import describe_own, describe_short
from studio.trace import Trace


def build_compare_blueprint() -> Blueprint:
    """Make the routes below /api/compare."""
    routes = Blueprint("compare", __name__, url_prefix="/api/compare")
    routes.register_error_handler(StudioError, handle_error)

    @routes.get("/node")
    def serve_node() -> Response:
        sides = _parse_sides()
        shown = get_session().lineup(sides)
        side = parse_whole("side", len(sides) - 1)
        trace = shown.sides[side].side.trace
        rank = _find_rank(trace)
        graph = trace.graph_of(trace.ranks[rank])
        row = find_node(graph, request.args.get("node", ""))
        partners = shown.partners(side, rank, row)
        bars = [
            None
            if partner is None
            else _describe_bar(get_session().gantt(job, "" if run == RECORDED else run), *partner)
            for (job, run), partner in zip(sides, partners, strict=True)
        ]
        return as_json({"sides": bars})

    return routes


def _parse_sides() -> list[tuple[str, str]]:
    given = [part.partition("/") for part in request.args.get("sides", "").split(",")]
    if not 2 <= len(given) <= SIDES_AT_MOST:
        raise TraceError(f"{len(given)} runs are named.", hint=f"Compare 2 to {SIDES_AT_MOST}.")
    return [(job, run or RECORDED) for job, _, run in given]


def _find_rank(trace: Trace) -> int:
    number = parse_whole("rank", 2**31 - 1)
    place = next((index for index, rank in enumerate(trace.ranks) if rank.number == number), None)
    if place is None:
        raise TraceError(f"This job has no rank {number}.", hint="See the overview for its ranks.")
    return place


def _describe_bar(gantt: Gantt, place: int, row: int) -> dict[str, Any]:
    rank = gantt.trace.ranks[place]
    graph = gantt.trace.graph_of(rank)
    bar = gantt.bar(rank, row)
    description = {
        **describe_short(graph, rank.number, row),
        "row": None if bar is None else bar.row,
        "start": None if bar is None else bar.start_ns,
        "end": None if bar is None else bar.end_ns,
    }
    return description if bar is None or bar.own_ns is None else {**description, **describe_own(gantt, bar)}
