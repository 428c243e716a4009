"""How many operations streams of a device had launched and not ended, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studio.analysis.job.launch_words import describe_stream
from studio.analysis.job.launches import Queue
from studio.figures.theme import (
    FIGURE_PX,
    LEGEND_ABOVE,
    build_figure_layout,
    choose_axis_unit,
    choose_palette,
)
from studio.units import format_ns

MOST_LINES = 4
"""Streams that are drawn."""


def queue_lines(queues: Sequence[Queue], *, dark: bool) -> Any:
    """Return lines of the length of queues over time, one a stream.

    Args:
        queues: Queues of one rank, at least one; the first few are drawn.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    shades = (colours.compute, colours.collective, colours.memory, colours.copy)
    begin = int(queues[0].edges_ns[0])
    unit, scale = choose_axis_unit(float(queues[0].edges_ns[-1] - begin))
    traces = []
    for queue, shade in zip(queues[:MOST_LINES], shades, strict=False):
        middle = (queue.edges_ns[:-1] + queue.edges_ns[1:]) / 2 - begin
        name = describe_stream(queue, queues) or "all streams"
        traces.append(
            go.Scatter(
                x=middle / scale,
                y=queue.length,
                name=name,
                mode="lines",
                line={"width": 1.5, "shape": "hvh", "color": shade},
                customdata=[format_ns(float(time_ns)) for time_ns in middle],
                hovertemplate=f"%{{customdata}} · {name}: %{{y:.3~r}} launched and not ended<extra></extra>",
            )
        )
    figure = go.Figure(traces, build_figure_layout(dark, height=FIGURE_PX))
    figure.update_layout(
        legend={**LEGEND_ABOVE}, showlegend=True, margin={"l": 10, "r": 10, "t": 26, "b": 10}
    )
    figure.update_xaxes(title_text=f"since the first launch, {unit}", title_standoff=4, showgrid=False)
    figure.update_yaxes(title_text="operations", title_standoff=6, rangemode="tozero", nticks=5)
    return figure
