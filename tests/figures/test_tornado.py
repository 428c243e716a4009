"""The tornado shows what was simulated, and names of a trace as they are."""

from __future__ import annotations

from studio.advice.words import Bar
from studio.figures.tornado import draw_tornado


def test_bars_lie_on_their_side_of_the_finish_with_their_times():
    rows = [
        Bar("the best together", "Together: …", 30.0, better="−3.00 ms", combined=True),
        Bar("bandwidth of dimension 0", "…", 10.0, 25.0, better="−1.00 ms", worse="+2.50 ms"),
        Bar(
            "rank 2: slow to median",
            "Bring rank 2 <b>…",
            5.0,
            low_percent=2.0,
            high_percent=9.0,
            better="−500 µs",
        ),
    ]
    figure = draw_tornado(rows, dark=False)
    saved, costs = figure.data
    assert list(saved.x) == [-30.0, -10.0, -5.0]
    assert list(costs.x) == [0.0, 25.0, 0.0]
    assert list(saved.text) == ["−3.00 ms", "−1.00 ms", "−500 µs"]
    # From −9 to −2 around −5.
    assert (saved.error_x.array[2], saved.error_x.arrayminus[2]) == (3.0, 4.0)
    assert list(figure.layout.yaxis.ticktext) == [row.label for row in rows]
    assert saved.hovertext[2] == "Bring rank 2 &lt;b&gt;…"
    low, high = figure.layout.xaxis.range
    assert low < -30
    assert high > 25


def test_it_can_be_drawn_of_nothing():
    assert draw_tornado([], dark=True).layout.height > 0
