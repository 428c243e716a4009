"""The figure of jobs over time: step time, exposed communication and imbalance below each other, a mark per job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from studio.figures.theme import (
    Palette,
    build_figure_layout,
    build_small_font,
    choose_axis_unit,
    choose_palette,
)
from studio.units import format_ns

PANEL_PX: Final = 150
_LABELS = 8
_FEW = 60
_LEAST_SPAN = (0.01, 1.0, 0.1)
"""What the axis of each panel shows at least, where all values are at its beginning."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A job in the figure.

    Attributes:
        name: What it is called; untrusted text.
        when: When, in seconds since the epoch.
        verdict: What the Doctor says of it.
        level: The worst level found: "error", "warning" or "".
        step_ns: Its step time, or finish; None where it has none.
        exposed: The share of exposed communication.
        imbalance: The longest compute over the mean.
        link: Where a click leads.
    """

    name: str
    when: float
    verdict: str
    level: str
    step_ns: int | None
    exposed: float | None
    imbalance: float | None
    link: str


@dataclass(frozen=True, slots=True)
class Shift:
    """A change that the figure marks.

    Attributes:
        at: The place of the job where it is new.
        panel: 0 for the step time, 1 for exposed communication, 2 for imbalance.
        label: How much, in short.
        worse: Whether it got worse.
    """

    at: int
    panel: int
    label: str
    worse: bool


def compute_height_px() -> int:
    """Return how high the figure is."""
    return 3 * PANEL_PX + 60


def draw_trend(marks: Sequence[Mark], shifts: Sequence[Shift], pace: str, *, dark: bool) -> Any:
    """Return the figure of a series.

    Args:
        marks: The jobs, earliest first; they stand at equal distances.
        shifts: What is marked as a change.
        pace: What the first panel shows, "step time" or "finish".
        dark: Whether for a dark background.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    base = build_figure_layout(dark, height=compute_height_px(), hovermode="closest", showlegend=False)
    base["margin"] = {"l": 10, "r": 16, "t": 14, "b": 10}
    figure = go.Figure(layout=base)
    panels = _build_panels(marks, pace, colours)
    words = [_describe_mark(mark, pace) for mark in marks]
    for number, panel in enumerate(panels):
        figure.update_layout(
            {f"yaxis{number + 1 if number else ''}": {**base["yaxis"], **_build_axis(number, panel, colours)}}
        )
        figure.add_trace(_draw_line(number, panel, marks, words, colours))
    for shift in shifts:
        assert panels[shift.panel].values[shift.at] is not None, "a change is where there is a value"
        _draw_shift(figure, shift, len(marks), colours)
    ticks = _compute_ticks(len(marks))
    figure.update_xaxes(
        tickmode="array",
        tickvals=ticks,
        ticktext=_label_dates([marks[place].when for place in ticks]),
        range=[-0.6, max(len(marks) - 0.4, 0.6)],
        showgrid=False,
        anchor="y3",
    )
    return figure


@dataclass(frozen=True, slots=True)
class _Panel:
    """One of the lines, one above the other.

    Attributes:
        title: What it shows, with the unit.
        values: Of each job; None where a job has none.
        colour: Of the line.
    """

    title: str
    values: Sequence[float | None]
    colour: str


def _build_panels(marks: Sequence[Mark], pace: str, colours: Palette) -> tuple[_Panel, ...]:
    unit, length = choose_axis_unit(max((mark.step_ns or 0 for mark in marks), default=0))
    return (
        _Panel(
            f"{pace}, {unit}",
            [None if mark.step_ns is None else mark.step_ns / length for mark in marks],
            colours.compute,
        ),
        _Panel(
            "exposed, %",
            [None if mark.exposed is None else 100 * mark.exposed for mark in marks],
            colours.collective,
        ),
        _Panel("imbalance, from 1", [mark.imbalance for mark in marks], colours.memory),
    )


