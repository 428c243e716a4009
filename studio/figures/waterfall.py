"""Waterfall from one makespan to another: what each part of the time adds or takes away."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from studio.analysis.compare.waterfall import Step, Waterfall
from studio.figures.theme import (
    Palette,
    build_figure_layout,
    build_small_font,
    choose_axis_unit,
    choose_palette,
)
from studio.units import format_ns

_ROWS = 11
FIGURE_PX = 280
"""Height of the figure with up to eleven rows, so that nothing moves when it comes; each more takes 22 pixels."""
_CUT = 0.3
"""Where all that changes lies within this part of the finish, the axis does not begin at 0."""
_BEYOND = 0.32
"""Room for labels to the right of the longest bar, as a part of its length."""


def draw_waterfall(shown: Waterfall, names: tuple[str, str], words: Mapping[str, str], *, dark: bool) -> Any:
    """Return A's makespan, the steps that change it, and B's makespan, from top to bottom.

    Args:
        shown: The waterfall; parts that are equal on both sides are left out.
        names: What the runs are called, short.
        words: What parts are called.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    steps = [step for step in shown.steps if step.difference_ns]
    levels = list(itertools.accumulate((step.difference_ns for step in steps), initial=shown.a_ns))
    low = _begin(levels)
    unit, scale = choose_axis_unit(max(levels))
    rows = [
        _build_finish_row(names[0], low, shown.a_ns, colours),
        *(
            _build_step_row(step, words[step.part], pair, colours)
            for step, pair in zip(steps, itertools.pairwise(levels), strict=True)
        ),
        _build_finish_row(names[1], low, shown.b_ns, colours),
    ]
    furthest = max(row.end_ns for row in rows)
    right = furthest + _BEYOND * (furthest - low)
    # A label stands beyond the end of its bar: to the left where more room is there.
    turned = [row.is_step and row.start_ns - low > right - row.end_ns for row in rows]
    bars = [
        (row.end_ns, row.start_ns - row.end_ns) if turn else (row.start_ns, row.end_ns - row.start_ns)
        for row, turn in zip(rows, turned, strict=True)
    ]
    places = list(range(len(rows)))
    figure = go.Figure(
        go.Bar(
            y=places,
            x=[length / scale for _, length in bars],
            base=[base / scale for base, _ in bars],
            orientation="h",
            marker={"color": [row.fill for row in rows], "line": {"width": 0}},
            width=0.62,
            text=[row.text for row in rows],
            textposition="outside",
            textfont={"color": colours.text, "size": 12},
            cliponaxis=False,
            hovertext=[row.hover for row in rows],
            hovertemplate="%{hovertext}<extra></extra>",
        ),
        build_figure_layout(
            dark, height=FIGURE_PX + 22 * max(0, len(rows) - _ROWS), showlegend=False, bargap=0.3
        ),
    )
    for index, level in enumerate(levels):
        # From each bar to the next: where the one ends the other begins.
        figure.add_shape(
            type="line", x0=level / scale, x1=level / scale, y0=index - 0.31, y1=index + 1.31,
            line={"color": colours.dim, "width": 1}, layer="below",
        )  # fmt: skip
    cut = f", the axis begins at {format_ns(low)}" if low else ""
    figure.update_xaxes(
        range=[low / scale, right / scale],
        title={"text": f"{unit}{cut}", "font": build_small_font(colours)},
        title_standoff=2,
        nticks=7,
        tickfont=build_small_font(colours),
        gridcolor=colours.border,
    )
    figure.update_yaxes(
        tickvals=places,
        ticktext=[row.label for row in rows],
        autorange="reversed",
        showgrid=False,
        linecolor="rgba(0,0,0,0)",
    )
    return figure


@dataclass(frozen=True, slots=True)
class _Row:
    """A bar of the waterfall.

    Attributes:
        label: What stands beside the axis.
        start_ns, end_ns: From where to where it goes.
        fill: Its colour.
        text: What is written at its end.
        hover: What is said of it under the pointer.
        is_step: Whether it changes the finish, rather than being that of a run.
    """

    label: str
    start_ns: int
    end_ns: int
    fill: str
    text: str
    hover: str
    is_step: bool


def _build_finish_row(name: str, low: int, finish_ns: int, colours: Palette) -> _Row:
    hover = f"{name}: {finish_ns:,} ns"
    return _Row(f"{name} finishes", low, finish_ns, colours.host, format_ns(finish_ns), hover, is_step=False)


def _build_step_row(step: Step, name: str, levels: tuple[int, int], colours: Palette) -> _Row:
    fill = colours.p2p if step.difference_ns > 0 else colours.compute
    hover = f"{name}: {step.a_ns:,} → {step.b_ns:,} ns, {step.difference_ns:+,} ns"
    return _Row(name, min(levels), max(levels), fill, _label_step(step), hover, is_step=True)


def _begin(levels: list[int]) -> int:
    """Return the start of the axis: 0, unless the changes would be too narrow to see."""
    low, high = min(levels), max(levels)
    if high - low >= _CUT * high or high == low:
        return 0
    return max(0, round(low - 0.6 * (high - low)))


def _label_step(step: Step) -> str:
    sign, arrow = ("+", "▲") if step.difference_ns > 0 else ("−", "▼")
    return f"{arrow} {sign}{format_ns(abs(step.difference_ns))}"
