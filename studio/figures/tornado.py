"""Tornado: what each change takes off the finish, and what its opposite adds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from studio.advice.words import Bar
from studio.figures.theme import Palette, build_figure_layout, build_small_font, choose_palette

ROW_PX = 26
HEAD_PX = 70
_LABEL = 44
_ROOM = 0.28
"""Share of the axis that is kept free beside the longest bar, for its text."""


def draw_tornado(rows: Sequence[Bar], *, dark: bool) -> Any:
    """Return bars from the present finish: to the left what is saved, to the right what the opposite costs.

    Args:
        rows: From top to bottom.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    saved = {
        "x": [-row.better_percent for row in rows],
        "marker": {
            "color": colours.compute,
            "line": {"width": [2 if row.combined else 0 for row in rows], "color": colours.text},
        },
        "error_x": _build_ranges(rows, colours),
        "text": [row.better for row in rows],
    }
    lost = {
        "x": [row.worse_percent for row in rows],
        "marker": {"color": colours.p2p, "line": {"width": 0}},
        "text": [row.worse for row in rows],
    }
    places = list(range(len(rows)))
    figure = go.Figure(
        [
            go.Bar(
                y=places,
                orientation="h",
                width=0.62,
                textposition="outside",
                textfont={"color": colours.text, "size": 12},
                cliponaxis=False,
                hovertext=[_escape_text(row.words) for row in rows],
                hovertemplate="%{hovertext}<extra></extra>",
                **side,
            )
            for side in (saved, lost)
        ],
        build_figure_layout(
            dark, height=HEAD_PX + ROW_PX * max(len(rows), 1), showlegend=False, barmode="overlay", bargap=0.3
        ),
    )
    figure.update_xaxes(
        range=_compute_range(rows),
        ticksuffix=" %",
        nticks=8,
        title={"text": "change of the finish", "font": build_small_font(colours)},
        title_standoff=2,
        tickfont=build_small_font(colours),
        tickangle=0,
        gridcolor=colours.border,
        zeroline=True,
        zerolinecolor=colours.text,
        zerolinewidth=1,
    )
    figure.update_yaxes(
        tickvals=places,
        ticktext=[_escape_text(_shorten_text(row.label)) for row in rows],
        autorange="reversed",
        showgrid=False,
        linecolor="rgba(0,0,0,0)",
    )
    return figure


def _build_ranges(rows: Sequence[Bar], colours: Palette) -> dict[str, Any]:
    """Return the lines from the least to the most that may be saved, for those of which that is known."""
    ranged = [row.low_percent is not None for row in rows]
    # Bars point to the left, so the least is the right end.
    above = [
        row.better_percent - (row.low_percent or 0.0) if known else 0.0
        for row, known in zip(rows, ranged, strict=True)
    ]
    below = [
        (row.high_percent or 0.0) - row.better_percent if known else 0.0
        for row, known in zip(rows, ranged, strict=True)
    ]
    return {
        "type": "data",
        "array": above,
        "arrayminus": below,
        "visible": any(ranged),
        "color": colours.dim,
        "thickness": 1,
    }


def _compute_range(rows: Sequence[Bar]) -> list[float]:
    """Return the ends of the axis: those of the longest bars, with room for their texts."""
    left = max((max(row.better_percent, row.high_percent or 0.0) for row in rows), default=1.0)
    right = max((row.worse_percent for row in rows), default=0.0)
    room = _ROOM * (left + right)
    return [-(left + room), right + (room if right else 0.04 * left)]


def _shorten_text(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def _escape_text(text: str) -> str:
    """Return a text that plotly shows as it is, without reading tags in it."""
    return escape(text, quote=False)
