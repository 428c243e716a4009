"""Heatmap of collectives × ranks for notebooks: how long, how large, or how uneven each is on each rank."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from studio.analysis.collectives.cell import FORMATS
from studio.analysis.collectives.imbalance import Metric
from studio.figures.shades import FAINT, compute_scale_ticks, compute_shades
from studio.figures.theme import SEQUENTIAL, build_figure_layout, build_small_font, choose_palette
from studio.trace import Float64

_ROW_PX, _LEAST_PX, _MOST_PX = 16, 160, 900


def draw_collective_heatmap(
    table: Float64, names: Sequence[str], numbers: Sequence[int], metric: Metric, *, dark: bool
) -> Any:
    """Return the heatmap of a figure of collectives by rank; None where there are no collectives.

    Cells are blank where a rank takes no part. Colour is the logarithm of the figure.

    Args:
        table: (L, R) figures, NaN where a rank takes no part.
        names: (L,) names of the collectives; untrusted text.
        numbers: (R,) numbers of the ranks.
        metric: What the figures are.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    if not table.size:
        return None
    colours, format_value = choose_palette(dark), FORMATS[metric]
    shade, low, high = compute_shades(table)
    labels = [_escape_text(name) for name in names]
    words = np.array(
        [
            [f"{label} · {'takes no part' if np.isnan(value) else format_value(value)}" for value in line]
            for label, line in zip(labels, table.tolist(), strict=True)
        ],
        object,
    )
    heat = go.Heatmap(
        z=shade,
        x=[str(number) for number in numbers],
        y=list(range(len(labels))),
        customdata=words,
        hovertemplate="rank %{x} · %{customdata}<extra></extra>",
        colorscale=list(SEQUENTIAL["dark" if dark else "light"]),
        zmin=low - FAINT * (high - low) if (table == 0).any() else low,
        zmax=high,
        hoverongaps=False,
        colorbar={
            **compute_scale_ticks(
                low, high, format_value, zero=format_value(0) if (table == 0).any() else ""
            ),
            "title": {"text": metric, "side": "right", "font": build_small_font(colours)},
            "thickness": 10,
            "outlinewidth": 0,
            "tickfont": {"color": colours.dim},
        },
    )
    if not (table > 0).any():
        heat.colorbar.update(tickvals=[heat.zmin], ticktext=[format_value(0)])
    height = int(min(_MOST_PX, max(_LEAST_PX, 60 + _ROW_PX * len(labels))))
    figure = go.Figure(heat, build_figure_layout(dark, height=height))
    every = max(1, -(-len(labels) // ((height - 60) // 14)))
    figure.update_xaxes(title_text="rank", type="category", showgrid=False, nticks=min(32, len(numbers)))
    figure.update_yaxes(
        title_text="collective",
        tickvals=list(range(0, len(labels), every)),
        ticktext=labels[::every],
        autorange="reversed",
        showgrid=False,
    )
    return figure


def _escape_text(name: str) -> str:
    """Return untrusted text as plotly shows it to the letter, shortened."""
    kept = "".join(letter for letter in name if letter.isprintable())
    kept = kept if len(kept) <= 40 else f"…{kept[-39:]}"
    return escape(kept, quote=False)
