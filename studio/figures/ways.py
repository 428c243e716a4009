"""What each way to carry out a collective takes, over its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studio.figures.theme import build_figure_layout, choose_palette
from studio.sim.explaining import Explanation
from studio.trace import Float64
from studio.units import format_bytes, format_ns

_HEIGHT_PX = 340
_DASHES = {"LL": "dot", "LL128": "dash", "Simple": "solid", "NVLS": "solid"}


def draw_ways(
    explanation: Explanation, *, dark: bool, measured: Sequence[tuple[str, Float64, Float64]] = ()
) -> Any:
    """Return time over size, both logarithmic: a line per way, thick where it is taken, and the size that is asked about.

    Args:
        explanation: What each way takes over size.
        dark: Which theme.
        measured: Tables to show beside: name, sizes in bytes, times in ns.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    hues = {
        "ring": colours.compute,
        "tree": colours.memory,
        "direct": colours.p2p,
        "NVLS": colours.collective,
        "NVLS-tree": colours.collective,
    }
    figure = go.Figure(layout=build_figure_layout(dark, height=_HEIGHT_PX))
    for index, way in enumerate(explanation.ways):
        algorithm, _, protocol = way.name.partition(" ")
        look = {"color": hues.get(algorithm, colours.copy), "dash": _DASHES.get(protocol or "NVLS", "solid")}
        times = explanation.curves[index]
        words = [
            f"{way.name} · {format_bytes(size)} · {format_ns(time)}"
            for size, time in zip(explanation.sizes, times, strict=True)
        ]
        shared: dict[str, Any] = {
            "x": explanation.sizes,
            "text": words,
            "hovertemplate": "%{text}<extra></extra>",
            "name": way.name,
            "legendgroup": way.name,
            "mode": "lines",
        }
        figure.add_scatter(y=times / 1e9, line={**look, "width": 1.2}, opacity=0.75, **shared)
        taken = np.where(explanation.choice == index, times, np.nan)
        if not np.isnan(taken).all():
            figure.add_scatter(y=taken / 1e9, line={**look, "width": 4}, showlegend=False, **shared)
    for number, (name, sizes, times) in enumerate(measured):
        figure.add_scatter(
            x=sizes,
            y=times / 1e9,
            mode="markers",
            name=f"measured: {name}",
            marker={
                "color": colours.text,
                "size": 6,
                "symbol": ("circle-open", "square-open", "diamond-open")[number % 3],
            },
            hovertemplate="measured %{x:,.0f} bytes<extra></extra>",
        )
    figure.add_scatter(
        x=[explanation.comm_size],
        y=[explanation.total_ns / 1e9],
        mode="markers",
        name=f"{format_bytes(explanation.comm_size)}: {format_ns(explanation.total_ns)}",
        marker={"color": colours.accent, "size": 11, "symbol": "x"},
        hovertemplate=f"{format_bytes(explanation.comm_size)}: {format_ns(explanation.total_ns)}<extra></extra>",
    )
    _set_axes(figure, explanation)
    return figure


def _set_axes(figure: Any, explanation: Explanation) -> None:
    powers = range(4, int(np.log2(explanation.sizes[-1])) + 1, 4)
    figure.update_xaxes(
        type="log",
        tickvals=[2.0**power for power in powers],
        ticktext=[format_bytes(2**power) for power in powers],
        title_text="size (comm_size)",
        title_standoff=6,
    )
    low = int(np.floor(np.log10(explanation.curves.min() / 1e9)))
    high = int(np.ceil(np.log10(explanation.curves.max() / 1e9)))
    times = [10.0**power for power in range(low, high + 1)]
    figure.update_yaxes(
        type="log",
        tickvals=times,
        ticktext=[format_ns(time * 1e9) for time in times],
        title_text="time",
        title_standoff=6,
    )
    figure.update_layout(
        legend={"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "font": {"size": 11}}
    )
