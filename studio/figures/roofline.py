"""The roofline of a job: operators by operations per byte and achieved operations per second, under the roofs of a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from studio.figures.theme import LEGEND_ABOVE, build_figure_layout, choose_palette
from studio.operators.report import OperatorReport, OperatorRow
from studio.operators.roofline import Gpu, find_peak
from studio.units import format_counted, format_ns, format_si

_HEIGHT_PX = 340
_NAMED = 5
_LEAST_SHARE = 1e-4
_MATRICES = ("matrix product", "convolution", "convolution gradient", "attention", "attention gradient")
_LEAST_PX, _MOST_PX = 6, 30
_STRUCK = 0.4
"""How near a name is to a roof that goes through it, in decades."""


def select_drawable(report: OperatorReport) -> list[OperatorRow]:
    """Return the operators that a roofline can show: they compute something, and took a time that counts."""
    least = _LEAST_SHARE * report.time_ns
    return [row for row in report.rows if row.flop > 0 and row.bytes > 0 and row.time_ns > least]


def draw_roofline(report: OperatorReport, gpu: Gpu | None, *, dark: bool) -> Any:
    """Return the roofline of a job; None where it has nothing to show.

    Args:
        report: What its operators did.
        gpu: The GPU it was recorded on; None leaves out the roofs.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    rows = select_drawable(report)
    if not rows:
        return None
    colours = choose_palette(dark)
    groups = {
        "matrix units": ([row for row in rows if row.family in _MATRICES], colours.compute, "circle"),
        "vector units": ([row for row in rows if row.family not in _MATRICES], colours.memory, "diamond"),
    }
    figure = go.Figure(layout=build_figure_layout(dark, height=_HEIGHT_PX))
    intensities = np.array([row.intensity for row in rows], np.float64)
    least, most = float(intensities.min()) / 3, float(intensities.max()) * 3
    if gpu is not None:
        most = max(most, max(_compute_ridges(rows, gpu).values(), default=most) * 2)
        _draw_roofs(figure, rows, gpu, (least, most), colours.dim)
    for name, (some, shade, symbol) in groups.items():
        if some:
            figure.add_trace(_draw_points(name, some, report.time_ns, shade, symbol, colours.background))
    lower = sorted(_list_tops(rows, gpu))[:-1] if gpu is not None else []
    _name_largest(figure, rows, report.time_ns, (least * most) ** 0.5, lower, colours.text)
    figure.update_layout(
        legend={**LEGEND_ABOVE, "traceorder": "normal"},
        margin={"l": 10, "r": 10, "t": 26, "b": 10},
    )
    highest = (
        max(*(row.flop_per_s for row in rows), *(_list_tops(rows, gpu) if gpu is not None else ()), 1.0) * 2
    )
    lowest = min(row.flop_per_s for row in rows) / 2
    decades = range(int(np.floor(np.log10(lowest))), int(np.ceil(np.log10(highest))) + 1)
    figure.update_xaxes(
        title_text="operations per byte of memory traffic",
        title_standoff=4,
        type="log",
        dtick=1,
        range=np.log10([least, most]).tolist(),
    )
    figure.update_yaxes(
        type="log",
        range=np.log10([lowest, highest]).tolist(),
        tickvals=[10.0**power for power in decades],
        ticktext=[format_si(10.0**power, "FLOP/s").replace(".00", "").replace(".0", "") for power in decades],
    )
    return figure


def _compute_ridges(rows: list[OperatorRow], gpu: Gpu) -> Mapping[str, float]:
    """Return the intensity at which each data type's roof becomes flat."""
    types = dict.fromkeys(row.type for row in rows)
    rates = {kind: rate for kind in types if (rate := find_peak(gpu, kind))}
    return {kind: rate * 1e3 / gpu.memory_bytes_per_ns for kind, rate in rates.items()}


def _list_tops(rows: list[OperatorRow], gpu: Gpu) -> list[float]:
    """Return the flat roofs of the data types that the job uses, in operations per second."""
    return [ridge * gpu.memory_bytes_per_ns * 1e9 for ridge in _compute_ridges(rows, gpu).values()]