def _build_axis(number: int, panel: _Panel, colours: Palette) -> dict[str, Any]:
    """Return the vertical axis of a panel."""
    gap = 0.07
    share = (1 - 2 * gap) / 3
    top = 1 - number * (share + gap)
    known = [value for value in panel.values if value is not None]
    # Times and shares begin at 0; of imbalance 1 is even, and nothing is below.
    base = 1.0 if number == 2 else 0.0
    high = max([*known, base + _LEAST_SPAN[number]])
    return {
        "domain": [max(top - share, 0), top],
        "title": {"text": panel.title, "font": build_small_font(colours)},
        "range": [base, base + 1.25 * (high - base)],
        "nticks": 5,
        "anchor": "x",
    }


def _draw_line(
    number: int, panel: _Panel, marks: Sequence[Mark], words: Sequence[str], colours: Palette
) -> Any:
    """Return the line of a panel with a mark for each job."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=list(range(len(marks))),
        y=panel.values,
        yaxis=_name_axis(number),
        mode="lines+markers",
        connectgaps=True,
        # A mark at the lowest value is drawn whole.
        cliponaxis=False,
        line={"color": panel.colour, "width": 1.5},
        marker={
            "size": [_choose_size(mark, len(marks)) for mark in marks],
            "color": [colours.p2p if mark.level == "error" else panel.colour for mark in marks],
            "symbol": [_SYMBOLS[mark.level] for mark in marks],
            "opacity": 1,
        },
        customdata=[[mark.link] for mark in marks],
        text=words,
        hovertemplate="%{text}<extra></extra>",
    )


def _draw_shift(figure: Any, shift: Shift, count: int, colours: Palette) -> None:
    """Mark a change by a line with its words."""
    domain = f"{_name_axis(shift.panel)} domain"
    colour = colours.p2p if shift.worse else colours.memory
    figure.add_shape(
        type="line", x0=shift.at - 0.5, x1=shift.at - 0.5, y0=0, y1=1, xref="x", yref=domain,
        line={"color": colour, "width": 1, "dash": "dot"},
    )  # fmt: skip
    late = shift.at > 0.8 * count
    figure.add_annotation(
        x=shift.at - 0.5, y=1, xref="x", yref=domain, text=shift.label, showarrow=False,
        xanchor="right" if late else "left", yanchor="top", xshift=-3 if late else 3,
        font={"color": colour, "size": 11},
    )  # fmt: skip


def _name_axis(number: int) -> str:
    return "y" if number == 0 else f"y{number + 1}"


_SYMBOLS = {"": "circle", "warning": "triangle-up", "error": "x"}


def _choose_size(mark: Mark, count: int) -> float:
    usual = 8 if count <= _FEW else 5
    return usual + 2 if mark.level else usual


def _describe_mark(mark: Mark, pace: str) -> str:
    """Say of a job what the figure shows; names are untrusted, and plotly reads markup."""
    lines = [f"<b>{_escape_text(mark.name)}</b>", time.strftime("%Y-%m-%d %H:%M", time.localtime(mark.when))]
    if mark.step_ns is not None:
        lines.append(f"{pace} {format_ns(mark.step_ns)}")
    if mark.exposed is not None:
        lines.append(f"exposed {100 * mark.exposed:.1f} %")
    if mark.imbalance is not None:
        lines.append(f"imbalance {mark.imbalance:.2f}")
    return "<br>".join([*lines, _escape_text(mark.verdict)])


def _escape_text(text: str) -> str:
    cut = text if len(text) <= 70 else f"{text[:40]}…{text[-28:]}"
    return escape(cut, quote=False)


def _compute_ticks(count: int) -> list[int]:
    if count <= _LABELS:
        return list(range(count))
    every = -(-count // _LABELS)
    return list(range(0, count, every))


def _label_dates(moments: Sequence[float]) -> list[str]:
    """Return labels of moments: days, or times where all lie within two days, each part once where it can be."""
    if not moments:
        return []
    span = max(moments) - min(moments)
    form = "%d %b %Y" if span > 300 * 86_400 else "%d %b" if span > 4 * 86_400 else "%d %b %H:%M"
    return [time.strftime(form, time.localtime(moment)) for moment in moments]
