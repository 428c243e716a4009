"""What all ranks did over time, as stacked areas."""

from __future__ import annotations

from typing import Any

from studio.analysis.job.occupancy import Occupancy
from studio.figures.theme import axis_unit, layout, palette
from studio.units import format_ns

_NAMES = ("compute", "exposed communication", "copies", "memory", "CPU")


def occupancy_areas(shares: Occupancy, *, dark: bool) -> Any:
    """Return stacked areas of the share of ranks in each part over time; the empty rest is idle.

    Args:
        shares: Occupancy of all ranks.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    colours = palette(dark)
    shades = (colours.compute, colours.collective, colours.copy, colours.memory, colours.host)
    unit, scale = axis_unit(float(shares.edges_ns[-1]))
    middle = (shares.edges_ns[:-1] + shares.edges_ns[1:]) / 2
    figure = go.Figure(
        [
            go.Scatter(
                x=middle / scale,
                y=share * 100,
                name=name,
                stackgroup="all",
                mode="lines",
                line={"width": 0, "shape": "hvh", "color": shade},
                fillcolor=shade,
                customdata=[format_ns(float(time_ns)) for time_ns in middle],
                hovertemplate=f"%{{customdata}} · {name} %{{y:.3g}} % of the ranks<extra></extra>",
            )
            for name, share, shade in zip(_NAMES, shares.share, shades, strict=True)
            if share.any()
        ],
        layout(dark, height=190),
    )
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"}
    figure.update_layout(
        legend={**legend, "traceorder": "normal"}, margin={"l": 10, "r": 10, "t": 26, "b": 10}
    )
    figure.update_xaxes(title=f"since the beginning, {unit}", title_standoff=4, showgrid=False)
    figure.update_yaxes(title="% of ranks", title_standoff=6, range=[0, 100], nticks=5)
    return figure
