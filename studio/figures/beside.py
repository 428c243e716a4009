"""Heatmaps of two runs on one colour scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studio.figures.rank_axis import NUMBERED, is_numbered
from studio.figures.shades import FAINT, compute_scale_ticks, compute_shades
from studio.figures.theme import (
    SEQUENTIAL,
    Palette,
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
_LABELS = 6
"""Rows that are named, at most."""
_NO_AXIS = {"type": "linear", "range": [0, 1], "showgrid": False, "showticklabels": False}
"""The axes of a heatmap of nothing."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """The place of one heatmap, in parts of the figure.

    Attributes:
        axis: What the names of its axes end with.
        across, along: Where it begins and ends, from the left and from below.
        high: The height of a line, with what is between two.
        is_first: Whether it is the first of its line.
    """

    axis: str
    across: tuple[float, float]
    along: tuple[float, float]
    high: float
    is_first: bool


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
    # All tables at once, so that they share the range.
    shade, least, longest = compute_shades(np.concatenate([table.ravel() for table in tables]))
    parts = np.split(shade, np.cumsum([table.size for table in tables])[:-1])
    row_labels = rows or [[str(row) for row in range(len(table))] for table in tables]
    figure = go.Figure(
        layout=build_figure_layout(dark, height=_HEIGHT * lines, margin={"l": 10, "r": 10, "t": 24, "b": 10})
    )
    for index, (table, numbers, labels, name) in enumerate(
        zip(tables, ranks, row_labels, names, strict=True)
    ):
        cell = _place_cell(index, len(tables))
        axes = {"xaxis": f"x{cell.axis}", "yaxis": f"y{cell.axis}"}
        figure.add_trace(
            go.Heatmap(
                z=parts[index].reshape(table.shape).astype(np.float32),
                customdata=(table / scale).astype(np.float32),
                x=list(numbers) if is_numbered(numbers) else [str(number) for number in numbers],
                y=list(labels),
                coloraxis="coloraxis",
                hoverongaps=False,
                hovertemplate=f"{name} · rank %{{x}} · %{{y}} · %{{customdata:.4g}} {unit}<extra></extra>",
                **axes,
            )
            if table.size
            else go.Scatter(x=[None], y=[None], showlegend=False, **axes)
        )
        figure.update_layout(_build_axes(cell, numbers if table.size else None, labels, colours))
        for annotation in _list_annotations(cell, name, colours, is_empty=not table.size):
            figure.add_annotation(annotation)
    zero = any(bool((table == 0).any()) for table in tables)
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


def _place_cell(index: int, count: int) -> _Cell:
    """Return where the heatmap of a run lies among those of so many."""
    lines = -(-count // _ACROSS)
    across = -(-count // lines)
    gap, wide, high = 0.06 if across < _ACROSS else 0.045, 1 / across, 1 / lines
    line, place = divmod(index, across)
    left = place * wide + (gap / 2 if place else 0)
    right = (place + 1) * wide - (gap / 2 if place + 1 < across else 0)
    top = 1 - line * high - (0.06 if line else 0)
    bottom = 1 - (line + 1) * high + (0.06 if line + 1 < lines else 0)
    return _Cell("" if index == 0 else str(index + 1), (left, right), (bottom, top), high, place == 0)


def _build_axes(
    cell: _Cell, ranks: Sequence[int] | None, labels: Sequence[str], colours: Palette
) -> dict[str, Any]:
    """Return the axes of a heatmap by their names in the figure's layout; ranks are None where there is nothing to show."""
    font = build_small_font(colours)
    every = labels[:: max(1, -(-len(labels) // _LABELS))]
    x: dict[str, Any] = {"type": "category", "showgrid": False}
    y: dict[str, Any] = {"autorange": "reversed", "showgrid": False, "type": "category"}
    if ranks is None:
        # An axis of categories without one has no length, which the browser takes as an error.
        x = y = _NO_AXIS
    elif is_numbered(ranks):
        x = NUMBERED
    return {
        f"xaxis{cell.axis}": {
            "domain": list(cell.across),
            "anchor": f"y{cell.axis}",
            "zeroline": False,
            "title": {"text": "rank", "font": font},
            **x,
            "title_standoff": 2,
            "tickfont": font,
        },
        f"yaxis{cell.axis}": {
            "domain": list(cell.along),
            "anchor": f"x{cell.axis}",
            "zeroline": False,
            **y,
            "tickvals": every,
            "ticktext": [label.split(" ")[0] for label in every],
            "tickfont": font,
            "title": {"text": "collectives" if cell.is_first else "", "font": font},
            "title_standoff": 4,
        },
    }


def _list_annotations(cell: _Cell, name: str, colours: Palette, *, is_empty: bool) -> list[dict[str, Any]]:
    """Return what is written into and above a heatmap."""
    left, right = cell.across
    top = cell.along[1]
    shared = {"xref": "paper", "yref": "paper", "showarrow": False}
    title = {
        **shared,
        "text": f"<b>{name}</b>",
        "x": left,
        "y": top,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"color": colours.text, "size": 12},
    }
    if not is_empty:
        return [title]
    words = {
        **shared,
        "text": "no collectives",
        "x": (left + right) / 2,
        "y": top - cell.high / 2,
        "font": {"color": colours.dim, "size": 12},
    }
    return [words, title]
