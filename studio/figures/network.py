"""The drawing of a network as a plotly figure, for notebooks; the Simulate page makes SVG of the same shapes."""

from __future__ import annotations

from typing import Any

from studio.figures.drawing import Shape, describe_links, draw_topology
from studio.figures.theme import Palette, build_figure_layout, choose_palette
from studio.sim.config import Topology

_FAINTER = (1.0, 0.8, 0.62, 0.48)
"""How strong the links of each dimension are, as in the stylesheet of the Simulate page."""


def draw_network(topology: Topology, *, dark: bool) -> Any:
    """Return the drawing of a network, with a legend of its dimensions.

    Args:
        topology: The network.
        dark: Which theme.
    """
    import plotly.graph_objects as go

    drawing, colours = draw_topology(topology), choose_palette(dark)
    figure = go.Figure(layout=build_figure_layout(dark))
    figure.update_layout(
        shapes=[plotly_shape for shape in drawing.shapes if (plotly_shape := _convert_shape(shape, colours))],
        height=int(min(max(drawing.height * 1.4, 120), 700)) + 30 + 20 * len(topology.dims),
        legend={"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0, "xanchor": "left"},
        title={"text": drawing.sentence, "font": {"size": 13}},
        margin={"l": 10, "r": 10, "t": 34, "b": 10},
    )
    for shape in drawing.shapes:
        if shape.kind == "text":
            figure.add_annotation(
                x=shape.at[0], y=shape.at[1], text=shape.text, showarrow=False, font={"color": colours.dim}
            )
    figure.add_trace(
        _draw_points(go, [shape for shape in drawing.shapes if shape.kind == "rect" and shape.title])
    )
    for level, dim in enumerate(topology.dims):
        line = {"color": colours.collective, "width": 3}
        figure.add_trace(
            go.Scatter(x=[None], y=[None], mode="lines", line=line, opacity=_choose_opacity(level), name=describe_links(dim, level))
        )  # fmt: skip
    figure.update_xaxes(visible=False, range=[0, drawing.width])
    figure.update_yaxes(visible=False, range=[drawing.height, 0], scaleanchor="x")
    return figure


def _draw_points(go: Any, shapes: list[Shape]) -> Any:
    """Return what is said where NPUs and switches are pointed at."""
    return go.Scatter(
        x=[shape.at[0] + shape.at[2] / 2 for shape in shapes],
        y=[shape.at[1] + shape.at[3] / 2 for shape in shapes],
        text=[shape.title for shape in shapes],
        mode="markers",
        marker={"opacity": 0, "size": 16},
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )


def _convert_shape(shape: Shape, colours: Palette) -> dict[str, Any] | None:
    """Return a shape as plotly has it; None for texts, which are annotations."""
    if shape.kind == "text":
        return None
    if shape.kind == "rect":
        x, y, width, height = shape.at
        fill = {"sim-npu": colours.compute, "sim-switch": colours.host}.get(shape.look, "rgba(0,0,0,0)")
        line = {"color": colours.border, "width": 1 if shape.look == "sim-box" else 0}
        return {
            "type": "rect",
            "x0": x,
            "y0": y,
            "x1": x + width,
            "y1": y + height,
            "fillcolor": fill,
            "line": line,
        }
    looks = shape.look.split(" ")
    level = next((int(look[-1]) for look in looks if look.startswith("sim-dim-")), 0)
    drawn: dict[str, Any] = {
        "line": {"color": colours.collective, "width": shape.width or 1.5},
        "opacity": _choose_opacity(level) * (0.5 if "sim-faint" in looks else 1),
        "layer": "below",
    }
    if shape.kind == "path":
        return {"type": "path", "path": shape.d, **drawn}
    x0, y0, x1, y1 = shape.at
    return {"type": "line", "x0": x0, "y0": y0, "x1": x1, "y1": y1, **drawn}


def _choose_opacity(level: int) -> float:
    return _FAINTER[min(level, len(_FAINTER) - 1)]
