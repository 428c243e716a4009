"""Routes of the Timeline's counters: bins for tiles, and tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from flask import Blueprint, Response, request

from studio.analysis.timeline.counters import Series
from studio.analysis.timeline.gantt import LEVEL_AT_MOST, TILE_BINS
from studio.server.answers import (
    FARTHEST,
    as_json,
    download,
    format_exact,
    format_plain_cell,
    get_session,
    parse_time_window,
    parse_whole,
)
from studio.server.packed import pack_arrays

_HEAD = ("counter", "unit", "mean", "most", "most_from_ns", "most_until_ns", "about")
_COURSE_HEAD = ("counter", "unit", "from_ns", "until_ns", "value")
_LINES_AT_ONCE = 4096


def add_counters(routes: Blueprint) -> None:
    """Add the routes to those of the timeline."""

    def get_series(job: str) -> tuple[Series, ...]:
        return get_session().counters(job, request.args.get("run", ""))

    @routes.get("/<job>/timeline/counters")
    def serve_counters(job: str) -> Response:
        series = get_series(job)
        level = parse_whole("level", LEVEL_AT_MOST)
        width, tile = 1 << level, parse_whole("tile", FARTHEST >> level)
        bins = [counter.steps.bins(tile * TILE_BINS * width, width, TILE_BINS) for counter in series]
        about = [
            {"title": counter.title, "about": counter.about, "unit": counter.unit, "most": counter.steps.most}
            for counter in series
        ]
        mean, peak = (np.concatenate([np.zeros(0), *(pair[part] for pair in bins)]) for part in (0, 1))
        return pack_arrays({"series": about, "bins": TILE_BINS}, {"mean": mean, "peak": peak})

    @routes.get("/<job>/timeline/counters/window")
    def serve_extents(job: str) -> Response:
        rows = _list_extents(get_series(job), *parse_time_window())
        return as_json({"head": _HEAD, "rows": rows, "count": len(rows)})

    @routes.get("/<job>/timeline/counters/window.tsv")
    def serve_extents_tsv(job: str) -> Response:
        lines = [_HEAD, *_list_extents(get_series(job), *parse_time_window())]
        text = "".join("\t".join(map(_format_cell, line)) + "\n" for line in lines)
        return Response(text, mimetype="text/tab-separated-values")

    @routes.get("/<job>/timeline/counters/course.csv")
    def serve_course(job: str) -> Response:
        series, (start, end) = get_series(job), parse_time_window()
        return download(_iterate_course(series, start, end), f"counters-{job}.csv", "text/csv")


def _list_extents(series: tuple[Series, ...], start_ns: int, end_ns: int) -> list[tuple[Any, ...]]:
    extents = [(counter, counter.steps.extent(start_ns, end_ns)) for counter in series]
    return [
        (counter.title, counter.unit, its.mean, its.most, its.most_from_ns, its.most_until_ns, counter.about)
        for counter, its in extents
    ]


def _iterate_course(series: tuple[Series, ...], start_ns: int, end_ns: int) -> Iterator[str]:
    """Yield every change of every counter as CSV, many lines at once."""
    yield ",".join(_COURSE_HEAD) + "\n"
    for counter in series:
        steps = counter.steps.changes(start_ns, end_ns)
        while part := list(islice(steps, _LINES_AT_ONCE)):
            yield "".join(
                f"{counter.title},{counter.unit},{begin},{until},{format_exact(value)}\n"
                for begin, until, value in part
            )


def _format_cell(value: Any) -> str:
    return format_exact(value) if isinstance(value, float) else format_plain_cell(value)
