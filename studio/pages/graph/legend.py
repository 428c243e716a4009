"""The legend of the Graph page, which filters what is drawn: see `assets/graph/marks.mjs`."""

from __future__ import annotations

from typing import Any

from dash import html

from studio.figures.graph import Look
from studio.figures.graph_colours import Swatch, compute_hue_colour
from studio.figures.theme import choose_palette
from studio.units import format_count
from studio.views.graph_request import Request


def build_legend(asked: Request, looks: list[tuple[Look, int]], swatches: list[Swatch]) -> list[Any]:
    """Return the legend; a click on an entry hides or shows its nodes."""
    if asked.colour == "type":
        items = [
            _build_item(
                look.kind,
                html.Span(
                    className=f"cs-shape cs-shape-{look.shape}",
                    style={"background": f"var(--cs-{look.colour})"},
                ),
                look.title,
                count,
            )
            for look, count in looks
        ]
    else:
        items = [
            _build_item(
                swatch.hue,
                html.Span(className="cs-hue", style={"background": _format_swatch(swatch.hue)}),
                swatch.title,
                swatch.count,
            )
            for swatch in swatches
        ]
    lines = [
        html.Span([html.Span(className="cs-line"), "data"]),
        html.Span([html.Span(className="cs-line cs-line-dashed"), "control"]),
    ]
    if asked.critical:
        lines.append(html.Span([html.Span(className="cs-line cs-line-thick"), "critical path"]))
    if asked.mode == "fold" and asked.colour == "type":
        lines.append(html.Span("A block shows the share of each type among its nodes.", className="cs-dim"))
    return [*items, *lines]


def _format_swatch(hue: str) -> str:
    light, dark = (compute_hue_colour(hue, choose_palette(dark), dark) for dark in (False, True))
    return f"light-dark({light}, {dark})"


def _build_item(key: str, sign: Any, title: str, count: int) -> Any:
    about: dict[str, Any] = {"data-filter": key, "aria-pressed": "true"}
    shown = [sign, f"{title} ", html.Span(format_count(count), className="cs-dim")]
    return html.Button(shown, className="cs-legend-item", title="Click to hide or show", **about)
