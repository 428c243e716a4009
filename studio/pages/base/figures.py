"""Figures on pages: they take their room before they are drawn, so that nothing below them moves."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

_CONFIG: Any = {"displaylogo": False, "displayModeBar": False}


def build_figure(name: str, figure: Any, **style: Any) -> Any:
    """Return the component that draws a figure, as high as its layout says from the beginning.

    Args:
        name: Id of the component.
        figure: A plotly figure.
        style: More of its style.
    """
    graph = dcc.Graph(id=name, figure=figure, config=_CONFIG, className="cs-figure", style=style)
    # Dash loads the component that draws with the first figure: until then it has no height of its own.
    return html.Div(graph, style={"minHeight": f"{figure.layout.height or 0}px"})


def build_placeholder(what: Any) -> Any:
    """Return an invisible placeholder of a figure's size, so that the page does not move when it comes."""
    hidden: dict[str, Any] = {"aria-hidden": "true"}
    return html.Div(what, className="cs-reserved", **hidden)
