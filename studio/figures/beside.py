"""Heatmaps of two runs on one colour scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studio.figures.rank_axis import NUMBERED, is_numbered
from studio.figures.shades import FAINT, compute_scale_ticks, compute_shades
from studio.figures.theme import (
    SEQUENTIAL,
    build_figure_layout,
    build_small_font,
    choose_axis_unit,
    choose_palette,
)
from studio.trace import Float64
from studio.units import format_ns

_HEIGHT = 300
_ACROSS = 4
"""Heatmaps of one line."""
_NO_AXIS = {"type": "linear", "range": [0, 1], "showgrid": False, "showticklabels": False}
"""The axes of a heatmap of nothing."""


def draw_beside(
    tables: Sequence[Float64],
    ranks: Sequence[Sequence[int]],
    names: Sequence[str],
    *,
    dark: bool,
    rows: Sequence[Sequence[str]] = (),
) -> Any:
    """Return one heatmap per run, up to four in a line, rows by time, on one colour scale.

    Colours follow the logarithm, as on the page Collectives.

    Args:
        tables: (L, R) ns for each run, NaN where a rank takes no part.
        ranks: (R,) numbers of the ranks of each.
        names: What the runs are called, short.
        dark: Which theme.
        rows: (L,) what the rows of each are called, no two alike; numbered where nothing is given.

    A run of which no rank takes part in any is told so in its place.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    most = max(
        (float(np.nanmax(table)) for table in tables if table.size and not np.isnan(table).all()), default=1.0
    )
    unit, scale = choose_axis_unit(most)
    lines = -(-len(tables) // _ACROSS)
    across = -(-len(tables) // lines)
    gap, wide, high = 0.06 if across < _ACROSS else 0.045, 1 / across, 1 / lines
    # All tables at once, so that they share the range.
    shade, least, longest = compute_shades(np.concatenate([table.ravel() for table in tables]))
    parts = np.split(shade, np.cumsum([table.size for table in tables])[:-1])
    zero = any(bool((table == 0).any()) for table in tables)
    called = rows or [[str(row) for row in range(len(table))] for table in tables]
    figure = go.Figure(
        layout=build_figure_layout(dark, height=_HEIGHT * lines, margin={"l": 10, "r": 10, "t": 24, "b": 10})
    )
    for index, (table, numbers, labels, name) in enumerate(zip(tables, ranks, called, names, strict=True)):
        axis = "" if index == 0 else str(index + 1)
        numbered = is_numbered(numbers)
        # An axis of categories without one has no length, which the browser takes as an error.
        empty = not table.size
        figure.add_trace(
            go.Scatter(x=[None], y=[None], xaxis=f"x{axis}", yaxis=f"y{axis}", showlegend=False)
            if empty
            else go.Heatmap(
                z=parts[index].reshape(table.shape).astype(np.float32),
                customdata=(table / scale).astype(np.float32),
                x=list(numbers) if numbered else [str(number) for number in numbers],
                y=list(labels),
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                coloraxis="coloraxis",
                hoverongaps=False,
                hovertemplate=f"{name} · rank %{{x}} · %{{y}} · %{{customdata:.4g}} {unit}<extra></extra>",
            )
        )
        every = labels[:: max(1, -(-len(labels) // 6))]
        line, place = divmod(index, across)
        domain = [
            place * wide + (gap / 2 if place else 0),
            (place + 1) * wide - (gap / 2 if place + 1 < across else 0),
        ]
        top = 1 - line * high - (0.06 if line else 0)
        figure.update_layout(
            {
                f"xaxis{axis}": {
                    "domain": domain, "anchor": f"y{axis}", "zeroline": False, "title": {"text": "rank", "font": build_small_font(colours)},
                    **(_NO_AXIS if empty else NUMBERED if numbered else {"type": "category", "showgrid": False}), "title_standoff": 2, "tickfont": build_small_font(colours),
                },
                f"yaxis{axis}": {
                    "domain": [1 - (line + 1) * high + (0.06 if line + 1 < lines else 0), top],
                    "anchor": f"x{axis}", "zeroline": False, **(_NO_AXIS if empty else {"autorange": "reversed", "showgrid": False, "type": "category"}),
                    "tickvals": every, "ticktext": [label.split(" ")[0] for label in every],
                    "tickfont": build_small_font(colours),
                    "title": {"text": "collectives" if place == 0 else "", "font": build_small_font(colours)}, "title_standoff": 4,
                },
            }
        )  # fmt: skip
        if empty:
            figure.add_annotation(
                text="no collectives", x=sum(domain) / 2, y=top - high / 2, xref="paper", yref="paper",
                showarrow=False, font={"color": colours.dim, "size": 12},
            )  # fmt: skip
        figure.add_annotation(
            text=f"<b>{name}</b>", x=domain[0], y=top, xref="paper", yref="paper", xanchor="left", yanchor="bottom",
            showarrow=False, font={"color": colours.text, "size": 12},
        )  # fmt: skip
    figure.update_layout(
        coloraxis={
            "colorscale": list(SEQUENTIAL["dark" if dark else "light"]),
            "cmin": least - FAINT * (longest - least) if zero else least,
            "cmax": longest,
            "colorbar": {
                **compute_scale_ticks(least, longest, format_ns, zero="0 ns" if zero else ""),
                "title": {"text": "log", "font": build_small_font(colours)},
                "thickness": 10,
                "outlinewidth": 0,
                "tickfont": build_small_font(colours),
            },
        }
    )
    return figure