def _draw_roofs(
    figure: Any, rows: list[OperatorRow], gpu: Gpu, span: tuple[float, float], shade: str
) -> None:
    """Draw the slope of the memory, and the flat roof of each data type that the job uses."""
    least, most = span
    bandwidth = gpu.memory_bytes_per_ns * 1e9
    ridges = _compute_ridges(rows, gpu)
    for number, (kind, ridge) in enumerate(sorted(ridges.items(), key=lambda item: -item[1])):
        # The slope is the same for all: the highest roof draws it.
        start = least if number == 0 else ridge
        points = [start, ridge, most] if start < ridge < most else [max(start, ridge), most]
        rate = format_si(ridge * bandwidth, "FLOP/s")
        figure.add_scatter(
            x=points,
            y=[min(point, ridge) * bandwidth for point in points],
            mode="lines",
            line={"color": shade, "width": 1.5, "dash": "solid" if number == 0 else "dash"},
            hovertemplate=f"{gpu.name}: {kind} {rate}, memory {format_si(bandwidth, 'B/s')}<extra></extra>",
            showlegend=False,
        )
        # The lower roofs are named where they begin: the points of their type lie further on.
        figure.add_annotation(
            x=np.log10(most if number == 0 else ridge), y=np.log10(ridge * bandwidth), text=f"{kind} {rate}",
            showarrow=False, xanchor="right" if number == 0 else "left",
            yanchor="bottom" if number == 0 else "top", font={"color": shade, "size": 11},
        )  # fmt: skip


def _draw_points(
    name: str, rows: list[OperatorRow], whole_ns: int, shade: str, symbol: str, border: str
) -> Any:
    import plotly.graph_objects as go

    shares = np.array([row.time_ns / max(whole_ns, 1) for row in rows])
    return go.Scatter(
        x=[row.intensity for row in rows],
        y=[row.flop_per_s for row in rows],
        mode="markers",
        name=name,
        marker={
            "color": shade,
            "symbol": symbol,
            # Areas are shares of the time.
            "size": [_compute_size_px(share) for share in shares.tolist()],
            "opacity": 0.85,
            "line": {"color": border, "width": 1},
        },
        customdata=[
            (
                _escape_text(row.operator),
                format_ns(row.time_ns),
                f"{100 * share:.3g} %",
                format_si(row.flop_per_s, "FLOP/s"),
                format_si(row.bytes_per_s, "B/s"),
                format_counted(row.count, "call")
                + (
                    f" and {format_counted(row.by_name_count, 'kernel')} without a call"
                    if row.by_name_count
                    else ""
                ),
                row.type,
            )
            for row, share in zip(rows, shares.tolist(), strict=True)
        ],
        hovertemplate="%{customdata[0]} · %{customdata[6]} · %{customdata[5]}<br>%{customdata[1]}, %{customdata[2]} of compute "
        "time<br>%{customdata[3]} at %{x:.3g} operations a byte, %{customdata[4]}<extra></extra>",
    )


def _compute_size_px(share: float) -> float:
    return float(min(max(share**0.5 * 2 * _MOST_PX, _LEAST_PX), _MOST_PX))


def _name_largest(
    figure: Any, rows: list[OperatorRow], whole_ns: int, middle: float, tops: Sequence[float], shade: str
) -> None:
    """Write the names of the operators that took most beside their points, those that do not lie on one another.

    Names point to the middle of the figure, where there is room; those at the height of a flat roof, which would strike
    them through, stand above their points.
    """
    taken: list[tuple[float, float]] = []
    for row in rows[: 2 * _NAMED]:
        place = (float(np.log10(row.intensity or 1)), float(np.log10(max(row.flop_per_s, 1))))
        if len(taken) == _NAMED or any(abs(place[0] - x) < 1 and abs(place[1] - y) < 0.3 for x, y in taken):
            continue
        taken.append(place)
        name = row.operator.removeprefix("aten::")
        to_the_left = (row.intensity or 1) > middle
        beside = _compute_size_px(row.time_ns / max(whole_ns, 1)) / 2 + 4
        struck = any(abs(place[1] - np.log10(top)) < _STRUCK for top in tops)
        where: dict[str, Any] = (
            {"yshift": beside - 2, "xanchor": "center", "yanchor": "bottom"}
            if struck
            else {
                "xshift": -beside if to_the_left else beside,
                "xanchor": "right" if to_the_left else "left",
                "yanchor": "middle",
            }
        )
        figure.add_annotation(
            x=place[0], y=place[1], text=_escape_text(name if len(name) <= 28 else f"{name[:27]}…"), showarrow=False,
            font={"color": shade, "size": 11}, **where,
        )  # fmt: skip


def _escape_text(name: str) -> str:
    """Return a name without what plotly takes for markup."""
    return escape(name, quote=False)
