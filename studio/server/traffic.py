"""Routes of the rank matrix: bytes from rank to rank, as windows for the heatmap and as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flask import Blueprint, Response, request, stream_with_context

from studio.analysis.collectives.heat import build_plain_tile
from studio.analysis.collectives.traffic import Traffic
from studio.errors import StudioError
from studio.figures.theme import DIVERGING, SEQUENTIAL
from studio.server.answers import format_csv_line, get_session, handle_error
from studio.server.collectives import parse_tile_window
from studio.server.packed import pack_arrays
from studio.trace import NONE, Trace
from studio.views.traffic import get_traffic


def build_traffic_blueprint() -> Blueprint:
    """Make the routes below /api/jobs."""
    routes = Blueprint("traffic", __name__, url_prefix="/api/jobs")
    routes.register_error_handler(StudioError, handle_error)

    @routes.get("/<job>/traffic")
    def serve_window(job: str) -> Response:
        return _serve_tile(*get_traffic(get_session(), job, request.args))

    @routes.get("/<job>/traffic.csv")
    def serve_numbers(job: str) -> Response:
        return Response(
            stream_with_context(_iterate_csv(*get_traffic(get_session(), job, request.args))),
            mimetype="text/csv",
        )

    return routes


def _serve_tile(trace: Trace, traffic: Traffic) -> Response:
    ranks = len(trace.ranks)
    table = traffic.bytes
    part = build_plain_tile(table, parse_tile_window(ranks, ranks))
    numbers = np.array([rank.number for rank in trace.ranks], np.int32)
    present = table[~np.isnan(table)]
    above = present[present > 0]
    lines = numbers[part.low : part.high : part.down]
    header: dict[str, Any] = {
        "lines": ranks,
        "ranks": ranks,
        "window": [part.low, part.high, part.left, part.right],
        "down": part.down,
        "across": part.across,
        "shape": list(part.values.shape),
        "unit": "bytes",
        "measured": "bytes",
        "folded": False,
        "timed": True,
        "pairs": True,
        "names": [f"from rank {number}" for number in lines.tolist()],
        "groups": [],
        "types": {},
        "sections": [],
        "range": {
            "least": float(present.min()) if len(present) else None,
            "most": float(present.max()) if len(present) else None,
            "positive": float(above.min()) if len(above) else None,
        },
        "colours": {"sequential": SEQUENTIAL, "diverging": DIVERGING},
    }
    none = np.full(len(lines), NONE, np.int32)
    columns = {
        "values": part.values.ravel(),
        "numbers": numbers[part.left : part.right],
        "name": np.arange(len(lines), dtype=np.int32),
        "group": none,
        "type": none,
        "section": none,
        "nth": none,
        "sum": np.nansum(table, axis=1)[part.low : part.high : part.down],
    }
    return pack_arrays(header, columns)


def _iterate_csv(trace: Trace, traffic: Traffic) -> Iterator[str]:
    """Yield CSV: per rank the bytes it sends to each other rank, empty for pairs that never communicate."""
    numbers = [rank.number for rank in trace.ranks]
    yield format_csv_line(["from_rank", "sum_bytes", *(f"to rank {number}" for number in numbers)])
    for number, row in zip(numbers, traffic.bytes, strict=True):
        figures = ["" if np.isnan(value) else f"{value:.15g}" for value in row.tolist()]
        yield format_csv_line([str(number), f"{np.nansum(row):.15g}", *figures])
