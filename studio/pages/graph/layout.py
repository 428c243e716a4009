"""The layout of the Graph page: controls, map, drawing, and the legend and keys below it."""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cyto
import dash_mantine_components as dmc
from dash import html

from studio.analysis.graph.search import HELP as SEARCH_HELP
from studio.figures.graph import build_stylesheet
from studio.figures.graph_colours import build_hue_styles
from studio.figures.theme import choose_palette
from studio.pages.base.export import build_save_menu
from studio.pages.base.still import merge_static_parts
from studio.views.graph_request import COLOURS, DEEPEST

_KEYS = (
    ("↑ ↓ ← →", "move along dependencies and sideways"),
    ("Enter", "open a block; centre a node"),
    ("Backspace", "close the block around"),
    ("double click", "open or close a block; centre a node"),
    ("/", "search"),
    ("n N", "next and previous hit"),
    ("+ −", "zoom in, zoom out"),
    ("0", "full size"),
    ("F", "fit"),
    ("C", "critical path"),
    ("W", "width by time"),
    ("P", "a path begins here"),
    ("Esc", "clear the selection"),
    ("?", "show these keys"),
)
_SHOWN_KEYS = ("↑ ↓ ← →", "Enter", "Backspace", "/", "F")


def build_controls() -> Any:
    """Return the row of controls above the drawing."""
    return html.Div(
        [
            html.H1("Graph"),
            _build_labelled_control(
                "rank", _build_select("graph-rank", "Rank", [], 84, searchable=True, limit=200)
            ),
            dmc.SegmentedControl(
                id="graph-show",
                data=[
                    {"value": "fold", "label": "Folded"},
                    {"value": "whole", "label": "Whole"},
                    {"value": "near", "label": "Around a node"},
                    {"value": "path", "label": "Path"},
                    {"value": "gate", "label": "Gates"},
                ],
                size="xs",
                **_build_aria(label="What is drawn"),
            ),
            _build_labelled_control("fold by", _build_select("graph-by", "Fold by", [], 128)),
            _build_labelled_control(
                "depth",
                _build_select("graph-depth", "Depth", [str(n) for n in range(1, DEEPEST + 1)], 58),
                off=True,
            ),
            _build_field(
                _build_select(
                    "graph-dir",
                    "Direction",
                    [
                        {"value": "both", "label": "up and down"},
                        {"value": "up", "label": "upwards"},
                        {"value": "down", "label": "downwards"},
                    ],
                    146,
                ),
                off=True,
            ),
            _build_field(
                _build_select(
                    "graph-deps",
                    "Dependencies",
                    [
                        {"value": "both", "label": "all dependencies"},
                        {"value": "data", "label": "data only"},
                        {"value": "ctrl", "label": "control only"},
                    ],
                    182,
                ),
            ),
            html.Div(
                [
                    _build_search_field(),
                    html.Div(id="graph-hits", className="cs-graph-hits", role="status"),
                    html.Button(
                        "Fit", id="graph-fit", className="cs-button", title="Show all that is drawn (F)"
                    ),
                    _build_save_menu(),
                ],
                className="cs-graph-find",
            ),
        ],
        className="cs-graph-controls",
    )


def _build_look_controls() -> Any:
    """Return the controls of colours and widths, beside the legend."""
    return html.Div(
        [
            _build_labelled_control(
                "colour by",
                _build_select(
                    "graph-colour",
                    "Colour by",
                    [{"value": value, "label": title} for value, title in COLOURS.items()],
                    150,
                ),
            ),
            _build_labelled_control(
                "with", _build_select("graph-with", "Compare durations with", [], 150), off=True
            ),
            _build_toggle(
                "graph-crit", "Critical path", "Draw the critical path through all ranks on top (C)"
            ),
            _build_toggle("graph-wide", "Width = time", "Draw longer nodes wider (W)"),
        ],
        className="cs-graph-look",
    )


def _build_save_menu() -> Any:
    """Return the menu that saves what is shown."""
    kinds = {
        "png": ("PNG", "Save the picture as PNG"),
        "svg": ("SVG", "Save the picture as SVG"),
        "graphml": ("GraphML", "Save nodes and dependencies as GraphML, which yEd and NetworkX read"),
        "dot": ("DOT", "Save nodes and dependencies for Graphviz"),
        "csv": ("CSV", "Save what is drawn as a table"),
        "table": ("Table", "Show the numbers; copies as TSV"),
    }
    choices: list[tuple[str, str, dict[str, Any]]] = [
        (text, title, {"data-graph-save": kind}) for kind, (text, title) in kinds.items()
    ]
    return build_save_menu(choices, about="Save the graph", classes="cs-graph-save")


