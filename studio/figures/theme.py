"""Colours of figures in both themes, equal to the tokens of the stylesheets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of one theme."""

    background: str
    panel: str
    border: str
    text: str
    dim: str
    accent: str
    compute: str
    collective: str
    p2p: str
    memory: str
    host: str
    copy: str


LIGHT = Palette(
    "#f6f7f9",
    "#ffffff",
    "#d3d8df",
    "#1a1d21",
    "#59626d",
    "#6d3fd1",
    "#0072b2",
    "#b87800",
    "#c24e00",
    "#00805c",
    "#6b7480",
    "#a8457f",
)
DARK = Palette(
    "#14171b",
    "#1b1f24",
    "#343b44",
    "#e4e7eb",
    "#a0a9b4",
    "#b59cff",
    "#56b4e9",
    "#f0b040",
    "#ff8547",
    "#35c79a",
    "#98a1ad",
    "#d98bb8",
)


FIGURE_PX = 200
"""Height of figures that stand beside each other."""
SEQUENTIAL = {
    "dark": ("#44537a", "#5f6681", "#7c7b78", "#a59c74", "#d0be67", "#fee838"),
    "light": ("#e2cd5c", "#bcaf6f", "#9b9476", "#7c7b78", "#5f636e", "#3e4b6b", "#00224e"),
}
"""Cividis from little to much, by theme, without the end that is lost on the background: what is most lies farthest
from it."""
DIVERGING = {
    "dark": ("#8fd0ff", "#4a97cc", "#2d5f80", "#2c3239", "#8a4a26", "#d9692c", "#ffa06b"),
    "light": ("#00507f", "#3f8fc2", "#a9cde4", "#eceef1", "#f0bd97", "#d9702a", "#8f3500"),
}
"""From less, blue, to more, vermilion; the true middle is all but the background."""


def choose_palette(dark: bool) -> Palette:
    """Return the colours of a theme."""
    return DARK if dark else LIGHT


LEGEND_ABOVE: Mapping[str, Any] = MappingProxyType(
    {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"}
)
"""A legend in a line above the plot, at its left: the tools of a figure lie over its right."""


def build_small_font(colours: Palette) -> dict[str, Any]:
    """Return the font of what names and numbers axes and colours: smaller than text and dim."""
    return {"color": colours.dim, "size": 11}


def build_figure_layout(dark: bool, **more: Any) -> dict[str, Any]:
    """Return the layout that all figures share."""
    colours = choose_palette(dark)
    axis = {
        "gridcolor": colours.border,
        "linecolor": colours.border,
        "zeroline": False,
        "automargin": True,
        "title": {"font": build_small_font(colours)},
    }
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif",
            "size": 12,
            "color": colours.text,
        },
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
        "hoverlabel": {
            "bgcolor": colours.panel,
            "bordercolor": colours.border,
            "font": {"color": colours.text},
        },
        "xaxis": axis,
        "yaxis": {**axis, "title": {"font": build_small_font(colours)}},
        **more,
    }


def choose_axis_unit(most_ns: float) -> tuple[str, float]:
    """Return the unit of a time axis, and its length in ns."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if most_ns >= scale:
            return unit, scale
    return "ns", 1.0
