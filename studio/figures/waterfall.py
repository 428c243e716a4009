"""Waterfall from one makespan to another: what each part of the time adds or takes away."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from studio.analysis.compare.waterfall import Step, Waterfall
from studio.figures.theme import build_figure_layout, build_small_font, choose_axis_unit, choose_palette
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
    levels = [shown.a_ns]
    for step in steps:
        levels.append(levels[-1] + step.difference_ns)
    low = _begin(levels)
    unit, scale = choose_axis_unit(max(levels))
    labels = [f"{names[0]} finishes", *(words[step.part] for step in steps), f"{names[1]} finishes"]
    starts = [low, *(min(pair) for pair in itertools.pairwise(levels)), low]
    ends = [shown.a_ns, *(max(pair) for pair in itertools.pairwise(levels)), shown.b_ns]
    fills = [
        colours.host,
        *(colours.p2p if step.difference_ns > 0 else colours.compute for step in steps),
        colours.host,
    ]
    texts = [format_ns(shown.a_ns), *map(_label_step, steps), format_ns(shown.b_ns)]
    hovers = [
        f"{names[0]}: {shown.a_ns:,} ns",
        *(
            f"{words[step.part]}: {step.a_ns:,} → {step.b_ns:,} ns, {step.difference_ns:+,} ns"
            for step in steps
        ),
        f"{names[1]}: {shown.b_ns:,} ns",
    ]
    rows = list(range(len(labels)))
    span = max(ends) - low
    # A label stands beyond the end of its bar: to the left where more room is there.
    turned = [
        0 < row < len(rows) - 1 and start - low > max(ends) + _BEYOND * span - end
        for row, start, end in zip(rows, starts, ends, strict=True)
    ]
    bars = [
        (end, start - end) if turn else (start, end - start)
        for start, end, turn in zip(starts, ends, turned, strict=True)
    ]
    figure = go.Figure(
        go.Bar(
            y=rows,
            x=[length / scale for _, length in bars],
            base=[base / scale for base, _ in bars],
            orientation="h",
            marker={"color": fills, "line": {"width": 0}},
            width=0.62,
            text=texts,
            textposition="outside",
            textfont={"color": colours.text, "size": 12},
            cliponaxis=False,
            hovertext=hovers,
            hovertemplate="%{hovertext}<extra></extra>",
        ),
        build_figure_layout(
            dark, height=FIGURE_PX + 22 * max(0, len(labels) - _ROWS), showlegend=False, bargap=0.3
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
        range=[low / scale, (max(ends) + _BEYOND * span) / scale],
        title={"text": f"{unit}{cut}", "font": build_small_font(colours)},
        title_standoff=2,
        nticks=7,
        tickfont=build_small_font(colours),
        gridcolor=colours.border,
    )
    figure.update_yaxes(
        tickvals=rows, ticktext=labels, autorange="reversed", showgrid=False, linecolor="rgba(0,0,0,0)"
    )
    return figure


def _begin(levels: list[int]) -> int:
    """Return the start of the axis: 0, unless the changes would be too narrow to see."""
    low, high = min(levels), max(levels)
    if high - low >= _CUT * high or high == low:
        return 0
    return max(0, round(low - 0.6 * (high - low)))


def _label_step(step: Step) -> str:
    sign, arrow = ("+", "▲") if step.difference_ns > 0 else ("−", "▼")
    return f"{arrow} {sign}{format_ns(abs(step.difference_ns))}"
