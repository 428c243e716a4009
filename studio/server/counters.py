"""Route of the counter rows: how much is under way, bin by bin, at the zoom of a tile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flask import Blueprint, Response, request

from studio.analysis.counters import Series
from studio.analysis.gantt import LEVEL_AT_MOST, TILE_BINS, Gantt
from studio.server.answers import FARTHEST, whole
from studio.server.packed import packed


def add_counters(
    routes: Blueprint,
    gantt_of: Callable[[str, str], Gantt],
    counters_of: Callable[[str, str], tuple[Series, ...]],
) -> None:
    """Add the route to those of the timeline."""

    @routes.get("/<job>/timeline/counters")
    def counters(job: str) -> Response:
        run = request.args.get("run", "")
        gantt_of(job, run)
        found = counters_of(job, run)
        level = whole("level", LEVEL_AT_MOST)
        width, tile = 1 << level, whole("tile", FARTHEST >> level)
        bins = [one.steps.bins(tile * TILE_BINS * width, width, TILE_BINS) for one in found]
        about = [
            {"title": one.title, "about": one.about, "unit": one.unit, "most": one.steps.most}
            for one in found
        ]
        mean, peak = (np.concatenate([np.zeros(0), *(pair[at] for pair in bins)]) for at in (0, 1))
        return packed({"series": about, "bins": TILE_BINS}, {"mean": mean, "peak": peak})
