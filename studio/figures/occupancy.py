"""What all ranks did over time, as stacked areas."""

from __future__ import annotations

from typing import Any

from studio.analysis.job.ledger import PART_CODES
from studio.analysis.job.occupancy import Occupancy
from studio.analysis.job.part_words import NAMES
from studio.figures.part_marks import STACKED, choose_area
from studio.figures.theme import (
    FIGURE_PX,
    LEGEND_ABOVE,
    build_figure_layout,
    choose_axis_unit,
    choose_palette,
)
from studio.units import format_ns


def draw_occupancy_areas(shares: Occupancy, *, dark: bool) -> Any:
    """Return stacked areas of the share of ranks in each part over time; the empty rest is idle.

    Args:
        shares: Occupancy of all ranks.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    colours = choose_palette(dark)
    unit, scale = choose_axis_unit(float(shares.edges_ns[-1]))
    middle = (shares.edges_ns[:-1] + shares.edges_ns[1:]) / 2
    moments = [format_ns(float(time_ns)) for time_ns in middle]
    traces = []
    for part in STACKED:
        name, share = NAMES[part], shares.share[PART_CODES[part]]
        shade, pattern = choose_area(part, colours)
        if not shade or not share.any():
            continue
        traces.append(
            go.Scatter(
                x=middle / scale,
                y=share * 100,
                name=name,
                stackgroup="all",
                mode="lines",
                line={"width": 0, "shape": "hvh", "color": shade},
                fillcolor=shade,
                fillpattern=pattern,
                customdata=moments,
                hovertemplate=f"%{{customdata}} · {name} %{{y:.3g}} % of the ranks<extra></extra>",
            )
        )
    figure = go.Figure(traces, build_figure_layout(dark, height=FIGURE_PX))
    figure.update_layout(
        legend={**LEGEND_ABOVE, "traceorder": "normal"}, margin={"l": 10, "r": 10, "t": 26, "b": 10}
    )
    figure.update_xaxes(title_text=f"since the beginning, {unit}", title_standoff=4, showgrid=False)
    figure.update_yaxes(title_text="% of ranks", title_standoff=6, range=[0, 100], nticks=5)
    return figure
