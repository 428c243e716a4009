"""Where the time of ranks goes: one horizontal bar per rank, or per several alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studio.analysis.job.ledger import PART_CODES, Part
from studio.analysis.job.part_words import NAMES
from studio.analysis.job.rank_rows import RankRow
from studio.figures.part_marks import STACKED, choose_mark
from studio.figures.theme import build_figure_layout, choose_axis_unit, choose_palette
from studio.units import format_ns

_ROW_PX, _AROUND_PX = 21, 58
_FEW = 4
"""So few bars would be very thick in the room of more."""


def compute_bars_height_px(rows: int) -> int:
    """Return the height of the figure with so many bars."""
    return rows * _ROW_PX + _AROUND_PX


def draw_rank_bars(
    rows: Sequence[RankRow],
    *,
    dark: bool,
    notes: Sequence[str] = (),
    links: Sequence[str] = (),
    room: int = 0,
) -> Any:
    """Return a bar per row, the first on top, with the parts of its time from the left.

    Args:
        rows: Ranks that share a bar.
        dark: Which theme.
        notes: What is said of each row when the pointer is over its waiting, such as whom it waits for.
        links: An address for each row, handed to whoever listens to clicks.
        room: For how many rows the figure is high enough; 0 is for those that there are.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    longest = max((row.finish_ns for row in rows), default=0)
    unit, scale = choose_axis_unit(longest)
    labels = [row.label for row in rows]
    row_notes, addresses = _fill_blanks(notes, len(rows)), _fill_blanks(links, len(rows))
    figure = go.Figure(
        layout=build_figure_layout(
            dark,
            height=compute_bars_height_px(max(room, len(rows))),
            barmode="stack",
            bargap=0.22 if len(rows) > _FEW else 0.45,
        )
    )
    for part in STACKED:
        values = [float(row.ns[PART_CODES[part]]) for row in rows]
        if not any(values):
            continue
        figure.add_bar(
            y=list(range(len(rows))),
            x=[value / scale for value in values],
            orientation="h",
            name=NAMES[part],
            marker=choose_mark(part, colours),
            customdata=[
                [_describe_bar(label, part, value, longest, note), address]
                for label, value, note, address in zip(labels, values, row_notes, addresses, strict=True)
            ],
            hovertemplate="%{customdata[0]}<extra></extra>",
        )
    figure.update_layout(
        legend={
            "orientation": "h",
            "y": 1.0,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
            "traceorder": "normal",
            "font": {"size": 11},
        },
        margin={"l": 10, "r": 14, "t": 30, "b": 10},
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=labels,
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
        ticks="",
    )
    figure.update_xaxes(ticksuffix=f" {unit}", nticks=7, rangemode="tozero")
    return figure


def _describe_bar(label: str, part: Part, value: float, longest: int, note: str) -> str:
    """Return what is said of a part of a row under the pointer."""
    words = f"{label} · {NAMES[part]} {format_ns(value)}, {100 * value / max(longest, 1):.1f} % of the finish"
    return f"{words}<br>{note}" if note and part == "waiting" else words


def _fill_blanks(values: Sequence[str], count: int) -> Sequence[str]:
    return values or [""] * count