def _build_toggle(name: str, text: str, title: str) -> Any:
    return html.Button(
        text, id=name, className="cs-button cs-graph-toggle", title=title, **_build_aria(pressed="false")
    )


def _build_aria(**names: str) -> dict[str, Any]:
    return {f"aria-{name}": value for name, value in names.items()}


def _build_labelled_control(text: str, control: Any, *, off: bool = False) -> Any:
    return _build_field(html.Span(text, className="cs-dim", **_build_aria(hidden="true")), control, off=off)


def _build_field(*parts: Any, off: bool = False) -> Any:
    """Return a field of the row of controls; `off` where it means nothing until another view is chosen."""
    how: dict[str, Any] = {"data-off": ""} if off else {}
    return html.Span(list(parts), className="cs-graph-field", **how)


def _build_select(name: str, title: str, data: list[Any], width: int, **more: Any) -> Any:
    return dmc.Select(
        id=name,
        data=data,
        size="xs",
        w=width,
        allowDeselect=False,
        comboboxProps={"shadow": "sm"},
        **_build_aria(label=title),
        **more,
    )


def _build_search_field() -> Any:
    return dmc.TextInput(
        id="graph-q",
        placeholder="Name, id, /regex/, type:…",
        size="xs",
        w=212,
        debounce=200,
        **_build_aria(label="Search nodes by name, id, type or group", description=SEARCH_HELP),
    )


def build_whole_map() -> Any:
    """Return the element in which `assets/graph/map.mjs` draws the map of the whole graph."""
    about = (
        "Map of the whole graph: depth from left to right; nodes of equal depth from top to bottom. "
        "Click to go there, or aim with the arrow keys and press Enter."
    )
    canvas: Any = html.Canvas(id="graph-map-canvas", title=about)
    aim = html.Div(id="graph-map-aim", className="cs-map-aim", hidden=True)
    return html.Div(
        [canvas, html.Div(id="graph-map-marks"), aim],
        id="graph-map",
        className="cs-graph-map",
        tabIndex=0,
        role="slider",
        **_build_aria(
            label=about, valuemin="0", valuemax="100", valuenow="0", valuetext="no position selected"
        ),
    )


def build_canvas() -> Any:
    """Return the element in which Cytoscape draws."""
    return html.Div(
        [
            cyto.Cytoscape(
                id="graph-cy",
                elements=[],
                layout={"name": "preset", "fit": False},
                autoRefreshLayout=False,
                autoungrabify=True,
                autounselectify=True,
                boxSelectionEnabled=False,
                responsive=False,
                minZoom=0.02,
                maxZoom=3,
                style={"width": "100%", "height": "100%"},
                stylesheet=build_themed_stylesheet(dark=False),
            ),
            html.Div(id="graph-tip", className="cs-graph-tip", hidden=True),
        ],
        id="graph-canvas",
        className="cs-graph-canvas",
        tabIndex=0,
        role="application",
        **_build_aria(label="Graph of dependencies", describedby="graph-sentence graph-keys"),
    )


def build_foot() -> Any:
    """Return the foot of the page: sentence, keys, legend."""
    short = {"↑ ↓ ← →": "walk", "Enter": "open", "Backspace": "close", "/": "search", "F": "fit"}
    keys: list[Any] = [part for key in _SHOWN_KEYS for part in (html.Kbd(key), f" {short[key]} ")]
    keys.append(html.Button("? all keys", id="graph-help", className="cs-button-quiet"))
    rows = [html.Tr([html.Td(html.Kbd(key)), html.Td(does)]) for key, does in _KEYS]
    every: Any = html.Dialog(
        [
            html.H2("Keys of the Graph page"),
            merge_static_parts(html.Table(html.Tbody(rows))),
            html.Button("Close", id="graph-help-close", className="cs-button"),
        ],
        id="graph-help-list",
        className="cs-graph-help",
        **_build_aria(label="Keys of the Graph page"),
    )
    return html.Div(
        [
            html.Span(id="graph-sentence", role="status"),
            html.Div(keys, id="graph-keys", className="cs-graph-keys"),
            every,
            html.Div(
                [html.Div(id="graph-legend", className="cs-graph-legend"), _build_look_controls()],
                className="cs-graph-meaning",
            ),
        ],
        className="cs-graph-foot",
    )


def build_themed_stylesheet(*, dark: bool) -> list[dict[str, Any]]:
    """Return the stylesheet of a theme: rules of hues override those of types, and selection overrides both."""
    plain = build_stylesheet(dark)
    place = next(number for number, rule in enumerate(plain) if rule["selector"] == 'edge[dep = "ctrl"]')
    return [*plain[:place], *build_hue_styles(choose_palette(dark), dark), *plain[place:]]
