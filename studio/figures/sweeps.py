"""Figures of a sweep: cost against finish, all settings beside each other, slices along one, and what matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from studio.figures.theme import SEQUENTIAL, build_figure_layout, build_small_font, choose_palette
from studio.sweep.analysis import LITTLE, Importance, differs, select_front, select_possible
from studio.sweep.running import Row
from studio.sweep.space import Axis, Space
from studio.units import format_ns, format_si, format_si_ticks, format_time_ticks

MOST_POINTS = 2_000
"""So many points are drawn beside the front; of more every n-th."""
MOST_LINES = 600
"""So many points are drawn as lines; of more every n-th."""
FRONT_PX = 320
"""Height of the figure of cost against finish."""
_LABEL = 26
Units = Mapping[str, str]
"""Units of settings by key; one without a unit has none."""
NO_UNITS: Units = {}


def describe_point(space: Space, row: Row, units: Units = NO_UNITS) -> str:
    """Return a point in words, a setting a line, for hovering."""
    settings = "<br>".join(
        _escape_text(f"{key} = {value} {units.get(key, '')}".rstrip())
        for key, value in space.point(row.index).items()
    )
    cost = "" if row.cost is None else f" · cost {format_si(row.cost)}"
    return f"<b>{format_ns(row.finish_ns or 0)}</b>{cost}<br>{settings}<br>point {row.index:,}"


def _escape_text(text: str) -> str:
    return escape(text, quote=False)


def draw_front(space: Space, rows: Sequence[Row], *, dark: bool, units: Units = NO_UNITS) -> Any:
    """Return cost against finish of every point, and the front that no point beats in both."""
    import plotly.graph_objects as go

    colours, front = choose_palette(dark), select_front(rows)
    best = {row.index for row in front}
    rest = [row for row in select_possible(rows) if row.cost is not None and row.index not in best]
    step = max(1, -(-len(rest) // MOST_POINTS))
    beaten = f"beaten in both ({len(rest):,}{f', 1 in {step} drawn' if step > 1 else ''})"
    figure = go.Figure(layout=_build_front_layout(rows, dark))
    for chosen, name, mark, mode in (
        (rest[::step], beaten, {"color": colours.host, "size": 5, "opacity": 0.55}, "markers"),
        (front, f"front ({len(front):,})", {"color": colours.compute, "size": 8}, "lines+markers"),
    ):
        figure.add_trace(
            go.Scatter(
                x=[row.cost for row in chosen],
                y=[(row.finish_ns or 0) / 1e9 for row in chosen],
                mode=mode,
                name=name,
                marker=mark,
                line={"color": colours.compute, "width": 1.5, "shape": "hv"},
                text=[describe_point(space, row, units) for row in chosen],
                customdata=[row.index for row in chosen],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    return figure


def _build_front_layout(rows: Sequence[Row], dark: bool) -> dict[str, Any]:
    colours, base = choose_palette(dark), build_figure_layout(dark, height=FRONT_PX, hovermode="closest")
    small = build_small_font(colours)
    prices = [row.cost for row in select_possible(rows) if row.cost is not None]
    ticks = _compute_ticks(prices)
    return {
        **base,
        "legend": {"font": {"size": 11}, "orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 10, "r": 16, "t": 28, "b": 10},
        "xaxis": {
            **base["xaxis"], "title": {"text": "cost of the system, in what the prices are in", "font": small}, "tickfont": small,
            "tickvals": ticks, "ticktext": format_si_ticks(ticks),
        },
        "yaxis": {**base["yaxis"], **_build_time_axis(rows), "title": {"text": "finish", "font": small}, "tickfont": small},
    }  # fmt: skip


def _build_time_axis(rows: Sequence[Row]) -> dict[str, Any]:
    """Return ticks of an axis of finishes, in seconds, with units."""
    finishes = [float(row.finish_ns) for row in select_possible(rows) if row.finish_ns is not None]
    ticks = _compute_ticks(_widen_finishes(finishes))
    axis: dict[str, Any] = {
        "tickvals": [tick / 1e9 for tick in ticks],
        "ticktext": format_time_ticks(ticks),
    }
    if finishes and not differs(min(finishes), max(finishes)):
        # Over the whole height differences would look large that are none.
        axis["range"] = [axis["tickvals"][0], axis["tickvals"][-1]]
    return axis


def _widen_finishes(finishes_ns: list[float]) -> list[float]:
    """Return finishes with two more around them where they are hardly apart, so that an axis shows them so."""
    if not finishes_ns or differs(min(finishes_ns), max(finishes_ns)):
        return finishes_ns
    around = LITTLE * max(finishes_ns)
    return [min(finishes_ns) - around, *finishes_ns, max(finishes_ns) + around]


def _compute_ticks(values: Sequence[float | None]) -> list[float]:
    """Return about five round numbers over the range of some values."""
    known = [value for value in values if value is not None]
    if not known:
        return []
    low, high = min(known), max(known)
    wide = (high - low) or abs(high) or 1.0
    power = 10.0 ** np.floor(np.log10(wide / 4))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if wide / (power * factor) <= 6)
    first = np.floor(low / step) * step
    return [float(f"{first + step * at:.10g}") for at in range(int((high - first) / step) + 2)]


def draw_parallel(space: Space, rows: Sequence[Row], *, dark: bool, units: Units = NO_UNITS) -> Any:
    """Return every setting, cost and finish as axes beside each other, a line a point, darker where it finishes sooner.

    Drawn as lines, for plotly's own kind needs WebGL, which not every browser has.
    """
    import plotly.graph_objects as go

    ordered = sorted(select_possible(rows), key=lambda row: (-(row.finish_ns or 0), row.index))
    step = max(1, -(-len(ordered) // MOST_LINES))
    # From the best one on, which is the last.
    shown = ordered[::-1][::step][::-1]
    colours, shades = choose_palette(dark), SEQUENTIAL["dark" if dark else "light"]
    axes = [_build_setting_axis(axis, space, shown, units) for axis in space.axes if len(axis.values) > 1]
    if shown and all(row.cost is not None for row in shown):
        axes.append(_build_number_axis("cost", [row.cost or 0.0 for row in shown], format_si_ticks))
    finishes = [float(row.finish_ns or 0) for row in shown]
    axes.append(_build_number_axis("finish", finishes, format_time_ticks, _widen_finishes(finishes)))
    figure = go.Figure(layout=build_figure_layout(dark, height=340, hovermode="closest", showlegend=False))
    # The quickest are drawn last, above all others.
    for at, part in enumerate(np.array_split(np.arange(len(shown)), len(shades))):
        x = [place for _ in part for place in (*range(len(axes)), None)]
        y = [height for row in part.tolist() for height in (*(axis.places[row] for axis in axes), None)]
        text = [
            words
            for row in part.tolist()
            for words in [describe_point(space, shown[row], units)] * (len(axes) + 1)
        ]
        line = {"color": shades[at], "width": 1 if at < len(shades) - 1 else 1.6}
        figure.add_trace(
            go.Scatter(x=x, y=y, text=text, mode="lines", line=line, hovertemplate="%{text}<extra></extra>")
        )
    for at, axis in enumerate(axes):
        figure.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, line={"color": colours.dim, "width": 1})
        # Those at the ends reach inwards: a long name would be cut off.
        anchor = "left" if at == 0 else "right" if at == len(axes) - 1 else "center"
        figure.add_annotation(
            x=at,
            y=1,
            yshift=10,
            text=_label_axis(axis),
            showarrow=False,
            xanchor=anchor,
            yanchor="bottom",
            align=anchor,
        )
        for height, words in axis.ticks:
            figure.add_annotation(
                x=at, y=height, text=_escape_text(words), showarrow=False, font={"size": 11},
                xanchor="left" if at == 0 else "right", xshift=6 if at == 0 else -6,
                bgcolor=_fade_colour(colours.panel, 0.8),
            )  # fmt: skip
    bare = {"visible": False, "fixedrange": True}
    figure.update_layout(
        xaxis={**bare, "range": [-0.12, len(axes) - 0.88]},
        yaxis={**bare, "range": [-0.05, 1.18 if any(axis.unit for axis in axes) else 1.14]},
        margin={"l": 6, "r": 6, "t": 6, "b": 6},
    )
    return figure


@dataclass(frozen=True, slots=True)
class _Upright:
    """An axis of the parallel figure.

    Attributes:
        name: What it is called.
        places: Where each point crosses it, 0 at the bottom to 1.
        ticks: Heights and what is written there.
        unit: Of numbers, "" for none.
    """

    name: str
    places: list[float]
    ticks: list[tuple[float, str]]
    unit: str = ""


def _label_axis(axis: _Upright) -> str:
    """Return the name of an axis, its unit below: the next axis is near."""
    return f"<b>{_escape_text(axis.name)}</b>" + (f"<br>{_escape_text(axis.unit)}" if axis.unit else "")


def _label_setting(key: str, units: Units) -> str:
    """Return the name of a setting, cut where it is long, with its unit."""
    return f"{_shorten(key)}, {units[key]}" if key in units else _shorten(key)


def _build_setting_axis(axis: Axis, space: Space, rows: Sequence[Row], units: Units) -> _Upright:
    last = len(axis.values) - 1
    height = {value: at / last for at, value in enumerate(axis.values)}
    step = -(-len(axis.values) // 9)
    ticks = [(height[value], _shorten(value)) for value in axis.values[::step]]
    places = [height[space.point(row.index)[axis.key]] for row in rows]
    return _Upright(_shorten(axis.key), places, ticks, units.get(axis.key, ""))


def _build_number_axis(
    name: str,
    values: list[float],
    words: Callable[[list[float]], list[str]],
    over: list[float] | None = None,
) -> _Upright:
    """Return an axis of numbers, from the least to the most of `over`, or of themselves."""
    over = values if over is None else over
    low, high = min(over, default=0.0), max(over, default=1.0)
    wide = (high - low) or 1.0
    inside = [tick for tick in _compute_ticks(over) if low <= tick <= high]
    ticks = [((tick - low) / wide, text) for tick, text in zip(inside, words(inside), strict=True)]
    return _Upright(name, [(value - low) / wide for value in values], ticks)


def _shorten(text: str) -> str:
    return text if len(text) <= _LABEL else f"…{text[1 - _LABEL :]}"


def draw_slice(space: Space, rows: Sequence[Row], key: str, *, dark: bool, units: Units = NO_UNITS) -> Any:
    """Return the finish along one setting: through the best point, and the median and range over all others."""
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    axis = next(axis for axis in space.axes if axis.key == key)
    possible_rows = select_possible(rows)
    by_value: dict[str, list[Row]] = {value: [] for value in axis.values}
    for row in possible_rows:
        by_value[space.point(row.index)[key]].append(row)
    values = [value for value in axis.values if by_value[value]]
    x: list[Any] = [float(value) for value in values] if axis.numbers is not None else list(values)
    sides = [np.array([(row.finish_ns or 0) / 1e9 for row in by_value[value]]) for value in values]
    figure = go.Figure(layout=_build_front_layout(rows, dark))
    shown: dict[str, Any] = {
        "tickvals": None,
        "ticktext": None,
        "title": {"text": _label_setting(key, units), "font": build_small_font(colours)},
    }
    if axis.numbers is None:
        shown["range"] = [-0.6, len(values) - 0.4]
    figure.update_layout(xaxis=shown, yaxis=_build_time_axis(possible_rows))
    if not values:
        return figure
    numeric = axis.numbers is not None
    if numeric:
        band = {"line": {"width": 0}, "mode": "lines", "hoverinfo": "skip"}
        figure.add_trace(go.Scatter(x=x, y=[side.max() for side in sides], showlegend=False, **band))
        figure.add_trace(
            go.Scatter(
                x=x, y=[side.min() for side in sides], fill="tonexty", fillcolor=_fade_colour(colours.host),
                name="least to most", **band,
            )
        )  # fmt: skip
    else:
        # Between names there is nothing to draw a line through.
        ends = [end for side in sides for end in (side.min(), side.max(), None)]
        figure.add_trace(
            go.Scatter(
                x=[value for value in x for _ in range(3)], y=ends, mode="lines", hoverinfo="skip",
                name="least to most", line={"color": _fade_colour(colours.host, 0.35), "width": 14},
            )
        )  # fmt: skip
    through = _trace_best(space, by_value, possible_rows, key)
    for name, line, colour, dash in (
        ("median of all others", [float(np.median(side)) for side in sides], colours.host, "dash"),
        ("through the best point", [through.get(value) for value in values], colours.compute, "solid"),
    ):
        figure.add_trace(
            go.Scatter(
                x=x, y=line, name=name, mode="lines+markers" if numeric else "markers", line={"color": colour, "dash": dash, "width": 1.5},
                marker={"size": 5 if numeric else 9, "color": colour}, text=[format_ns((at or 0) * 1e9) for at in line],
                hovertemplate=f"{key} = %{{x}} {units.get(key, '')}".rstrip() + f": %{{text}}<extra>{name}</extra>",
            )
        )  # fmt: skip
    return figure


def _trace_best(
    space: Space, by_value: dict[str, list[Row]], possible_rows: Sequence[Row], key: str
) -> dict[str, float]:
    """Return the finish by value of a setting where all others are those of the best point, in seconds."""
    best = min(possible_rows, key=lambda row: (row.finish_ns, row.index))
    others = {name: value for name, value in space.point(best.index).items() if name != key}
    line = {}
    for value, rows in by_value.items():
        for row in rows:
            point = space.point(row.index)
            if all(point[name] == wanted for name, wanted in others.items()):
                line[value] = (row.finish_ns or 0) / 1e9
    return line


def _fade_colour(colour: str, share: float = 0.18) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def draw_importance(shares: Sequence[Importance], *, dark: bool) -> Any:
    """Return how much of the variance of the finish each setting explains by itself."""
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    listed = list(reversed(shares))
    names = [_shorten(importance.key) for importance in listed]
    figure = go.Figure(layout=build_figure_layout(dark, height=max(90, 30 * len(listed) + 50)))
    figure.update_layout(
        xaxis={
            "range": [0, 1.2],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0 %", "25 %", "50 %", "75 %", "100 %"],
            "tickfont": {"size": 11},
        },
        yaxis={"tickfont": {"size": 11}, "showgrid": False},
    )
    figure.add_trace(
        go.Bar(
            x=[importance.share for importance in listed],
            y=names,
            orientation="h",
            width=0.55,
            marker={"color": colours.compute},
            text=[f"{100 * importance.share:.1f} %" for importance in listed],
            textposition="outside",
            cliponaxis=False,
            customdata=[importance.best for importance in listed],
            hovertemplate="%{y}: %{text}, least finish at %{customdata}<extra></extra>",
        )
    )
    return figure
