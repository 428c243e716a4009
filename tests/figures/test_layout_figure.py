"""Step time of layouts against memory, as a figure."""

from __future__ import annotations

import studio
from studio.figures.layouts import front_figure
from studio.generation.models import Model


def test_every_layout_is_a_point_that_names_itself():
    model = Model("tiny", 2, 64, 4, 2, 16, 128, 96, 64)
    more = {"batch": 2, "recompute": "none", "micro_batch": 1, "zero": 0, "sequence_parallel": True}
    found = studio.plan(model, ranks=2, gpu="h100", **more)
    for dark in (False, True):
        figure = front_figure(found, dark=dark)
        points = [place for trace in figure.data for place in trace.customdata]
        assert sorted(points) == list(range(len(found.items)))
    front = figure.data[-1]
    assert list(front.y) == sorted(front.y, reverse=True)
    assert list(front.x) == [item.held.total / 1e9 for item in found.front]
    assert all(
        found.items[at].candidate.layout.name in text
        for at, text in zip(front.customdata, front.text, strict=True)
    )
