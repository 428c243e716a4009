"""Measured and simulated times of collectives over size, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studio.calibration.judging import Judgement
from studio.figures.theme import Palette, build_figure_layout, build_small_font, choose_palette
from studio.units import format_bytes, format_ns

_DASHES = ("solid", "dash", "dot", "dashdot")
_MARKERS = ("circle", "square", "diamond", "triangle-up")
_TALLEST = (0.2, 0.5, 1.0)
"""Up to which errors the axis of errors may reach; larger ones are drawn at its end."""
"""Residuals beyond twice and half the measured time end at the edge of the lower plot, and say so on hover."""


def draw_measured_and_simulated(
    judged: Sequence[Judgement], names: Sequence[str], *, corrected: bool, dark: bool
) -> Any:
    """Return two plots over the same sizes: measured (marks) and simulated (lines) times, and the residuals below.

    Args:
        judged: The tables of a machine.
        names: What each is called, short.
        corrected: Whether simulated times hold residual curves.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    figure = go.Figure(layout=_build_validation_layout(judged, colours, dark))
    for number, (judgement, name) in enumerate(zip(judged, names, strict=True)):
        order = np.argsort(judgement.table.size_bytes, kind="stable")
        look = _choose_look(number, colours)
        for trace in _draw_traces(judgement, name, order, look, corrected=corrected):
            figure.add_trace(trace)
    figure.add_hline(y=0, line={"color": colours.dim, "width": 1}, yref="y2", row=None, col=None)
    return figure


def _choose_look(number: int, colours: Palette) -> tuple[str, str, str]:
    hues = (colours.compute, colours.collective, colours.memory, colours.p2p, colours.copy, colours.host)
    lap = number // len(hues)
    return hues[number % len(hues)], _DASHES[lap % len(_DASHES)], _MARKERS[lap % len(_MARKERS)]


def _draw_traces(
    judgement: Judgement, name: str, order: np.ndarray, look: tuple[str, str, str], *, corrected: bool
) -> list[Any]:
    import plotly.graph_objects as go

    colour, dash, symbol = look
    sizes, measured = judgement.table.size_bytes[order], judgement.table.time_us[order] * 1e3
    simulated = (judgement.simulated_us if corrected else judgement.uncorrected_us)[order] * 1e3
    outside = judgement.extrapolated[order]
    words = [
        f"{name} · {format_bytes(size)}<br>measured {format_ns(real)} · simulated {format_ns(modelled)}"
        f" ({100 * (modelled / real - 1):+.1f} %)<br>{judgement.choices[place]}{' · extrapolated' if out else ''}"
        for size, real, modelled, place, out in zip(sizes, measured, simulated, order, outside, strict=True)
    ]
    symbols = [f"{symbol}-open" if out else symbol for out in outside]
    shared: dict[str, Any] = {
        "x": sizes,
        "text": words,
        "hovertemplate": "%{text}<extra></extra>",
        "legendgroup": name,
        "name": name,
    }
    line = {"color": colour, "dash": dash, "width": 1.5}
    marks = {"color": colour, "symbol": symbols, "size": 6}
    residual = np.clip(simulated / measured - 1, -_TALLEST[-1], _TALLEST[-1])
    return [
        go.Scatter(y=simulated / 1e9, mode="lines", line=line, showlegend=False, **shared),
        go.Scatter(y=measured / 1e9, mode="markers", marker=marks, **shared),
        go.Scatter(
            y=residual, mode="lines+markers", line={**line, "width": 1}, marker={**marks, "size": 4},
            yaxis="y2", showlegend=False, **shared,
        ),
    ]  # fmt: skip


def _build_validation_layout(judged: Sequence[Judgement], colours: Palette, dark: bool) -> dict[str, Any]:
    sizes = np.concatenate([judgement.table.size_bytes for judgement in judged])
    measured = np.concatenate([judgement.table.time_us for judgement in judged]) / 1e6
    low, high = int(np.floor(np.log10(measured.min()))), int(np.ceil(np.log10(measured.max())))
    times = [10.0**power for power in range(low, high + 1)]
    ticks = _compute_size_ticks(float(sizes.min()), float(sizes.max()))
    base = build_figure_layout(dark, height=560, hovermode="closest")
    axis = base["xaxis"]
    small = build_small_font(colours)
    tallest = _choose_tallest(judged)
    residuals = [tallest * part for part in (-1, -0.5, 0, 0.5, 1)]
    return {
        **base,
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
        "legend": {"font": {"size": 11}, "tracegroupgap": 0, "itemsizing": "constant"},
        "xaxis": {
            **axis, "type": "log", "tickvals": ticks, "ticktext": [format_bytes(tick) for tick in ticks],
            "anchor": "y2", "title": {"text": "size of the whole buffer", "font": small}, "tickfont": small,
        },
        "yaxis": {
            **axis, "type": "log", "domain": [0.36, 1.0], "title": {"text": "time", "font": small},
            "tickvals": times, "ticktext": [format_ns(tick * 1e9) for tick in times], "tickfont": small,
        },
        "yaxis2": {
            **axis, "domain": [0.0, 0.3], "range": [-1.05 * tallest, 1.05 * tallest],
            "tickvals": residuals, "ticktext": [_format_residual(tick) for tick in residuals], "title": {"text": "simulated / measured − 1", "font": small}, "tickfont": small,
        },
    }  # fmt: skip


def _choose_tallest(judged: Sequence[Judgement]) -> float:
    """Return up to which error the axis of errors reaches: as far as the largest asks for, in steps that compare."""
    largest = max(
        float(np.abs(simulated / judgement.table.time_us - 1).max())
        for judgement in judged
        for simulated in (judgement.simulated_us, judgement.uncorrected_us)
    )
    return next((tallest for tallest in _TALLEST if largest <= tallest), _TALLEST[-1])


def _format_residual(error: float) -> str:
    return f"{100 * error:+.0f} %".replace("-", "−") if error else "0 %"


def _compute_size_ticks(least: float, most: float) -> list[float]:
    """Return powers of 1024 and those between, about eight at most."""
    low, high = int(np.floor(np.log2(least))), int(np.ceil(np.log2(most)))
    step = max(1, -(-(high - low) // 8))
    if step > 2:
        step = 5 if step <= 5 else 10
    return [2.0**power for power in range(low - low % step if step > 1 else low, high + 1, step)]
