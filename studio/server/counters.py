"""Routes of the counter rows: how much is under way, bin by bin at the zoom of a tile, and the tables behind them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from flask import Blueprint, Response, request, stream_with_context

from studio.analysis.timeline.counters import Series
from studio.analysis.timeline.gantt import LEVEL_AT_MOST, TILE_BINS
from studio.server.answers import FARTHEST, as_json, exact_number, plain_cell, session, whole, window
from studio.server.packed import packed

_HEAD = ("counter", "unit", "mean", "most", "most_from_ns", "most_until_ns", "about")
_COURSE_HEAD = ("counter", "unit", "from_ns", "until_ns", "value")
_LINES_AT_ONCE = 4096


def add_counters(routes: Blueprint) -> None:
    """Add the routes to those of the timeline."""

    def asked(job: str) -> tuple[Series, ...]:
        return session().counters(job, request.args.get("run", ""))

    @routes.get("/<job>/timeline/counters")
    def counters(job: str) -> Response:
        found = asked(job)
        level = whole("level", LEVEL_AT_MOST)
        width, tile = 1 << level, whole("tile", FARTHEST >> level)
        bins = [one.steps.bins(tile * TILE_BINS * width, width, TILE_BINS) for one in found]
        about = [
            {"title": one.title, "about": one.about, "unit": one.unit, "most": one.steps.most}
            for one in found
        ]
        mean, peak = (np.concatenate([np.zeros(0), *(pair[at] for pair in bins)]) for at in (0, 1))
        return packed({"series": about, "bins": TILE_BINS}, {"mean": mean, "peak": peak})

    @routes.get("/<job>/timeline/counters/window")
    def extents(job: str) -> Response:
        rows = _extents(asked(job), *window())
        return as_json({"head": _HEAD, "rows": rows, "count": len(rows)})

    @routes.get("/<job>/timeline/counters/window.tsv")
    def extents_copied(job: str) -> Response:
        lines = [_HEAD, *_extents(asked(job), *window())]
        text = "".join("\t".join(map(_cell, line)) + "\n" for line in lines)
        return Response(text, mimetype="text/tab-separated-values")

    @routes.get("/<job>/timeline/counters/course.csv")
    def course(job: str) -> Response:
        found, (start, end) = asked(job), window()
        name = f'attachment; filename="counters-{job}.csv"'
        return Response(
            stream_with_context(_course(found, start, end)),
            mimetype="text/csv",
            headers={"Content-Disposition": name},
        )


def _extents(found: tuple[Series, ...], start_ns: int, end_ns: int) -> list[tuple[Any, ...]]:
    extents = [(one, one.steps.extent(start_ns, end_ns)) for one in found]
    return [
        (one.title, one.unit, its.mean, its.most, its.most_from_ns, its.most_until_ns, one.about)
        for one, its in extents
    ]


def _course(found: tuple[Series, ...], start_ns: int, end_ns: int) -> Iterator[str]:
    """Yield how each counter goes as CSV, many lines at once."""
    yield ",".join(_COURSE_HEAD) + "\n"
    for one in found:
        steps = one.steps.changes(start_ns, end_ns)
        while part := list(islice(steps, _LINES_AT_ONCE)):
            yield "".join(
                f"{one.title},{one.unit},{begin},{until},{exact_number(value)}\n"
                for begin, until, value in part
            )


def _cell(value: Any) -> str:
    return exact_number(value) if isinstance(value, float) else plain_cell(value)
